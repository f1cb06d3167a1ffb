"""Generated calls of every operator of the layers that has a formula, and what of it needs a gradient.

A call is data, and runs on both sides; its first argument is cloned where the operator writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor argument.

    Args:
        array: its elements in memory, before `seen`.
        seen: how the argument is seen through views, as calls of operators with their arguments.
        requires_grad: a gradient is wanted.
    """

    array: Array
    seen: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    requires_grad: bool = True


@dataclass(frozen=True, slots=True)
class FormulaCall:
    """One call.

    Args:
        operator: with the overload.
        leaves: the tensor arguments.
        as_list: they are one argument, a list.
        others: what comes after them.
        named: what comes by name.
        weights: what the gradient of the result is.
    """

    operator: str
    leaves: tuple[Leaf, ...]
    as_list: bool = False
    others: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def writes(self) -> bool:
        """Whether this is an in-place form."""
        return self.operator.partition(".")[0].endswith("_")


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def shape(self, least: int = 0, most: int = 3) -> Shape:
        return tuple(int(size) for size in self.random.integers(1, 4, size=self.random.integers(least, most + 1)))

    def one_of(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def dim(self, shape: Shape, beyond: int = 0) -> int:
        rank = len(shape) + beyond
        return int(self.random.integers(-rank, rank)) if rank else 0

    def leaf(self, shape: Shape, *, floating: bool = True) -> Leaf:
        """A leaf of that shape, now and then as a view of another shape."""
        array = np.asarray(self.random.normal(size=shape))
        needs = bool(self.random.random() < 0.8)
        kind = self.random.random()
        if len(shape) == 2 and kind < 0.25:
            return Leaf(np.asarray(array.T.copy()), (("t", ()),), needs)
        if shape and kind < 0.4:
            order = [int(at) for at in self.random.permutation(len(shape))]
            back = [order.index(at) for at in range(len(shape))]
            return Leaf(np.asarray(np.transpose(array, order).copy()), (("permute", (back,)),), needs)
        if shape and kind < 0.5:
            more = np.stack([np.asarray(self.random.normal(size=shape)), array])
            return Leaf(np.asarray(more), (("select.int", (0, 1)),), needs)
        if shape and kind < 0.6 and floating:
            thin = np.asarray(array[:1])
            return Leaf(thin, (("expand", ([*shape],)),), needs)
        return Leaf(array, (), needs)

    def cast(self, leaf: Leaf) -> Leaf:
        """The leaf, now and then with another dtype."""
        kind = self.random.random()
        if kind < 0.15:
            return Leaf(leaf.array.astype(np.float32), leaf.seen, leaf.requires_grad)
        if kind < 0.25:
            return Leaf(np.ceil(np.abs(leaf.array)).astype(np.int64), leaf.seen, requires_grad=False)
        return leaf

    def broadcast(self, shape: Shape) -> Shape:
        """A shape that is broadcast to this one."""
        cut = shape[self.random.integers(len(shape) + 1) :]
        return tuple(1 if self.random.random() < 0.3 else size for size in cut)


Make = Callable[[_Maker], FormulaCall]


def _pointwise(name: str, *, alpha: bool = False) -> Make:
    def make(maker: _Maker) -> FormulaCall:
        first = maker.shape()
        second = maker.broadcast(first)
        if not name.startswith(("add_.", "sub_.", "mul_.")) and maker.random.random() < 0.5:
            first, second = second, first
        named = {"alpha": maker.one_of(1, 1.0, 2, -0.5)} if alpha and maker.random.random() < 0.6 else {}
        leaves = maker.leaf(first), maker.leaf(second)
        if name == "div.Tensor":
            away = leaves[1].array + np.where(leaves[1].array < 0, -0.5, 0.5)
            leaves = leaves[0], Leaf(away, leaves[1].seen, leaves[1].requires_grad)
        leaves = leaves[0], maker.cast(leaves[1])
        return FormulaCall(name, leaves, named=named)

    return make


def _unary(name: str, least: int = 0, most: int = 3) -> Make:
    return lambda maker: FormulaCall(name, (maker.leaf(maker.shape(least, most)),))


def _with_dim(name: str, *, beyond: int = 0) -> Make:
    def make(maker: _Maker) -> FormulaCall:
        shape = maker.shape(0 if beyond else 1)
        return FormulaCall(name, (maker.leaf(shape),), others=(maker.dim(shape, beyond),))

    return make


def _sum(maker: _Maker) -> FormulaCall:
    shape = maker.shape()
    count = maker.random.integers(len(shape) + 1)
    dims = [int(at) - maker.one_of(0, len(shape)) for at in maker.random.permutation(len(shape))[:count]]
    others = (maker.one_of(dims, None) if dims else maker.one_of([], None), bool(maker.random.random() < 0.5))
    return FormulaCall("sum.dim_IntList", (maker.leaf(shape),), others=others)


def _dims(name: str) -> Make:
    def make(maker: _Maker) -> FormulaCall:
        shape = maker.shape()
        dims = [int(at) - maker.one_of(0, len(shape)) for at in maker.random.permutation(len(shape))]
        if name.startswith("squeeze"):
            dims = dims[: maker.random.integers(len(dims) + 1)]
        return FormulaCall(name, (maker.leaf(shape),), others=(dims,))

    return make


def _two_dims(name: str) -> Make:
    def make(maker: _Maker) -> FormulaCall:
        shape = maker.shape(1)
        return FormulaCall(name, (maker.leaf(shape),), others=(maker.dim(shape), maker.dim(shape)))

    return make


def _viewed(name: str) -> Make:
    def make(maker: _Maker) -> FormulaCall:
        shape = maker.shape()
        count = int(np.prod(shape))
        sizes = maker.one_of([count], [-1], [1, count], [count, 1, 1], [*reversed(shape)])
        array = np.asarray(maker.random.normal(size=shape))
        return FormulaCall(name, (Leaf(array),), others=(sizes,))

    return make


def _expanded(name: str) -> Make:
    def make(maker: _Maker) -> FormulaCall:
        whole = maker.shape()
        return FormulaCall(name, (maker.leaf(maker.broadcast(whole)),), others=([*whole],))

    return make


def _selected(name: str) -> Make:
    def make(maker: _Maker) -> FormulaCall:
        shape = maker.shape(1)
        dim = maker.dim(shape)
        index = int(maker.random.integers(-shape[dim], shape[dim]))
        if name == "select_backward":
            rest = tuple(size for at, size in enumerate(shape) if at != dim % len(shape))
            return FormulaCall(name, (maker.leaf(rest),), others=([*shape], dim, index))
        if name == "select_scatter":
            rest = tuple(size for at, size in enumerate(shape) if at != dim % len(shape))
            return FormulaCall(name, (maker.leaf(shape), maker.leaf(rest)), others=(dim, index))
        return FormulaCall(name, (maker.leaf(shape),), others=(dim, index))

    return make


def _mm(maker: _Maker) -> FormulaCall:
    rows, inner, columns = (int(size) for size in maker.random.integers(1, 4, size=3))
    return FormulaCall("mm", (maker.leaf((rows, inner)), maker.leaf((inner, columns))))


def _bmm(maker: _Maker) -> FormulaCall:
    batch, rows, inner, columns = (int(size) for size in maker.random.integers(1, 4, size=4))
    return FormulaCall("bmm", (maker.leaf((batch, rows, inner)), maker.leaf((batch, inner, columns))))


def _mv(maker: _Maker) -> FormulaCall:
    rows, inner = (int(size) for size in maker.random.integers(1, 4, size=2))
    return FormulaCall("mv", (maker.leaf((rows, inner)), maker.leaf((inner,))))


def _dot(maker: _Maker) -> FormulaCall:
    size = int(maker.random.integers(1, 4))
    return FormulaCall("dot", (maker.leaf((size,)), maker.leaf((size,))))


def _stack(maker: _Maker) -> FormulaCall:
    shape = maker.shape()
    leaves = tuple(maker.leaf(shape) for _ in range(maker.random.integers(1, 4)))
    return FormulaCall("stack", leaves, as_list=True, others=(maker.dim(shape, 1),))


def _threshold(maker: _Maker) -> FormulaCall:
    shape = maker.shape()
    return FormulaCall("threshold_backward", (maker.leaf(shape), maker.leaf(shape)), others=(maker.one_of(0, 0.25),))


def _copied(maker: _Maker) -> FormulaCall:
    shape = maker.shape()
    return FormulaCall("copy_", (maker.leaf(shape), maker.cast(maker.leaf(maker.broadcast(shape)))))


MAKERS: dict[str, Make] = {
    **{f"{name}.Tensor": _pointwise(f"{name}.Tensor", alpha=True) for name in ("add", "sub", "add_", "sub_")},
    **{f"{name}.Tensor": _pointwise(f"{name}.Tensor") for name in ("mul", "mul_", "div")},
    "mul.Scalar": lambda maker: FormulaCall(
        "mul.Scalar", (maker.leaf(maker.shape()),), others=(maker.one_of(2, -1.5, 1),)
    ),
    **{name: _unary(name) for name in ("neg", "sin", "cos", "exp", "relu", "sum", "clone", "alias", "alias_copy")},
    **{name: _unary(name, 0, 2) for name in ("t", "t_copy")},
    "normal_": lambda maker: FormulaCall("normal_", (maker.leaf(maker.shape()),), others=(0.5, 0.0)),
    "_to_copy": _unary("_to_copy"),
    **{name: _with_dim(name, beyond=1) for name in ("unsqueeze", "unsqueeze_copy")},
    **{name: _with_dim(name) for name in ("squeeze.dim", "squeeze_copy.dim")},
    "sum.dim_IntList": _sum,
    **{name: _dims(name) for name in ("permute", "permute_copy", "squeeze.dims", "squeeze_copy.dims")},
    **{name: _two_dims(name) for name in ("transpose.int", "transpose_copy.int")},
    **{name: _viewed(name) for name in ("view", "_unsafe_view", "view_copy")},
    **{name: _expanded(name) for name in ("expand", "expand_copy")},
    **{name: _selected(name) for name in ("select.int", "select_copy.int", "select_backward", "select_scatter")},
    "mm": _mm,
    "mv": _mv,
    "dot": _dot,
    "bmm": _bmm,
    "stack": _stack,
    "threshold_backward": _threshold,
    "copy_": _copied,
}
"""How a call of each operator is made."""


def formula_calls(count: int, *, seed: int) -> Iterator[FormulaCall]:
    """As many calls, of one operator after the other."""
    names = sorted(MAKERS)
    for at in range(count):
        made = MAKERS[names[at % len(names)]](_Maker(seed * 1_000_003 + at))
        yield FormulaCall(made.operator, made.leaves, made.as_list, made.others, made.named, seed * 1_000_003 + at)
