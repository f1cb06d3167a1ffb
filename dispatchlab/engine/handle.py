"""`RegistrationHandle`: releases a registration once: by hand, after a `with` block, or when it is garbage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import NoReturn, Self


class RegistrationHandle:
    """Keeps a registration in force as long as this object exists.

    >>> from dispatchlab import Claim, Dispatcher
    >>> handle = Dispatcher().register(Claim("test", "a.cpp:1"))
    >>> handle.release()
    >>> handle
    <RegistrationHandle released claim test (a.cpp:1)>

    Args:
        undo: releases the registration, and does nothing if it is released: several threads may call it, and one that
            was interrupted calls it again.
        what: the registration, for `repr`.
        forget: the same for a handle without a reference; it must not wait for another thread. Default: `undo`.
        home: the handles among which it is while the registration is in force.
    """

    __slots__ = ("__weakref__", "_forget", "_home", "_undo", "_what")

    def __init__(
        self,
        undo: Callable[[], None],
        what: str,
        *,
        forget: Callable[[], None] | None = None,
        home: dict[RegistrationHandle, None] | None = None,
    ) -> None:
        self._undo: Callable[[], None] | None = undo
        self._forget = forget
        self._what = what
        self._home = home
        if home is not None:
            home[self] = None

    @property
    def is_released(self) -> bool:
        """True if the registration is released."""
        return self._undo is None

    def release(self) -> None:
        """Undo the registration; a second release is harmless, and an interrupted release can be tried again."""
        undo = self._undo
        if undo is not None:
            undo()
            self.settle()

    def forget(self) -> None:
        """Undo it without waiting: now, or as soon as the thread that changes the dispatcher is done."""
        undo = self._undo
        if undo is not None:
            (self._forget or undo)()
            self.settle()

    def settle(self) -> None:
        """Note that the registration is released; for the code that removes it."""
        self._undo = None
        home = self._home
        if home is not None:
            home.pop(self, None)
            self._home = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def __del__(self, *, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if (
            getattr(self, "_undo", None) is not None and not _ending()
        ):  # else the dispatcher goes too, and half of the modules are gone
            self.forget()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_copied(self)

    def __repr__(self) -> str:
        return f"<RegistrationHandle {'released' if self.is_released else 'of'} {self._what}>"


def not_copied(owner: object) -> TypeError:
    """Refuse to copy or pickle an owner of registrations: when the copy ends, it would release them, too."""
    name = type(owner).__name__
    return TypeError(f"cannot copy or pickle a {name}: it owns its registrations; hand the {name} itself on")


def release_all(handles: Iterable[RegistrationHandle]) -> None:
    """Release all of them, in order.

    Raises:
        Exception: one release raised, after all were tried; an ExceptionGroup if several raised.
    """
    errors: list[Exception] = []
    for handle in handles:
        try:
            handle.release()
        except Exception as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("some releases raised", errors)


def forget_all(handles: Iterable[RegistrationHandle]) -> None:
    """Forget all of them, in order."""
    for handle in handles:
        handle.forget()
