"""Memory of tensors over numpy arrays: make with strides, resize, overwrite, and find overlaps.

Strides count elements, as torch's do. A tensor on `meta` has a shape and counts as contiguous.
Source: aten/src/ATen/EmptyTensor.cpp, aten/src/ATen/MemoryOverlap.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dispatchlab.call.tensor import Tensor, contiguous_strides
from dispatchlab.call.tensor_options import Device, DeviceType, DType
from dispatchlab.lab.kernels import stand_in, strided_array

_META = Device(DeviceType.META)
Array: TypeAlias = np.ndarray[Any, Any]
Number: TypeAlias = bool | int | float | complex


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a new tensor, except its shape."""

    dtype: DType
    device: Device


def dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the tensor's own strides if its elements fill memory without gaps, else dense ones in the same order.

    Source: `infer_dense_strides` in aten/src/ATen/ExpandUtils.cpp.
    """
    own = tensor.strides
    step = 1
    for at in sorted((at for at, size in enumerate(tensor.shape) if size > 1), key=own.__getitem__):
        if own[at] != step:
            return strides_in_order(tensor.shape, [own])
        step *= tensor.shape[at]
    return own


def strides_in_order(shape: Sequence[int], given: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return strides without gaps, with the order of dimensions that tensors of that shape have in memory."""
    strides = [0] * len(shape)
    step = 1
    for dimension in _dimension_order(shape, given):
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


def _dimension_order(shape: Sequence[int], given: Sequence[Sequence[int]]) -> list[int]:
    """Return the order of dimensions that tensors of that shape have in memory, the fastest first.

    The first tensor with different strides for two dimensions decides; strides of 0 are ignored.
    Source: `TensorIteratorBase::reorder_dimensions`.
    """

    def compared(first: int, second: int) -> int:
        for strides in given:
            one, other = strides[first], strides[second]
            if 0 in (one, other):
                continue
            if one != other:
                return -1 if one < other else 1
            if shape[first] > shape[second]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))
    for at in range(1, len(shape)):
        current = at
        for below in range(at - 1, -1, -1):
            found = compared(order[below], order[current])
            if found > 0:
                order[below], order[current] = order[current], order[below]
                current = below
            elif found < 0:
                break
    return order


def is_on_meta(tensor: Tensor) -> bool:
    """Return whether the tensor has no elements to read."""
    return tensor.device.type is DeviceType.META


def empty_strided(
    sizes: Sequence[int], strides: Sequence[int] | None, options: Options, *, on_meta: bool = False
) -> Tensor:
    """Return a new tensor with these strides, contiguous when there are none."""
    device = _META if on_meta else options.device
    if device.type is DeviceType.META:
        return Tensor(stand_in(tuple(sizes), options.dtype), device=device, dtype=options.dtype)
    return Tensor(_array(sizes, strides, options.dtype), device=device, dtype=options.dtype)


def reset(tensor: Tensor, sizes: Sequence[int], strides: Sequence[int] | None) -> None:
    """Give the tensor another shape and new memory; tensors that shared its memory keep the old one."""
    tensor.shape = tuple(sizes)
    if not is_on_meta(tensor):
        tensor.elements = _array(sizes, strides, tensor.dtype)


def _array(sizes: Sequence[int], strides: Sequence[int] | None, dtype: DType) -> Array:
    return strided_array(tuple(sizes), strides or contiguous_strides(sizes), dtype.numpy)


def overwrite(tensor: Tensor, source: Tensor) -> None:
    """Write the elements of another tensor into this tensor."""
    if not is_on_meta(tensor):
        write(tensor, source.data)


def write(tensor: Tensor, result: np.ndarray[Any, Any]) -> None:
    """Write an array into the tensor, cast to its dtype; the imaginary part is dropped where the dtype has none."""
    target = tensor.data
    if result.dtype.kind == "c" and target.dtype.kind not in "cb":
        result = result.real
    cast_into(target, result.reshape(target.shape))


def cast_into(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """Write an array into another, as C++ casts: values for Half are rounded to float first."""
    with np.errstate(all="ignore"):
        if target.dtype == np.float16 and source.dtype == np.float64:
            source = source.astype(np.float32)
        np.copyto(target, source, casting="unsafe")
