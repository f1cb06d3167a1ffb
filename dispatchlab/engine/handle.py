"""The handle of a registration: releases it once, when asked, at the end of a `with` block, or when it is forgotten."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class RegistrationHandle:
    """Holds a registration in force for as long as it lives.

    Args:
        undo: releases the registration; called once at most.
        what: what was registered, for `repr`.
    """

    __slots__ = ("__weakref__", "_undo", "_what")

    def __init__(self, undo: Callable[[], None], what: str) -> None:
        self._undo: Callable[[], None] | None = undo
        self._what = what

    @property
    def is_released(self) -> bool:
        """Whether the registration is gone."""
        return self._undo is None

    def release(self) -> None:
        """Undo the registration; a second release is harmless."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<RegistrationHandle {'released' if self.is_released else 'of'} {self._what}>"
