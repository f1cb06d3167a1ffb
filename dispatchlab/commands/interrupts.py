"""Ctrl-C and SIGTERM: both interrupt a command, which prints what it has; the exit code says which it was."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
TERMINATED: Final = 143

_terminated = False


class Terminated(KeyboardInterrupt):
    """SIGTERM came; handled as Ctrl-C is."""


def interrupt_code() -> int:
    """The exit code of a command that was interrupted: 143 after SIGTERM, 130 after Ctrl-C."""
    return TERMINATED if _terminated else INTERRUPTED


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does, so that a time limit from outside does not lose what was found."""
    global _terminated
    _terminated = False
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _arrived)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _arrived(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    raise Terminated
