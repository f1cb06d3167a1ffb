"""A deadline that interrupts whatever is running, also what looks at no clock."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from time import monotonic
from types import FrameType
from typing import Final

_LEAST_S: Final = 0.001
_AGAIN_S: Final = 5.0  # an exception that is raised in a finalizer is lost


class DeadlineReached(KeyboardInterrupt):
    """Time is up; handled as Ctrl-C is."""


class Deadline:
    """An allowance of time, which passes while `running` is entered.

    When it is used up, `DeadlineReached` is raised there; only in the main thread, and not on Windows.

    Args:
        seconds: how long; None is no deadline.
    """

    def __init__(self, seconds: float | None) -> None:
        self._left = seconds
        self._armed = False
        self.passed = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the time pass inside."""
        if self._left is None or not _is_possible():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._arrived)
        started = monotonic()
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, max(self._left, _LEAST_S), _AGAIN_S)
        try:
            yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._left -= monotonic() - started
            signal.signal(signal.SIGALRM, before)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self.passed = True
            raise DeadlineReached


def _is_possible() -> bool:
    if not hasattr(signal, "setitimer") or current_thread() is not main_thread():
        return False
    return signal.getsignal(signal.SIGALRM) is signal.SIG_DFL  # somebody else may have a use for it
