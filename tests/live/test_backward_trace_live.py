"""What `backward` calls, against the running PyTorch: every operator, argument and result, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dispatchlab.lab import Lab
from dispatchlab.lab.formulas import FORMULAS
from dispatchlab.lab.overrides import PythonDispatch
from examples.logging_tensor import logging
from tests.live.logging_tensors import Side, both, elements, our_side, their_side


@dataclass(slots=True)
class Framework:
    """One of the two, and how gradients are had there."""

    s: Side
    lab: Lab | None

    def leaf(self, shape: tuple[int, ...] = (2, 2)) -> Any:
        return self.s.w(shape, grad=True)

    def backward(self, result: Any, gradient: Any = None, **options: Any) -> None:
        if self.lab is None:
            result.backward(gradient, **options)
        else:
            self.lab.backward(result, gradient, **options)


def _of(name: str, *others: Any, shape: tuple[int, ...] = (2, 2)) -> Any:
    def program(framework: Framework) -> list[Any]:
        x = framework.leaf(shape)
        framework.backward(framework.s.sum(framework.s.op(name)(x, *others)))
        return [x]

    return program


def _of_two(name: str, first: tuple[int, ...] = (2, 2), second: tuple[int, ...] = (2, 2), **named: Any) -> Any:
    def program(framework: Framework) -> list[Any]:
        x, y = framework.leaf(first), framework.leaf(second)
        framework.backward(framework.s.sum(framework.s.op(name)(x, y, **named)))
        return [x, y]

    return program


def _of_one_of_two(framework: Framework) -> list[Any]:
    x = framework.leaf()
    framework.backward(framework.s.sum(framework.s.mul(framework.s.w(), x)))
    return [x]


def _with_a_plain_tensor(framework: Framework) -> list[Any]:
    x = framework.leaf()
    framework.backward(framework.s.sum(framework.s.mul(x, framework.s.p())))
    return [x]


def _explicit(framework: Framework) -> list[Any]:
    x = framework.leaf()
    framework.backward(framework.s.sin(x), framework.s.w())
    return [x]


def _explicit_plain(framework: Framework) -> list[Any]:
    x = framework.leaf()
    framework.backward(framework.s.sin(x), framework.s.p())
    return [x]


def _with_numbers(framework: Framework) -> list[Any]:
    s, x = framework.s, framework.leaf()
    framework.backward(s.sum(s.sub(1, s.mul(s.add(s.mul(x, x), 3, alpha=2), 2.5))))
    return [x]


def _a_leaf_itself(framework: Framework) -> list[Any]:
    x = framework.leaf((1,))
    framework.backward(x)
    return [x]


def _twice(framework: Framework) -> list[Any]:
    x = framework.leaf()
    for name in ("sin", "cos", "neg"):
        framework.backward(framework.s.sum(framework.s.op(name)(x)))
    return [x]


def _the_same_tape_twice(framework: Framework) -> list[Any]:
    x = framework.leaf()
    result = framework.s.sum(framework.s.exp(x))
    framework.backward(result, retain_graph=True)
    framework.backward(result)
    return [x]


def _one_value_used_thrice(framework: Framework) -> list[Any]:
    s, x = framework.s, framework.leaf()
    y = s.sin(x)
    framework.backward(s.sum(s.add(s.mul(y, y), s.neg(y))))
    return [x]


def _squared(framework: Framework) -> list[Any]:
    x = framework.leaf()
    framework.backward(framework.s.sum(framework.s.mul(x, x)))
    return [x]


def _stacked(framework: Framework) -> list[Any]:
    leaves = [framework.leaf() for _ in range(7)]
    framework.backward(framework.s.sum(framework.s.stack(leaves)))
    return leaves


def _written(framework: Framework) -> list[Any]:
    s, x = framework.s, framework.leaf()
    y = s.sin(x)
    s.mul_(y, x)
    s.add_(y, x, alpha=3)
    s.sub_(y, framework.s.w())
    framework.backward(s.sum(y))
    return [x]


def _copied(framework: Framework) -> list[Any]:
    s, x, y = framework.s, framework.leaf(), framework.leaf((2,))
    z = s.sin(x)
    s.copy_(z, y)
    framework.backward(s.sum(s.mul(z, z)))
    return [y]


def _of_two_dtypes(framework: Framework) -> list[Any]:
    s, x = framework.s, framework.leaf()
    y = s.wrap(s.op("_to_copy")(s.p(), dtype=s.dtype("float32")), requires_grad=True)
    framework.backward(s.sum(s.mul(x, y)))
    return [x, y]


def _converted(framework: Framework) -> list[Any]:
    s, x = framework.s, framework.leaf()
    framework.backward(s.sum(s.op("_to_copy")(x, dtype=s.dtype("float32"))))
    return [x]


def _transposed_and_viewed(framework: Framework) -> list[Any]:
    s, x = framework.s, framework.leaf((6,))
    y = s.w((2, 3))
    framework.backward(s.sum(s.mul(s.t(s.mul(s.view(x, [3, 2]), s.t(y))), y)))
    return [x]


def _network(framework: Framework) -> list[Any]:
    s, w, v, b = framework.s, framework.leaf((2, 4)), framework.leaf((4, 1)), framework.leaf((4,))
    hidden = s.relu(s.add(s.mm(s.w((3, 2)), w), b))
    framework.backward(s.sum(s.exp(s.sin(s.mm(hidden, v)))))
    return [w, v, b]


def _recorded(framework: Framework) -> list[Any]:
    s, x = framework.s, framework.leaf()
    framework.backward(s.sum(s.mul(s.sin(x), x)), create_graph=True)
    gradient, x.grad = x.grad, None
    framework.backward(s.sum(gradient))
    return [x]


PROGRAMS: dict[str, Any] = {
    **{name: _of(name) for name in ("sin", "cos", "exp", "relu", "neg", "clone", "t", "sum")},
    "mul by a number": _of("mul.Scalar", 2.5),
    "view": _of("view", [4]),
    "select": _of("select.int", 0, 1),
    "expand": _of("expand", [3, 2], shape=(1, 2)),
    "expand to more dimensions": _of("expand", [3, 2, 2]),
    "unsqueeze": _of("unsqueeze", -1),
    "squeeze": _of("squeeze.dim", 0, shape=(1, 2)),
    "squeeze nothing": _of("squeeze.dim", 1),
    "sum of a dimension": _of("sum.dim_IntList", [0]),
    "sum of a dimension from the end": _of("sum.dim_IntList", [-1]),
    "sum of a dimension that is kept": _of("sum.dim_IntList", [0], True),  # noqa: FBT003 - by position is meant
    "sum of two dimensions": _of("sum.dim_IntList", [2, 0], shape=(2, 3, 2)),
    "sum of all dimensions": _of("sum.dim_IntList", None),
    "add": _of_two("add"),
    "add with alpha": _of_two("add", alpha=2),
    "add that broadcasts": _of_two("add", second=(2,)),
    "add that broadcasts both": _of_two("add", (2, 1), (1, 3)),
    "add to a number": _of_two("add", ()),
    "sub": _of_two("sub"),
    "sub with alpha": _of_two("sub", alpha=3),
    "mul": _of_two("mul"),
    "mul that broadcasts": _of_two("mul", (3, 1, 2), (2, 2)),
    "div": _of_two("div"),
    "div that broadcasts": _of_two("div", (3, 1, 2), (2, 2)),
    "alias": _of("alias"),
    "permute": _of("permute", [1, 0]),
    "transpose": _of("transpose.int", 0, -1),
    "squeeze of several": _of("squeeze.dims", [0, 1], shape=(1, 2, 1)),
    "mv": _of_two("mv", (2, 3), (3,)),
    "dot": _of_two("dot", (3,), (3,)),
    "bmm": _of_two("bmm", (2, 3, 2), (2, 2, 4)),
    "mm": _of_two("mm"),
    "matmul": _of_two("matmul", (2, 3), (3, 4)),
    "threshold_backward": lambda framework: _threshold(framework),
    "one of two": _of_one_of_two,
    "with a plain tensor": _with_a_plain_tensor,
    "an explicit gradient": _explicit,
    "an explicit gradient that is plain": _explicit_plain,
    "with numbers": _with_numbers,
    "a leaf itself": _a_leaf_itself,
    "three times": _twice,
    "the same tape twice": _the_same_tape_twice,
    "one value used thrice": _one_value_used_thrice,
    "squared": _squared,
    "seven leaves": _stacked,
    "written in place": _written,
    "copied": _copied,
    "two dtypes": _of_two_dtypes,
    "converted": _converted,
    "transposed and viewed": _transposed_and_viewed,
    "a network": _network,
    "a gradient of a gradient": _recorded,
}


def _threshold(framework: Framework) -> list[Any]:
    x, y = framework.leaf(), framework.leaf()
    framework.backward(framework.s.sum(framework.s.threshold_backward(x, y, 2)))
    return [x, y]


@pytest.fixture(scope="module")
def ours() -> Iterator[Framework]:
    lab = Lab()
    with PythonDispatch(lab.dispatcher):
        yield Framework(our_side(lab), lab)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("program", PROGRAMS)
def test_backward_calls_what_torchs_calls(ours: Framework, program: str) -> None:
    run = PROGRAMS[program]
    theirs = Framework(their_side(), None)
    frameworks = {id(ours.s): ours, id(theirs.s): theirs}
    (our_lines, our_leaves), (their_lines, their_leaves) = both(lambda s: run(frameworks[id(s)]), ours.s, theirs.s)
    assert our_lines == their_lines
    for our, their in zip(our_leaves, their_leaves, strict=True):
        assert type(our.grad) is type(our)
        assert np.allclose(elements(our.grad), elements(their.grad))
    assert len(our_lines) >= 3


def test_the_programs_call_every_operator_that_has_a_formula(ours: Framework) -> None:
    seen = set()
    for run in PROGRAMS.values():
        with logging() as log:
            run(ours)
        seen |= {one.operator.removeprefix("aten::") for one in log.calls}
    # The numbers of the first are random, and its gradient is zeros; torch makes those of the second by `zeros`.
    assert set(FORMULAS) - seen == {"normal_"}
    assert len(PROGRAMS) >= 50
