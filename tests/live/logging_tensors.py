"""The same program on two frameworks: our LoggingTensor, and the same class on the running PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dispatchlab import tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.lab import Lab
from dispatchlab.lab.schemas import SHORT_NAMES
from examples.logging_tensor import LoggingTensor, logging

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

Line = tuple[str, tuple[str, ...], tuple[str, ...]]


class TheirLog:
    """Writes as the example does."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.seen: list[Any] = []

    def name(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.name, value))}]"
        if not isinstance(value, TheirTensor):
            return "Tensor" if isinstance(value, torch.Tensor) else str(value).removeprefix("torch.")
        for number, known in enumerate(self.seen):
            if known is value:
                return f"${number}"
        self.seen.append(value)
        return f"${len(self.seen) - 1}"

    def add(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        inputs = (*map(self.name, args), *(f"{name}={self.name(one)}" for name, one in kwargs.items()))
        results = result if isinstance(result, list | tuple) else (result,)
        outputs = tuple(self.name(one) for one in results if isinstance(one, TheirTensor))
        self.lines.append((func._schema.name + ("." + func._schema.overload_name).rstrip("."), inputs, outputs))


their_logs: list[TheirLog] = []


class TheirTensor(torch.Tensor):  # type: ignore[misc]  # torch is Any here
    """The example on torch."""

    elem: Any

    @staticmethod
    def __new__(cls: Any, elem: Any, *, requires_grad: bool = False) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            *(cls, elem.size()),
            strides=elem.stride(),
            dtype=elem.dtype,
            device=elem.device,
            requires_grad=requires_grad,
        )
        made.elem = elem
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*map(_their_inner, args), **{name: _their_inner(one) for name, one in kwargs.items()})
        in_place = func._schema.name.endswith("_")
        wrapped = args[0] if in_place else cls(result) if isinstance(result, torch.Tensor) else result
        if their_logs:
            their_logs[-1].add(func, args, kwargs, wrapped)
        return wrapped


def _their_inner(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_their_inner(one) for one in value]
    return value.elem if isinstance(value, TheirTensor) else value


class Side:
    """Operators by name, wrapped and plain tensors, and dtypes, of one of the two."""

    def __init__(self, call: Callable[[str], Any], wrap: Any, plain: Any, dtype: Any) -> None:
        self.op, self.wrap, self.plain, self.dtype = call, wrap, plain, dtype

    def __getattr__(self, name: str) -> Any:
        return self.op(name)

    def w(self, shape: Sequence[int] = (2, 2), *, grad: bool = False) -> Any:
        """A tensor that logs."""
        return self.wrap(self.p(shape), requires_grad=grad)

    def p(self, shape: Sequence[int] = (2, 2)) -> Any:
        """A plain one."""
        return self.plain(np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape))


Program = Callable[[Side], Any]


def our_side(lab: Lab) -> Side:
    """Operators of the lab."""
    return Side(lambda name: lab(SHORT_NAMES.get(name, name)), LoggingTensor, tensor, lambda name: DType[name])


def their_side() -> Side:
    """Operators of PyTorch."""

    def call(name: str) -> Any:
        base, _, overload = SHORT_NAMES.get(name, name).partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    return Side(call, TheirTensor, lambda array: torch.from_numpy(np.array(array)), lambda name: getattr(torch, name))


def both(program: Program, ours: Side, theirs: Side) -> tuple[tuple[list[Line], Any], tuple[list[Line], Any]]:
    """The lines and the result of a program, here and there."""
    with logging() as log:
        our_result = program(ours)
    their_logs.append(TheirLog())
    try:
        their_result = program(theirs)
    finally:
        their_log = their_logs.pop()
    lines = [(one.operator, one.inputs, one.outputs) for one in log.calls]
    return (lines, our_result), (their_log.lines, their_result)


def elements(result: Any) -> Any:
    """What a tensor of either framework holds, as an array."""
    while isinstance(result, LoggingTensor | TheirTensor):
        result = result.elem
    return result.detach().numpy() if hasattr(result, "detach") else result.numpy()
