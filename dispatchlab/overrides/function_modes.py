"""Function modes: handlers that see every call of a public function in a `with` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from dispatchlab.call.torch_handlers import FUNCTION, function_thread, special
from dispatchlab.overrides.errors import name_of, not_innermost


class FunctionMode:
    """A handler of public functions for the length of a `with` block; while it runs, it is not called itself.

    Functions that take no tensors come to it, too. A subclass need not call `super().__init__()`.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.overrides import FunctionMode, Functions
    >>> class Printing(FunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> functions = Functions(Lab())
    >>> with Printing():
    ...     functions.tensor([1.0]) + 1
    tensor
    add
    tensor([2.])
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Handle a call; NotImplemented leaves it to the arguments."""
        raise NotImplementedError(f"{name_of(type(self))} is a mode without a {FUNCTION}: define one")

    def __enter__(self) -> Self:
        special.append(None)
        function_thread.modes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the mode.

        Raises:
            OverrideError: it is not the innermost one of this thread; nothing has changed then.
        """
        innermost = function_thread.modes[-1] if function_thread.modes else None
        if innermost is not self:
            raise not_innermost(self, innermost)
        function_thread.modes.pop()
        special.pop()


def function_modes() -> tuple[FunctionMode, ...]:
    """The function modes of this thread, the innermost last."""
    return tuple(function_thread.modes)


@contextmanager
def pop_function_mode() -> Iterator[Any]:
    """Take the innermost mode away while it runs, and put all back as they were."""
    found = [*function_thread.modes]
    try:
        yield function_thread.modes.pop()
    finally:
        function_thread.modes[:] = found
