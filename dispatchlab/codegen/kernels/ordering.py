"""Meta and impl of sorting, which has two outputs.

Source: aten/src/ATen/native/Sorting.cpp (`TORCH_META_FUNC2(sort, stable)`).
"""

# ruff: noqa: FBT001 - meta and impl take what the schema says, in its order

from __future__ import annotations

import numpy as np

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.values import DType
from dispatchlab.codegen.kernels.pointwise import refused
from dispatchlab.codegen.kernels.reductions import wrapped
from dispatchlab.codegen.memory import Options, dense_strides
from dispatchlab.codegen.tensor_iterator import MetaBase


def meta_sort_stable(op: MetaBase, self: Tensor, stable: bool | None, dim: int, descending: bool) -> None:
    wrapped(dim, self.dim)
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
    if not self.dim:
        np.copyto(values.data, self.data)
        np.copyto(indices.data, 0)
        return
    axis = wrapped(dim, self.dim)
    array = self.data
    if descending:
        # NB: stable both ways, so what is turned round before and after is the order of equal elements
        backwards = np.flip(np.argsort(np.flip(array, axis), axis=axis, kind="stable"), axis)
        order = array.shape[axis] - 1 - backwards
    else:
        order = np.argsort(array, axis=axis, kind="stable")
    np.copyto(values.data, np.take_along_axis(array, order, axis))
    np.copyto(indices.data, order)
