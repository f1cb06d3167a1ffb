"""What the kernels share: results like an argument, shapes that go together, and how they refuse."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dispatchlab.call.strides import is_dense
from dispatchlab.call.tensor import Array, Tensor
from dispatchlab.call.values import DType
from dispatchlab.errors import CallError, ErrorKind


def refused(message: str) -> CallError:
    """The error of a kernel that cannot do what it was asked."""
    return CallError(ErrorKind.OTHER, message)


def like(array: Array, like: Tensor, dtype: DType | None = None) -> Tensor:
    """A result on the device and in the layout of an argument."""
    return Tensor(np.asarray(array), device=like.device, layout=like.layout, dtype=dtype)


def as_dtype(tensor: Tensor, dtype: DType) -> Array:
    """The elements as another dtype, in the order in which they lie in memory; in the usual one, when expanded."""
    order: Literal["K", "C"] = "K" if is_dense(tensor.shape, tensor.strides) else "C"
    return tensor.data.astype(dtype.numpy, order=order)


def shape_of(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that the arguments of an operator are broadcast to.

    Raises:
        CallError: they do not go together.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise refused(
            f"{name} got shapes {' and '.join(map(str, map(list, shapes)))}, which do not go together"
        ) from None


def stand_in(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array of that shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype.numpy), shape)


def check_overlap(name: str, written: Tensor, read: Tensor | None = None) -> None:
    """Refuse to write where one place in memory is several elements, or what is read is a part of it.

    Raises:
        CallError: it is one that was expanded, or it overlaps `read` and is not the same elements.

    Source: aten/src/ATen/MemoryOverlap.cpp.
    """
    if any(size > 1 and step == 0 for size, step in zip(written.shape, written.strides, strict=True)):
        raise refused(f"{name} would write several elements of one place in memory, as expand makes them: clone first")
    if read is not None and read is not written and _overlap_in_part(written, read):
        raise refused(f"{name} would write elements that it reads at other places of the same memory: clone one first")


def _overlap_in_part(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors without gaps share memory, unless they are the same elements in the same order."""
    if any(each._data is None or not is_dense(each.shape, each.strides) for each in (one, other)):
        return False
    first, second = _bytes_of(one.data), _bytes_of(other.data)
    if first == second:
        return one.strides != other.strides
    return first[0] < second[1] and second[0] < first[1]


def _bytes_of(array: Array) -> tuple[int, int]:
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes
