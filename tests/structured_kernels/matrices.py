"""Meta and impl of matrix products.

Source: aten/src/ATen/native/LinearAlgebra.cpp (`ADDMM_META`, `TORCH_META_FUNC(mm)`).
"""

from __future__ import annotations

import numpy as np

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.codegen.runtime.memory import Array, Number, Options, write
from dispatchlab.codegen.runtime.tensor_iterator import MetaBase, check_overlap
from dispatchlab.lab.kernels import refused


def _checked_shape(first: Tensor, second: Tensor) -> tuple[int, int]:
    if first.shape[1] != second.shape[0]:
        message = f"mat1 and mat2 shapes cannot be multiplied ({first.shape[0]}x{first.shape[1]} and "
        raise refused(f"{message}{second.shape[0]}x{second.shape[1]})")
    return first.shape[0], second.shape[1]


def _product(first: Tensor, second: Tensor) -> Array:
    if first.dtype is not second.dtype:
        raise refused(f"expected m1 and m2 to have the same dtype, but got: {first.dtype} != {second.dtype}")
    if first.dtype is DType.bool and first.data.size and second.data.size:
        raise refused(f"\"addmm_impl_cpu_\" not implemented for '{first.dtype}'")
    wide = np.float32 if first.dtype is DType.float16 else first.dtype.numpy
    return np.asarray(first.data.astype(wide) @ second.data.astype(wide))


def meta_mm(op: MetaBase, self: Tensor, mat2: Tensor) -> None:
    if self.ndim != 2:
        raise refused("self must be a matrix")
    if mat2.ndim != 2:
        raise refused("mat2 must be a matrix")
    op.set_output_raw_strided(0, _checked_shape(self, mat2), None, Options(self.dtype, self.device))


def mm_out_cpu(op: MetaBase, self: Tensor, mat2: Tensor, out: Tensor) -> None:
    write(out, _product(self, mat2))


def meta_addmm(op: MetaBase, self: Tensor, mat1: Tensor, mat2: Tensor, beta: Number, alpha: Number) -> None:
    if self.dtype is not mat2.dtype:
        raise refused(f"self and mat2 must have the same dtype, but got {self.dtype} and {mat2.dtype}")
    if mat1.dtype is not mat2.dtype:
        raise refused(f"mat1 and mat2 must have the same dtype, but got {mat1.dtype} and {mat2.dtype}")
    for name, matrix in (("mat1", mat1), ("mat2", mat2)):
        if matrix.ndim != 2:
            raise refused(f"{name} must be a matrix, got {matrix.ndim}-D tensor")
    op.set_output_raw_strided(0, _checked_shape(mat1, mat2), None, Options(mat1.dtype, mat1.device))


def addmm_out_cpu(
    op: MetaBase, self: Tensor, mat1: Tensor, mat2: Tensor, beta: Number, alpha: Number, out: Tensor
) -> None:
    shape = out.shape
    ahead = len(shape) - self.ndim
    if ahead < 0 or any(size not in (1, shape[ahead + at]) for at, size in enumerate(self.shape)):
        message = f"expand: the requested shape {list(shape)} does not fit the tensor of shape {list(self.shape)}"
        raise refused(message)
    check_overlap(out, ())
    product = _product(mat1, mat2)
    kind = product.dtype
    result = product * np.asarray(alpha).astype(kind) if alpha != 1 else product
    if beta != 0:
        added = self.data.astype(kind)
        result = result + (added * np.asarray(beta).astype(kind) if beta != 1 else added)
    write(out, result)
