"""Overridable functions that are composed of operators: `unique`, `tensordot` and `broadcast_tensors`.

Source: torch/functional.py, where they are also in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from dispatchlab.call.tensor import Tensor
from dispatchlab.lab.derivatives import reshape
from dispatchlab.lab.kernels import refused, shape_of
from dispatchlab.lab.lab import Lab
from dispatchlab.model.schema_parser import parse_schema

Function = Callable[..., Any]
Wrap = Callable[[Function, str], Function]


def inner_functions(lab: Lab, wrap: Wrap, unique_dim: Function, unique2: Function) -> dict[str, Function]:
    """Return the C functions that Python functions call; handlers of Python functions see these calls when they go on.

    Args:
        lab: whose operators they call.
        wrap: makes a function overridable, with this name.
        unique_dim: the function of that operator.
        unique2: the implementation of `_unique2`.
    """

    def broadcast_tensors(tensors: Any) -> Any:
        shape = shape_of("broadcast_tensors", *(tensor.shape for tensor in tensors))
        return tuple([tensor if tensor.shape == shape else lab("expand")(tensor, list(shape)) for tensor in tensors])

    def tensordot(a: Any, b: Any, dims_self: Any, dims_other: Any) -> Any:
        return _contracted(lab, a, b, dims_self, dims_other)

    def rsub(self: Any, other: Any) -> Any:
        return lab("sub.Tensor")(other, self)

    for function, schema in (
        (broadcast_tensors, "broadcast_tensors(Tensor[] tensors) -> Tensor[]"),
        (tensordot, "tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor"),
    ):
        function.__dict__["schema"] = parse_schema(f"aten::{schema}")
    return {
        "broadcast_tensors": wrap(broadcast_tensors, "broadcast_tensors"),
        "tensordot": wrap(tensordot, "tensordot"),
        "_unique2": wrap(unique2, "_unique2"),
        "unique_dim": unique_dim,
        "rsub": wrap(rsub, "rsub"),
    }


def composed_functions(lab: Lab, inner: Mapping[str, Function]) -> dict[str, Function]:
    """Return the functions in Python that call no handlers, by name.

    Args:
        lab: whose operators they call.
        inner: the functions that they call; see `inner_functions`.
    """

    def unique(
        input: Any,
        sorted: bool = True,  # noqa: FBT001, FBT002 - upstream's parameters
        return_inverse: bool = False,  # noqa: FBT001, FBT002
        return_counts: bool = False,  # noqa: FBT001, FBT002
        dim: int | None = None,
    ) -> Any:
        """Return each element once, in order; `return_inverse` adds positions, `return_counts` adds counts."""
        named = {"sorted": sorted, "return_inverse": return_inverse, "return_counts": return_counts}
        results = inner["_unique2"](input, **named) if dim is None else inner["unique_dim"](input, dim, **named)
        output, inverse, counts = results
        kept = [output, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
        return tuple(kept) if len(kept) > 1 else output

    def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
        """Return the sum of products over some dimensions: the last and first ones, or the named dimensions."""
        if out is not None:
            raise refused("tensordot writes no result into another tensor here: leave out=None")
        return inner["tensordot"](a, b, *_dims(dims))

    def broadcast_tensors(*tensors: Any) -> Any:
        """Return the tensors, each expanded to their common shape."""
        return inner["broadcast_tensors"](tensors)

    return {one.__name__: one for one in (unique, tensordot, broadcast_tensors)}


def adopted(tensor: Any, own: type[Tensor]) -> Any:
    """Return a plain tensor as the class with methods, which has no other slots; return other values unchanged."""
    if type(tensor) is Tensor:
        tensor.__class__ = own
    return tensor


def _dims(dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, int):
        if dims < 0:
            raise refused(f"tensordot expects a number of dimensions from 0, but got {dims}")
        return [*range(-dims, 0)], [*range(dims)]
    first, second = dims
    return [*first], [*second]


def _contracted(lab: Lab, a: Tensor, b: Tensor, dims_a: Sequence[int], dims_b: Sequence[int]) -> Tensor:
    ours, theirs = [dim % a.ndim for dim in dims_a], [dim % b.ndim for dim in dims_b]
    if [a.shape[dim] for dim in ours] != [b.shape[dim] for dim in theirs]:
        raise refused(
            f"tensordot got {list(a.shape)} and {list(b.shape)}, which differ in dimensions {dims_a}, {dims_b}"
        )
    rows = [dim for dim in range(a.ndim) if dim not in ours]
    columns = [dim for dim in range(b.ndim) if dim not in theirs]
    inner = prod(a.shape[dim] for dim in ours)
    left = reshape(lab, lab("permute")(a, [*rows, *ours]), [prod(a.shape[dim] for dim in rows), inner])
    right = reshape(lab, lab("permute")(b, [*theirs, *columns]), [inner, prod(b.shape[dim] for dim in columns)])
    shape = [*(a.shape[dim] for dim in rows), *(b.shape[dim] for dim in columns)]
    return reshape(lab, lab("mm")(left, right), shape)
