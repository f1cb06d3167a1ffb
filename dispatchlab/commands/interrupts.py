"""Ctrl-C and SIGTERM: both interrupt a command, which prints what it has; the exit code says which it was."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

INTERRUPTED: Final = 130
TERMINATED: Final = 143

_WAIT_S: Final = 1.25
"""How long an interrupt waits for a result to come out: its reader may not read."""

_terminated = False
_wait = False  # whether interrupts wait


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


@contextmanager
def results_come_first() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until a result has come out whole, and raise what they raise then.

    The second one does not wait, and none waits for longer than a moment. Inside of itself it does nothing.
    """
    global _wait
    if _wait or threading.current_thread() is not threading.main_thread():
        yield
        return
    has_alarm = hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    before: dict[int, Callable[[int, FrameType | None], Any]] = {}
    came: list[int] = []

    def arrived(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            before[came[0]](came[0], frame)
        elif has_alarm:
            signal.setitimer(signal.ITIMER_REAL, _WAIT_S)

    _wait = True
    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(each)
            if callable(handler):
                before[each] = handler
                signal.signal(each, arrived)
        if has_alarm:
            signal.signal(signal.SIGALRM, arrived)
        yield
    finally:
        _wait = False
        for number, handler in before.items():
            signal.signal(number, handler)
        if has_alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if came:
            before[came[0]](came[0], None)


def _arrived(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    raise Terminated
