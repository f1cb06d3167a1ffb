"""Handlers of classes: which classes have handlers, and whether this thread calls `__torch_function__` handlers.

Source: torch/csrc/utils/disable_torch_function.cpp, aten/src/ATen/PythonTorchFunctionTLS.h.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Self

from dispatchlab._short_repr import member_repr
from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

FUNCTION = "__torch_function__"
DISPATCH = "__torch_dispatch__"

_PYTHON_AND_ABOVE = DispatchKeySet.full() - DispatchKeySet.full_after(DispatchKey.Python)


def disabled(*args: object, **kwargs: object) -> object:
    """Return the value of `__torch_function__` or `__torch_dispatch__` for a class without handlers."""
    return NotImplemented


def default_torch_dispatch(
    func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Return the `__torch_dispatch__` of plain tensors, for `super()`: the call continues below the key Python.

    A class with only this method has no handler.
    """
    with ExcludeDispatchKeyGuard(_PYTHON_AND_ABOVE):
        return func(*args, **(kwargs or {}))


_NO_HANDLERS = (None, disabled, default_torch_dispatch)


def has_handler(kind: object, protocol: str) -> bool:
    """Return whether a class, or an object, has a handler of that name that is not switched off."""
    handler = getattr(kind, protocol, None)
    return not any(handler is none for none in _NO_HANDLERS)


_PLAIN_TYPES = frozenset((bool, int, float, complex, str, bytes, list, tuple, dict, type(None)))


def handles(value: object, protocol: str) -> bool:
    """Return whether an object has a handler of that name: its class, the object, or itself when it is a class."""
    kind = type(value)
    return kind not in _PLAIN_TYPES and has_handler(kind if hasattr(kind, protocol) else value, protocol)


def may_differ(kind: type) -> bool:
    """Return whether only some objects of a class may have a handler."""
    return kind.__dictoffset__ != 0 or issubclass(kind, type) or hasattr(kind, "__getattr__")


def python_bits(kind: type) -> int:
    """Return the keys that a tensor carries because its class has a `__torch_dispatch__`."""
    return PYTHON_KEYS.bits if has_handler(kind, DISPATCH) else 0


class FunctionState(IntEnum):
    """The state of a thread for handlers of `__torch_function__`."""

    ENABLED = 0
    SUBCLASSES_DISABLED = 1
    """Only function modes are called."""
    ALL_DISABLED = 2

    __repr__ = member_repr


class FunctionThread(threading.local):
    """The state of a thread for public functions.

    Attributes:
        state: which handlers it calls.
        modes: its function modes, the innermost last.
        skips: whether the next public function calls its implementation directly.
    """

    state: FunctionState = FunctionState.ENABLED
    skips: bool = False

    def __init__(self) -> None:
        self.modes: list[Any] = []


function_thread = FunctionThread()

special: list[None] = []
"""One item for each guard or mode of `__torch_function__` that is open in any thread, and each call that is skipped.

While it is empty, `function_thread` need not be read.
"""


class FunctionGuard:
    """A block that changes the state of a thread for handlers; it may be entered again inside."""

    __slots__ = ("_found",)
    _level: ClassVar[FunctionState]

    def __init__(self) -> None:
        self._found: list[FunctionState] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __enter__(self) -> Self:
        special.append(None)
        self._found.append(function_thread.state)
        is_on = self._level is FunctionState.ENABLED
        function_thread.state = self._level if is_on else max(function_thread.state, self._level)
        return self

    def __exit__(self, *error: object) -> None:
        function_thread.state = self._found.pop()
        special.pop()


class DisableTorchFunctionSubclass(FunctionGuard):
    """A block in which public functions call no handlers of arguments, only function modes."""

    __slots__ = ()
    _level = FunctionState.SUBCLASSES_DISABLED
