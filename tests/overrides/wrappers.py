"""Wrappers for the tests of `__torch_dispatch__`, and the state of a thread that they must leave as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dispatchlab import (
    DispatchKeySet,
    Operator,
    Tensor,
)
from dispatchlab.call import excluded, included
from dispatchlab.lab.overrides import (
    DispatchMode,
    enable_reentrant_dispatch,
    make_wrapper_subclass,
    modes,
)
from examples.logging_tensor import LoggingTensor

State = tuple[DispatchKeySet, DispatchKeySet, tuple[DispatchMode, ...]]


class Wrapper(Tensor):
    """Records its calls, and returns what `answer` returns, or the result of the call on what it wraps."""

    __slots__ = ("elem",)
    calls: list[tuple[Any, ...]]
    answer: Callable[..., Any] | None = None
    elem: Tensor

    def __init_subclass__(cls) -> None:
        cls.calls = []

    def __new__(cls, elem: Tensor, *, requires_grad: bool = False) -> Wrapper:
        made = make_wrapper_subclass(cls, elem, requires_grad=requires_grad)
        made.elem = elem
        return made

    def __init__(self, elem: Tensor, *, requires_grad: bool = False) -> None:
        """All is done."""

    @classmethod
    def __torch_dispatch__(
        cls, func: Operator, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        cls.calls.append((str(func.name), types, args, kwargs))
        if cls.answer is not None:
            return cls.answer(func, types, args, kwargs)
        result = func(*map(_inner, args), **{name: _inner(one) for name, one in kwargs.items()})
        return cls(result) if isinstance(result, Tensor) else result


def _inner(value: Any) -> Any:
    if isinstance(value, list):
        return [_inner(one) for one in value]
    return value.elem if isinstance(value, Wrapper) else value


def wrapper(answer: Callable[..., Any] | None = None, base: type[Wrapper] = Wrapper) -> type[Wrapper]:
    """A class of its own for a test."""
    body = {} if answer is None else {"answer": staticmethod(answer)}
    return type("Made", (base,), {"__slots__": (), **body})


def state() -> State:
    return included(), excluded(), modes()


class Noting(DispatchMode):
    """Notes every call and lets it go on."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__()
        self.name, self.log = name, log

    def __torch_dispatch__(self, func: Operator, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.log.append(f"{self.name} {func.name}")
        return func(*args, **(kwargs or {}))


class Silent(Wrapper):
    """A wrapper that only passes on, so that something can require gradients around a batched tensor."""

    @classmethod
    def __torch_dispatch__(
        cls, func: Operator, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with enable_reentrant_dispatch():
            return super().__torch_dispatch__(func, types, args, kwargs)


def unwrapped(value: Any) -> Any:
    while isinstance(value, LoggingTensor | Silent):
        value = value.elem
    return value
