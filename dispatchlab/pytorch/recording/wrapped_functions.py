"""Functions of other modules, wrapped for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class WrappedFunctions:
    """Functions and methods that are replaced by wrappers until they are put back, the last one first.

    What somebody else has put there meanwhile stays; a wrapper that it holds only passes calls on from then on.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, around: Callable[..., object]) -> Callable[..., object] | None:
        """Have `around` called in place of an attribute, with the original in front of the arguments.

        Returns:
            The wrapper; None when this version of PyTorch has no such attribute.
        """
        original = getattr(owner, name, None)
        if original is None:
            return None
        is_on = True

        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> object:
            return around(original, *arguments, **named) if is_on else original(*arguments, **named)

        def off() -> None:
            nonlocal is_on
            is_on = False

        self.replace(owner, name, wrapper)
        self._undo.append(off)
        return wrapper

    def replace(self, owner: Any, name: str, by: object) -> None:
        """Have another attribute in the place of one, which the owner may have from its base class or not at all."""
        own = vars(owner)
        undo = (
            functools.partial(setattr, owner, name, own[name])
            if name in own
            else functools.partial(delattr, owner, name)
        )

        def put_back() -> None:
            if vars(owner).get(name) is by:
                undo()

        self._undo.append(put_back)
        setattr(owner, name, by)

    def put_back(self) -> None:
        """Put every original back; a second time is harmless."""
        while self._undo:
            self._undo.pop()()
