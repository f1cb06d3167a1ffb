"""Meta and impl of pointwise operators.

Source: aten/src/ATen/native/BinaryOps.cpp, UnaryOps.cpp, TensorCompare.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import DType, result_dtype
from dispatchlab.codegen.runtime.memory import Array, Number
from dispatchlab.codegen.runtime.tensor_iterator import TensorIteratorBase
from dispatchlab.lab.kernels import check_alpha, check_sub, refused

Op: TypeAlias = TensorIteratorBase


def _wide(elements: Array) -> Array:
    """Return the elements in the dtype that kernels compute in: half precision in single."""
    return elements.astype(np.float32) if elements.dtype == np.float16 else elements


def _scaled(op: Op, other: Array, alpha: Number) -> Array:
    if alpha == 1:
        return other
    kind = other.dtype if op.common_dtype.category >= 2 or op.common_dtype is DType.bool else op.common_dtype.numpy
    return np.asarray(other * np.asarray(alpha).astype(kind))


# -- add, sub, mul, div, eq


def meta_add_Tensor(op: Op, self: Tensor, other: Tensor, alpha: Number) -> None:
    op.build(self, other)
    check_alpha(op.common_dtype, alpha)


def meta_sub_Tensor(op: Op, self: Tensor, other: Tensor, alpha: Number) -> None:
    check_sub(self, other)
    meta_add_Tensor(op, self, other, alpha)


def _scaling_impl(function: Callable[[Array, Array], Array]) -> Callable[[Op, Tensor, Tensor, Number, Tensor], None]:
    def impl(op: Op, self: Tensor, other: Tensor, alpha: Number, out: Tensor) -> None:
        first, second = map(_wide, op.inputs)
        with np.errstate(all="ignore"):
            op.store(function(first, _scaled(op, second, alpha)))

    return impl


ufunc_add_CPU = ufunc_add_CUDA = _scaling_impl(np.add)
sub_out = _scaling_impl(np.subtract)


def _impl(function: Callable[..., Array]) -> Callable[..., None]:
    """Return the impl of a function that takes only the inputs."""

    def impl(op: Op, *arguments: Tensor) -> None:
        with np.errstate(all="ignore"):
            op.store(function(*op.inputs))

    return impl


mul_out, div_out, eq_Tensor_out = map(_impl, (np.multiply, np.true_divide, np.equal))


def meta_mul_Tensor(op: Op, self: Tensor, other: Tensor) -> None:
    op.build(self, other)


def meta_div_Tensor(op: Op, self: Tensor, other: Tensor) -> None:
    op.build(self, other, to_float=True)


def meta_eq_Tensor(op: Op, self: Tensor, other: Tensor) -> None:
    op.build(self, other, dtype=DType.bool, checks_cast=False)


# -- unary


def meta_neg(op: Op, self: Tensor) -> None:
    if self.dtype is DType.bool:
        raise refused(
            "Negation, the `-` operator, on a bool tensor is not supported. "
            "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    op.build(self, same_dtype=True)


def _float_meta(op: Op, self: Tensor) -> None:
    op.build(self, to_float=True)


meta_sin = meta_cos = meta_exp = _float_meta
neg_out, sin_out, cos_out, exp_out = map(_impl, (np.negative, np.sin, np.cos, np.exp))


def meta_clamp(op: Op, self: Tensor, min: Number | None, max: Number | None) -> None:
    if min is None and max is None:
        raise refused("torch.clamp: At least one of 'min' or 'max' must not be None")
    bounds = [one for one in (min, max) if one is not None]
    if self.dtype.category == 3:
        raise refused("clamp is not supported for complex types")
    dtype = result_dtype([(self.dtype, self.ndim), *bounds])
    if dtype.category == 3:
        raise refused("clamp is not supported for complex types")
    if op.maybe_get_output(0) is self and dtype is not self.dtype:
        raise refused(f"result type {dtype} can't be cast to the desired output type {self.dtype}")
    op.build(self, common=dtype, same_dtype=True)


def clamp_out(op: Op, self: Tensor, min: Number | None, max: Number | None, out: Tensor) -> None:
    (result,) = op.inputs
    if min is not None:
        result = np.maximum(result, np.asarray(min).astype(result.dtype))
    if max is not None:
        result = np.minimum(result, np.asarray(max).astype(result.dtype))
    op.store(result)
