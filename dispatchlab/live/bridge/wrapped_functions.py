"""Functions of other modules, wrapped for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class WrappedFunctions:
    """Functions and methods that wrappers replace, until they are restored in reverse order.

    If other code has replaced a function meanwhile, it stays, and its wrapper only passes calls on.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._undo)

    def wrap(self, owner: Any, name: str, around: Callable[..., object]) -> None:
        """Replace an attribute by `around`, which gets the original function before the arguments.

        If this version of PyTorch has no such attribute, nothing is wrapped.
        """
        original, own = getattr(owner, name, None), vars(owner).get(name)
        if original is None:
            return
        is_on = True

        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> object:
            return around(original, *arguments, **named) if is_on else original(*arguments, **named)

        def undo() -> None:
            nonlocal is_on
            is_on = False
            if vars(owner).get(name) is not wrapper:
                return
            if own is None:  # it is that of a base class
                delattr(owner, name)
            else:
                setattr(owner, name, own)

        setattr(owner, name, wrapper)
        self._undo.append(undo)

    def put_back(self) -> None:
        """Restore every original; a second call is harmless."""
        while self._undo:
            self._undo.pop()()
