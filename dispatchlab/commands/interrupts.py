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

_came = 0  # the signal that interrupted the command
_wait = False  # whether interrupts wait


class Terminated(KeyboardInterrupt):
    """SIGTERM came; handled as Ctrl-C is."""


def interrupt_code() -> int:
    """The exit code of a command that was interrupted: 143 after SIGTERM, 130 after Ctrl-C."""
    return TERMINATED if _came == signal.SIGTERM else INTERRUPTED


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or what Python makes of one that comes while it imports and makes classes."""
    if isinstance(error, KeyboardInterrupt) or (_came != 0 and isinstance(error, ImportError | SyntaxError)):
        return True
    return error is not None and is_interrupt(error.__cause__)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let Ctrl-C interrupt, and SIGTERM too, so that a time limit from outside does not lose what was found."""
    global _came
    _came = 0
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    try:
        for each in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(each) is not signal.SIG_IGN:
                before[each] = signal.signal(each, _arrived)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


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
    global _came
    _came = number
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
