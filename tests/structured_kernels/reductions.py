"""Meta and impl of reductions, scans and sorts.

Source: aten/src/ATen/native/ReduceOps.cpp, ReduceOpsUtils.h, TensorCompare.cpp, Sorting.cpp.
"""

# ruff: noqa: FBT001 - meta and impl take the arguments of the schema, in its order

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.codegen.runtime.memory import Array, Options, dense_strides, write
from dispatchlab.codegen.runtime.tensor_iterator import MetaBase, check_overlap
from dispatchlab.lab.kernels import reduced, refused, sum_dtype


def _wrapped(dim: int, rank: int) -> int:
    """Return the dimension counted from 0; a tensor without dimensions counts as a tensor with one."""
    low, high = -max(rank, 1), max(rank, 1) - 1
    if not low <= dim <= high:
        raise refused(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return dim + max(rank, 1) if dim < 0 else dim


def _dims(dims: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the dimensions to take away; none given means all."""
    if not dims:
        return tuple(range(rank))
    found: list[int] = []
    for dim in dims:
        at = _wrapped(dim, rank)
        if at in found:
            raise refused(f"dim {at} appears multiple times in the list of dims")
        found.append(at)
    return tuple(at for at in sorted(found) if at < rank)


def _write(out: Tensor, result: Array) -> None:
    write(out, np.asarray(result))


def _wide(array: Array, dtype: DType) -> Array:
    """Return the elements in the dtype of the result, half precision in single."""
    if dtype.category < 3 and array.dtype.kind == "c":
        array = array.real
    return array.astype(np.float32 if dtype is DType.float16 else dtype.numpy)


# -- sum


def meta_sum_dim_IntList(
    op: MetaBase,
    self: Tensor,
    dim: Sequence[int] | None,
    keepdim: bool,
    dtype: DType | None,
) -> None:
    given = op.maybe_get_output(0)
    kind = sum_dtype(self, dtype if dtype is not None or given is None else given.dtype)
    shape = reduced(self.shape, _dims(dim, self.ndim), keepdim=keepdim)
    op.set_output_raw_strided(0, shape, None, Options(DType(kind), self.device))


def sum_out(
    op: MetaBase,
    self: Tensor,
    dim: Sequence[int] | None,
    keepdim: bool,
    dtype: DType | None,
    out: Tensor,
) -> None:
    array = _wide(self.data, out.dtype)
    _write(out, array.sum(axis=_dims(dim, self.ndim), dtype=array.dtype))


# -- cumsum


def meta_cumsum(op: MetaBase, self: Tensor, dim: int, dtype: DType | None) -> None:
    _wrapped(dim, self.ndim)
    given = op.maybe_get_output(0)
    kind = sum_dtype(self, dtype if dtype is not None or given is None else given.dtype)
    op.set_output_raw_strided(0, self.shape, None, Options(DType(kind), self.device))


def cumsum_out(op: MetaBase, self: Tensor, dim: int, dtype: DType | None, out: Tensor) -> None:
    check_overlap(out, ())
    array = _wide(self.data, out.dtype)
    if out.dtype is DType.bool and self.ndim and array.size:
        raise refused(f"\"cumsum_out_cpu\" not implemented for '{out.dtype}'")
    _write(out, np.cumsum(array, axis=_wrapped(dim, self.ndim), dtype=array.dtype) if self.ndim else array)


# -- max with its index


def meta_max_dim(op: MetaBase, self: Tensor, dim: int, keepdim: bool) -> tuple[int]:
    at = _wrapped(dim, self.ndim)
    if self.ndim and self.shape[at] == 0:
        raise refused(f"max(): Expected reduction dim {at} to have non-zero size.")
    if self.dtype.category == 3:
        raise refused("max(): does not support complex input")
    shape = reduced(self.shape, _dims([at], self.ndim), keepdim=keepdim)
    op.set_output_raw_strided(0, shape, None, Options(self.dtype, self.device))
    op.set_output_raw_strided(1, shape, None, Options(DType.int64, self.device))
    return (at,)


def max_out(op: MetaBase, self: Tensor, dim: int, keepdim: bool, max: Tensor, max_values: Tensor) -> None:
    array = self.data
    if not self.ndim:
        _write(max, array)
        _write(max_values, np.zeros((), np.int64))
    elif max.data.size:
        at = np.argmax(array, axis=dim)
        _write(max, np.take_along_axis(array, np.expand_dims(at, dim), axis=dim))
        _write(max_values, at)


# -- sort


def meta_sort_stable(op: MetaBase, self: Tensor, stable: bool | None, dim: int, descending: bool) -> None:
    _wrapped(dim, self.ndim)
    if self.dtype.category == 3:
        raise refused("Sort does not support complex dtypes on CPU")
    strides = dense_strides(self)
    op.set_output_raw_strided(0, self.shape, strides, Options(self.dtype, self.device))
    op.set_output_raw_strided(1, self.shape, strides, Options(DType.int64, self.device))


def sort_stable_out(
    op: MetaBase,
    self: Tensor,
    stable: bool | None,
    dim: int,
    descending: bool,
    values: Tensor,
    indices: Tensor,
) -> None:
    if not self.ndim:
        np.copyto(values.data, self.data)
        np.copyto(indices.data, 0)
        return
    axis = _wrapped(dim, self.ndim)
    array = self.data
    if descending:
        # NB: stable both ways, so what is turned round before and after is the order of equal elements
        backwards = np.flip(np.argsort(np.flip(array, axis), axis=axis, kind="stable"), axis)
        order = array.shape[axis] - 1 - backwards
    else:
        order = np.argsort(array, axis=axis, kind="stable")
    np.copyto(values.data, np.take_along_axis(array, order, axis))
    np.copyto(indices.data, order)
