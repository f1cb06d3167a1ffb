"""Operators that are made of others, and factories, which have no tensor to go by.

Source: aten/src/ATen/native/LinearAlgebra.cpp (`_matmul_impl`, `should_fold`), TensorShape.cpp (`reshape`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, is_viewable
from dispatchlab.call.tensor_keys import compute_dispatch_key
from dispatchlab.call.tensor_options import CPU, Device, DType, Layout, MemoryFormat
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab.derivatives import reshape
from dispatchlab.lab.kernels import shape_of
from dispatchlab.lab.tensor_geometry import Calls
from dispatchlab.model.key_set import DispatchKeySet


def matmul(calls: Calls) -> Callable[[Tensor, Tensor], Tensor]:
    """Multiply vectors, matrices and batches of them, with `mm` and `bmm` (`matmul`)."""

    def kernel(self: Tensor, other: Tensor) -> Tensor:
        if not self.ndim or not other.ndim:
            message = f"matmul expects vectors and matrices, but got {self.ndim} and {other.ndim} dimensions"
            raise CallError(ErrorKind.OTHER, message)
        result: Tensor
        if self.ndim == other.ndim == 1:
            result = calls("dot")(self, other)
        elif self.ndim == 2 and other.ndim == 1:
            result = calls("mv")(self, other)
        elif self.ndim == 1 and other.ndim == 2:
            result = calls("squeeze.dim")(calls("mm")(calls("unsqueeze")(self, 0), other), 0)
        elif self.ndim == other.ndim == 2:
            result = calls("mm")(self, other)
        elif _folds(calls, self, other):
            result = _folded(calls, self, other)
        else:
            result = _batched(calls, self, other)
        return result

    return kernel


def _folds(calls: Calls, self: Tensor, other: Tensor) -> bool:
    """Return whether one tensor is a matrix or a vector, and the batch of the other can be part of its rows."""
    larger, smaller = (self, other) if self.ndim >= other.ndim else (_transposed(calls, other), self)
    if smaller.ndim > 2:
        return False
    if smaller.requires_grad:
        return True
    if self.ndim == 2:
        return False
    if 0 in larger.shape:
        return True
    sizes, steps = larger.shape, larger.strides
    return all(steps[at] == steps[at + 1] * sizes[at + 1] for at in range(larger.ndim - 2))


def _folded(calls: Calls, self: Tensor, other: Tensor) -> Tensor:
    is_first = self.ndim > other.ndim
    larger = self if is_first else _transposed(calls, other)
    smaller = other if is_first else calls("t")(self) if self.ndim == 2 else self
    rows = reshape(calls, larger, [prod(larger.shape[:-1]), larger.shape[-1]])
    if smaller.ndim == 1:
        whole: Tensor = calls("_unsafe_view")(calls("mv")(rows, smaller), [*larger.shape[:-1]])
        return whole
    product = calls("mm")(rows, smaller)
    result: Tensor = calls("_unsafe_view")(product, [*larger.shape[:-1], smaller.shape[1]])
    return result if is_first else _contiguous(calls, _transposed(calls, result))


def _contiguous(calls: Calls, tensor: Tensor) -> Tensor:
    if is_viewable(tensor.shape, tensor.strides, [prod(tensor.shape)]):
        return tensor
    copied: Tensor = calls("clone")(tensor, memory_format=MemoryFormat.contiguous_format)
    return copied


def _transposed(calls: Calls, tensor: Tensor) -> Tensor:
    transposed: Tensor = calls("transpose.int")(tensor, -2, -1)
    return transposed


def _batched(calls: Calls, self: Tensor, other: Tensor) -> Tensor:
    rows = [*self.shape[-2:-1]]
    columns = [*other.shape[-1:]] if other.ndim > 1 else []
    batch = shape_of("matmul", self.shape[:-2], other.shape[: -2 if other.ndim > 1 else -1])
    first = _as_batch(calls, self, batch, [*(rows or [1]), self.shape[-1]])
    second = _as_batch(calls, other, batch, [*other.shape[-2:]])
    if columns:
        product = calls("bmm")(first, second)
    else:
        product = calls("squeeze.dim")(calls("bmm")(first, calls("unsqueeze")(second, 2)), -1)
    result: Tensor = calls("_unsafe_view")(product, [*batch, *rows, *columns])
    return result


def _as_batch(calls: Calls, tensor: Tensor, batch: Sequence[int], sizes: Sequence[int]) -> Tensor:
    expanded = calls("expand")(tensor, [*batch, *sizes])
    return reshape(calls, expanded, [prod(batch), *sizes])


def backend_select(operator: Operator) -> Callable[..., object]:
    """Return the BackendSelect kernel of a factory: redispatch to the backend key of its options."""

    def kernel(
        *sizes: list[int],
        dtype: DType | None = None,
        layout: Layout | None = None,
        device: Device | None = None,
        **others: object,
    ) -> object:
        where = CPU if device is None else device
        key = compute_dispatch_key(where.type, Layout.strided if layout is None else layout, dtype)
        keys = DispatchKeySet.of(key)
        return operator.redispatch(keys, *sizes, dtype=dtype, layout=layout, device=device, **others)

    return kernel


def randn_kernel(empty: Operator, normal_: Operator) -> Callable[..., Tensor]:
    """Return an empty tensor, filled with random numbers: `randn` for every backend."""

    def randn(size: list[int], **options: object) -> Tensor:
        made: Tensor = empty(size, **options)
        filled: Tensor = normal_(made)
        return filled

    return randn
