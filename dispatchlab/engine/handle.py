"""`RegistrationHandle`: releases a registration once: by hand, after a `with` block, or when it is garbage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self


class RegistrationHandle:
    """Holds a registration in force for as long as it lives.

    >>> from dispatchlab import Claim, Dispatcher
    >>> handle = Dispatcher().register(Claim("test", "a.cpp:1"))
    >>> handle.release()
    >>> handle
    <RegistrationHandle released claim test (a.cpp:1)>

    Args:
        undo: releases the registration; called once at most.
        what: what was registered, for `repr`.
        forget: the same for a handle that nobody holds any more; it must not wait for anybody. `undo` when left out.
    """

    __slots__ = ("__weakref__", "_forget", "_undo", "_what")

    def __init__(self, undo: Callable[[], None], what: str, *, forget: Callable[[], None] | None = None) -> None:
        self._undo = [undo]  # taking from a list happens once, whoever else releases at the same time
        self._forget = undo if forget is None else forget
        self._what = what

    @property
    def is_released(self) -> bool:
        """Whether the registration is gone."""
        return not self._undo

    def release(self) -> None:
        """Undo the registration; a second release is harmless."""
        for undo in self._taken():
            undo()

    def forget(self) -> None:
        """Undo it without waiting: now, or as soon as whoever is changing the dispatcher is done."""
        for _ in self._taken():
            self._forget()

    def _taken(self) -> Iterable[Callable[[], None]]:
        try:
            return (self._undo.pop(),)
        except IndexError:
            return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self, *, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _ending():  # else the dispatcher goes as well, and half of the modules have gone already
            self.forget()

    def __repr__(self) -> str:
        return f"<RegistrationHandle {'released' if self.is_released else 'of'} {self._what}>"


def release_all(handles: Iterable[RegistrationHandle]) -> None:
    """Release every one of them, in order, whatever listeners do.

    Raises:
        Exception: what a listener raised, when all are released; an ExceptionGroup when several did.
    """
    errors: list[Exception] = []
    for handle in handles:
        try:
            handle.release()
        except Exception as error:
            errors.append(error)
    raise_all("some releases raised", errors)


def raise_all(what: str, errors: list[Exception]) -> None:
    """Raise what was collected, if anything was."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(what, errors)
