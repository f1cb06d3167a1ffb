"""A call of every operator of the layers, for the tests that compare all of them with something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dispatchlab import Tensor, tensor
from dispatchlab.lab import Lab
from dispatchlab.lab.schemas import COMPARISONS

ArrayOrArrays = Any


@dataclass(frozen=True, slots=True)
class Case:
    """One call.

    Args:
        operator: with the overload.
        shapes: of the tensor arguments, which come first; a list of shapes is one argument that is a list.
        others: what comes after them.
        named: what comes by name.
    """

    operator: str
    shapes: tuple[tuple[int, ...] | list[tuple[int, ...]], ...]
    others: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.operator}{list(self.shapes)}{list(self.others) or ''}{self.named or ''}"

    @property
    def writes(self) -> bool:
        """Whether this is an in-place form."""
        return self.operator.partition(".")[0].endswith("_")

    def arrays(self, seed: int = 0) -> list[ArrayOrArrays]:
        """Numbers for the tensor arguments."""
        random = np.random.default_rng(seed)

        def one(shape: tuple[int, ...]) -> Any:
            return random.normal(size=shape)

        return [[one(inner) for inner in shape] if isinstance(shape, list) else one(shape) for shape in self.shapes]


POINTWISE = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (2, 3))]

CASES: tuple[Case, ...] = (
    *(Case(f"{name}.Tensor", shapes) for name in ("add", "sub", "mul") for shapes in POINTWISE),
    *(Case(f"{name}.Tensor", ((2, 3), (3,)), named={"alpha": 2.5}) for name in ("add", "sub", "add_", "sub_")),
    *(Case(f"{name}_.Tensor", shapes) for name in ("add", "sub", "mul") for shapes in POINTWISE[:2]),
    Case("mul.Scalar", ((2, 3),), (1.5,)),
    *(Case("div.Tensor", shapes) for shapes in POINTWISE),
    *(Case(f"{name}.Tensor", shapes) for name in COMPARISONS for shapes in POINTWISE[:2]),
    *(Case(f"{name}.Scalar", ((2, 3),), (0.5,)) for name in COMPARISONS),
    *(Case("permute", ((2, 3, 4),), (dims,)) for dims in ([2, 0, 1], [0, -1, 1])),
    Case("transpose.int", ((2, 3, 4),), (0, -1)),
    Case("alias", ((2, 3),)),
    Case("mv", ((2, 3), (3,))),
    Case("dot", ((3,), (3,))),
    Case("bmm", ((2, 3, 4), (2, 4, 2))),
    Case("squeeze.dims", ((2, 1, 1, 3),), ([1, -2],)),
    *(Case(name, ((2, 3),)) for name in ("neg", "sin", "cos", "exp", "relu", "sum", "t", "clone", "detach")),
    *(Case(name, ((2, 3),)) for name in ("ones_like", "zeros_like", "_to_copy")),
    *(Case("copy_", shapes) for shapes in (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 3), ()))),
    *(Case("unsqueeze", ((2, 3),), (dim,)) for dim in (0, 2, -1)),
    *(Case("squeeze.dim", ((2, 1, 3),), (dim,)) for dim in (1, -2, 0)),
    *(Case(name, ((),)) for name in ("neg", "sin", "relu", "sum", "clone")),
    Case("threshold_backward", ((2, 3), (2, 3)), (0.25,)),
    Case("mm", ((2, 3), (3, 4))),
    *(
        Case("matmul", shapes)
        for shapes in (
            ((2, 3), (3, 4)),
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((3,), (3, 2)),
            ((2, 2, 3), (3, 4)),
            ((2, 2, 3), (2, 3, 4)),
        )
    ),
    *(Case("sum.dim_IntList", ((2, 3, 4),), (dim,)) for dim in ([0], [-1], [0, 2], None, 1)),
    Case("sum.dim_IntList", ((2, 3, 4),), ([1], True)),
    *(Case(name, ((2, 6),), ([3, -1],)) for name in ("view", "_unsafe_view")),
    Case("expand", ((2, 1),), ([4, 2, 3],)),
    Case("expand", ((2, 1),), ([-1, 3],)),
    Case("select.int", ((2, 3, 4),), (1, 2)),
    Case("select.int", ((2, 3, 4),), (-1, -3)),
    Case("select_backward", ((2, 4),), ([2, 3, 4], 1, 2)),
    Case("stack", ([(2, 3), (2, 3), (2, 3)],)),
    Case("stack", ([(2, 3), (2, 3)],), (1,)),
    Case("normal_", ((2, 3),), (3.0, 0.0)),
)
"""Every operator that takes tensors, in shapes that broadcast and shapes that do not."""


def tensors(arrays: Sequence[ArrayOrArrays], *, requires_grad: bool = False, device: str = "cpu") -> list[Any]:
    """The arrays as tensors, lists as lists."""
    return [
        [tensor(inner, requires_grad=requires_grad, device=device) for inner in one]
        if isinstance(one, list)
        else tensor(one, requires_grad=requires_grad, device=device)
        for one in arrays
    ]


def flat(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among the values, those in lists, too."""
    return [inner for one in values for inner in (one if isinstance(one, list) else [one])]


def run(lab: Lab, case: Case, values: Sequence[Any]) -> Tensor:
    """The call; an in-place form writes to a clone, so that leaves can be given."""
    given = [lab.clone(values[0]), *values[1:]] if case.writes else values
    result = lab(case.operator)(*given, *case.others, **case.named)
    assert isinstance(result, Tensor)
    return result
