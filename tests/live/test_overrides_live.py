"""LoggingTensor's traces against those of the same class on the running PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dispatchlab import tensor
from dispatchlab.call.layers import Lab
from dispatchlab.call.layers.schemas import SHORT_NAMES
from dispatchlab.call.values import DType
from dispatchlab.overrides import PythonDispatch
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


_their_log: list[TheirLog] = []


class TheirTensor(torch.Tensor):  # type: ignore[misc]  # torch is Any here
    """The example on torch."""

    elem: Any

    @staticmethod
    def __new__(cls: Any, elem: Any, *, requires_grad: bool = False) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            *(cls, elem.size()), dtype=elem.dtype, device=elem.device, requires_grad=requires_grad
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
        if _their_log:
            _their_log[-1].add(func, args, kwargs, wrapped)
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


def _chain(s: Side) -> Any:
    x = s.w()
    for _ in range(4):
        x = s.add(s.mul(x, x), x, alpha=2)
    return x


def _write(s: Side) -> Any:
    x, y = s.w(), s.w()
    s.add_(x, y)
    s.mul_(x, y)
    return s.sub_(x, y, alpha=3)


def _write_to_a_view(s: Side) -> Any:
    x = s.w()
    s.add_(s.select(x, 0, 1), s.w((2,)))
    return s.neg(x)


def _network(s: Side) -> Any:
    x, w, v = s.w((3, 2)), s.w((2, 4), grad=True), s.w((4, 1), grad=True)
    return s.sum(s.mm(s.relu(s.mm(x, w)), v))


def _nested(s: Side) -> Any:
    x = s.wrap(s.w())
    return s.sum(s.mul(s.sin(x), x))


PROGRAMS: dict[str, Program] = {
    "add": lambda s: s.add(s.w(), s.w()),
    "add the same": lambda s: (lambda x: s.add(x, x))(s.w()),
    "add with its default": lambda s: s.add(s.w(), s.w(), alpha=1),
    "add with alpha": lambda s: s.add(s.w(), s.w(), alpha=2),
    "add a plain tensor": lambda s: s.add(s.w(), s.p()),
    "add to a plain tensor": lambda s: s.add(s.p(), s.w()),
    "sub with alpha": lambda s: s.sub(s.w(), s.w(), alpha=0.5),
    "mul by a number": lambda s: s.op("mul.Scalar")(s.w(), 2.5),
    "unary": lambda s: s.neg(s.sin(s.cos(s.exp(s.relu(s.w()))))),
    "threshold_backward": lambda s: s.threshold_backward(s.w(), s.w(), 0),
    "mm": lambda s: s.mm(s.w(), s.t(s.w())),
    "matmul of matrices": lambda s: s.matmul(s.w(), s.w()),
    "sum": lambda s: s.sum(s.w()),
    "sum with a dtype": lambda s: s.sum(s.w(), dtype=s.dtype("float32")),
    "sum with no dtype": lambda s: s.sum(s.w(), dtype=None),
    "sum of a dimension": lambda s: s.op("sum.dim_IntList")(s.w(), [1]),
    "sum of a dimension with its default": lambda s: s.op("sum.dim_IntList")(s.w(), [1], keepdim=False),
    "sum of a dimension that is kept": lambda s: s.op("sum.dim_IntList")(s.w(), [0], True),  # noqa: FBT003 - by position is meant
    "sum by name": lambda s: s.op("sum.dim_IntList")(s.w(), [0], keepdim=True, dtype=s.dtype("float32")),
    "clone": lambda s: s.clone(s.w()),
    "detach": lambda s: s.detach(s.w()),
    "view and t": lambda s: s.t(s.view(s.w(), [1, 4])),
    "expand": lambda s: s.expand(s.w((1, 2)), [3, 2]),
    "expand with its default": lambda s: s.expand(s.w((1, 2)), [3, 2], implicit=False),
    "select": lambda s: s.select(s.w(), 1, -1),
    "select_backward": lambda s: s.select_backward(s.w((2,)), [2, 2], 0, 1),
    "stack": lambda s: s.stack([s.w(), s.p(), s.w()]),
    "stack with its default": lambda s: s.stack([s.w(), s.w()], 0),
    "stack at a dimension": lambda s: s.stack([s.w(), s.w()], 1),
    "write": _write,
    "write to a view": _write_to_a_view,
    "a chain": _chain,
    "autograd that keeps an argument": lambda s: s.mul(s.sin(s.w(grad=True)), s.w(grad=True)),
    "autograd that keeps its result": lambda s: s.exp(s.w(grad=True)),
    "a network": _network,
    "a wrapper inside a wrapper": _nested,
}


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    lab = Lab()
    with PythonDispatch(lab.dispatcher):
        yield Side(lambda name: lab(SHORT_NAMES.get(name, name)), LoggingTensor, tensor, lambda name: DType[name])


@pytest.fixture(scope="module")
def theirs() -> Side:
    def call(name: str) -> Any:
        base, _, overload = SHORT_NAMES.get(name, name).partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    return Side(call, TheirTensor, lambda array: torch.from_numpy(np.array(array)), lambda name: getattr(torch, name))


def _value(result: Any, kind: type) -> Any:
    while isinstance(result, kind):
        result = result.elem  # type: ignore[attr-defined]  # both classes have it
    return result.detach().numpy() if hasattr(result, "detach") else result.numpy()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_trace_is_torchs(ours: Side, theirs: Side, program: str) -> None:
    run = PROGRAMS[program]
    with logging() as log:
        our_result = run(ours)
    _their_log.append(TheirLog())
    try:
        their_result = run(theirs)
    finally:
        their_log = _their_log.pop()
    assert [(one.operator, one.inputs, one.outputs) for one in log.calls] == their_log.lines
    assert log.calls
    assert np.allclose(_value(our_result, LoggingTensor), _value(their_result, TheirTensor))


def test_there_are_30_programs_and_they_use_most_operators(ours: Side) -> None:
    seen = set()
    for run in PROGRAMS.values():
        with logging() as log:
            run(ours)
        seen |= {one.operator for one in log.calls}
    assert len(PROGRAMS) >= 30
    assert len(seen) >= 22
