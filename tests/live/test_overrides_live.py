"""LoggingTensor's traces against those of the same class on the running PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import PythonDispatch
from examples.logging_tensor import logging
from tests.live.logging_tensors import Program, Side, both, elements, our_side, their_side


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
    "add a number": lambda s: s.add(s.w(), 2.5),
    "add to a number": lambda s: s.add(3, s.w(), alpha=2),
    "write a number": lambda s: s.copy_(s.mul_(s.w(), 2), 1),
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
        yield our_side(lab)


@pytest.fixture(scope="module")
def theirs() -> Side:
    return their_side()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_logged_program_has_the_trace_that_torch_logs(ours: Side, theirs: Side, program: str) -> None:
    (our_lines, our_result), (their_lines, their_result) = both(PROGRAMS[program], ours, theirs)
    assert our_lines == their_lines
    assert our_lines
    assert np.allclose(elements(our_result), elements(their_result))


def test_there_are_30_programs_and_they_use_most_operators(ours: Side) -> None:
    seen = set()
    for run in PROGRAMS.values():
        with logging() as log:
            run(ours)
        seen |= {one.operator for one in log.calls}
    assert len(PROGRAMS) >= 30
    assert len(seen) >= 22
