"""Modes: handlers that see every call, or every call of a public function, in a `with` block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

from dispatchlab.call.local_key_set import ForceDispatchKeyGuard, IncludeDispatchKeyGuard, excluded, included
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.call.torch_handlers import DISPATCH, FUNCTION, function_thread, special
from dispatchlab.lab.overrides.errors import name_of, not_innermost


class DispatchMode:
    """A handler for the length of a `with` block; while it runs, the modes around it see the calls that it makes.

    A subclass need not call `super().__init__()`.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.lab.overrides import DispatchMode, PythonDispatch
    >>> class Printing(DispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func.name)
    ...         return func(*args, **kwargs)
    >>> lab = Lab()
    >>> with PythonDispatch(lab.dispatcher), Printing():
    ...     lab.neg(tensor([1.0]))
    aten::neg
    tensor([-1.])
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __torch_dispatch__(
        self, func: Operator, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Handle a call; NotImplemented leaves it to the arguments."""
        raise NotImplementedError(f"{name_of(type(self))} is a mode without a {DISPATCH}: define one")

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return whether it belongs to internal machinery, which `is_in_dispatch_mode` can leave out."""
        return False

    def __enter__(self) -> Self:
        guard = IncludeDispatchKeyGuard(PYTHON_KEYS)
        guard.__enter__()
        _thread.stack.append((self, guard))
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the mode.

        Raises:
            OverrideError: it is not the innermost mode of this thread; then nothing has changed.
        """
        innermost, guard = _thread.stack[-1] if _thread.stack else (None, None)
        if innermost is not self or guard is None:
            raise not_innermost(self, innermost)
        _thread.stack.pop()
        guard.__exit__(*error)


def modes() -> tuple[DispatchMode, ...]:
    """Return the modes of this thread, the innermost last."""
    return tuple([mode for mode, _ in _thread.stack])


def is_in_dispatch_mode(*, include_infra_modes: bool = True) -> bool:
    """Return whether a mode is open in this thread.

    Args:
        include_infra_modes: whether modes with `is_infra_mode` are included.
    """
    return any(include_infra_modes or not mode.is_infra_mode() for mode, _ in _thread.stack)


@contextmanager
def _popped(stack: list[Any]) -> Iterator[Any]:
    found = [*stack]
    try:
        yield stack.pop()
    finally:
        stack[:] = found


@contextmanager
def pop_mode_temporarily() -> Iterator[DispatchMode]:
    """Remove the innermost mode inside the block, and restore all modes afterwards."""
    with _popped(_thread.stack) as (mode, _):
        yield mode


@contextmanager
def without_modes() -> Iterator[None]:
    """Return a block in which no mode is open, of any depth."""
    found = [*_thread.stack]
    _thread.stack[:] = []
    try:
        with ForceDispatchKeyGuard(included() - PYTHON_KEYS, excluded()):
            yield
    finally:
        _thread.stack[:] = found


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[DispatchMode, IncludeDispatchKeyGuard]] = []


_thread = _Thread()


class FunctionMode:
    """A handler of public functions for the length of a `with` block; while it runs, it is not called itself.

    It also gets functions without tensors. A subclass need not call `super().__init__()`.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.lab.overrides import FunctionMode, Functions
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
            OverrideError: it is not the innermost mode of this thread; then nothing has changed.
        """
        innermost = function_thread.modes[-1] if function_thread.modes else None
        if innermost is not self:
            raise not_innermost(self, innermost)
        function_thread.modes.pop()
        special.pop()


def function_modes() -> tuple[FunctionMode, ...]:
    """Return the function modes of this thread, the innermost last."""
    return tuple(function_thread.modes)


def pop_function_mode() -> AbstractContextManager[Any]:
    """Remove the innermost function mode inside the block, and restore all modes afterwards."""
    return _popped(function_thread.modes)
