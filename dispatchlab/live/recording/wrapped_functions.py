"""Functions of other modules, wrapped for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class WrappedFunctions:
    """Functions and methods that are replaced by wrappers until they are put back, the last one first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, around: Callable[..., object]) -> None:
        """Have `around` called in place of an attribute, with the original in front of the arguments."""
        original = getattr(owner, name, None)
        if original is None:  # of another version of PyTorch
            return

        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> object:
            return around(original, *arguments, **named)

        setattr(owner, name, wrapper)
        self._undo.append(lambda: setattr(owner, name, original))

    def put_back(self) -> None:
        """Put every original back; a second time is harmless."""
        while self._undo:
            self._undo.pop()()
