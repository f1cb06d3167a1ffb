"""Tensor options: dtype, device, layout and memory format.

The names and numbers are torch's (c10/core/ScalarType.h, Layout.h, DeviceType.h); a number is what the default of a
schema keeps.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from dispatchlab._short_repr import WordEnum, member_repr
from dispatchlab.errors import CallError, ErrorKind, did_you_mean


class _Named(IntEnum):
    """Values that are shown by their names."""

    __repr__ = member_repr

    def __str__(self) -> str:
        return self.name


class DType(_Named):
    """The type of a tensor's elements.

    >>> from dispatchlab import tensor
    >>> tensor([1.0]).dtype
    DType.float32
    """

    uint8 = 0
    int8 = 1
    int16 = 2
    int32 = 3
    int64 = 4
    float16 = 5
    float32 = 6
    float64 = 7
    complex64 = 9
    complex128 = 10
    bool = 11
    qint8 = 12
    quint8 = 13
    qint32 = 14
    bfloat16 = 15

    @property
    def numpy(self) -> np.dtype[Any]:
        """The form in which elements are kept."""
        return _NUMPY[self]

    @property
    def category(self) -> int:
        """0 for bool, 1 for integers, 2 for floating point, 3 for complex numbers."""
        return _CATEGORY[self.numpy.kind]

    @property
    def is_quantized(self) -> builtins.bool:
        """True when this is one of the three quantized types."""
        return self in (DType.qint8, DType.quint8, DType.qint32)

    @property
    def is_differentiable(self) -> builtins.bool:
        """True when a tensor of this type can require gradients."""
        return self.category >= 2


_NUMPY: dict[DType, np.dtype[Any]] = {
    member: np.dtype(member.name.lstrip("q") if member.is_quantized else member.name)
    for member in DType
    if member is not DType.bfloat16
}
_NUMPY[DType.bfloat16] = np.dtype(np.float32)  # which numpy lacks: its numbers are kept as the float32 that they are
_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_OF_NUMPY = {member.numpy: member for member in DType if not member.is_quantized and member is not DType.bfloat16}
DEFAULT_DTYPE = DType.float32
_SCALAR_TYPES: dict[type, DType] = {
    **{bool: DType.bool, int: DType.int64, float: DEFAULT_DTYPE, complex: DType.complex64},
}


def dtype_of(array: np.ndarray[Any, Any]) -> DType:
    """Return the dtype of an array.

    Raises:
        CallError: of kind `wrong_type`, when tensors have no such elements.
    """
    found = _OF_NUMPY.get(array.dtype)
    if found is None:
        known = ", ".join(map(str, DType))
        message = f"tensors have no elements of numpy's {array.dtype}: convert the array to one of {known}"
        raise CallError(ErrorKind.WRONG_TYPE, message, {"dtype": str(array.dtype)})
    return found


def stored(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Return an array as tensors of a dtype keep it; the same array if that is its form already."""
    kept = array if array.dtype == dtype.numpy else array.astype(dtype.numpy)
    if dtype is not DType.bfloat16 or not array.size:
        return kept
    bits = np.ascontiguousarray(kept).view(np.uint32)
    if not (bits & 0xFFFF).any():
        return kept
    # To the nearest of the upper 16 bits, to the even one of two; what is not a number stays so.
    nearest = ((bits + (0x7FFF + (bits >> 16 & 1))) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(kept), np.float32(np.nan), nearest.reshape(kept.shape))


def promoted(first: DType, second: DType) -> DType:
    """Return the dtype for both: the higher category wins; equal categories are combined as in numpy."""
    if first == second:
        return first
    if first.category == second.category:
        return _OF_NUMPY[np.promote_types(first.numpy, second.numpy)]
    high, low = (first, second) if first.category > second.category else (second, first)
    if high.category == 3 and low.category == 2:
        return _OF_NUMPY[np.promote_types(first.numpy, second.numpy)]
    return high


def result_dtype(operands: Iterable[tuple[DType, int] | float | complex]) -> DType:
    """Return the dtype of a pointwise result: tensors as (dtype, number of dimensions), and Python numbers.

    Tensors with dimensions come first; those without, and then numbers, count only when their category is higher.
    Source: aten/src/ATen/native/TypeProperties.cpp (`result_type`).
    """
    groups: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, tuple):
            dtype, rank = operand[0], 0 if operand[1] else 1
        else:
            dtype, rank = _SCALAR_TYPES[type(operand)], 2
        held = groups[rank]
        groups[rank] = dtype if held is None else promoted(held, dtype)
    dimensional, without, numbers = groups
    result = _combined(dimensional, _combined(without, numbers))
    return DEFAULT_DTYPE if result is None else result


def _combined(higher: DType | None, lower: DType | None) -> DType | None:
    """`combine_categories`: a lower rank adds its category, and a higher one keeps its width if it has one."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.category == 3:
        return higher
    if higher.category == 2:
        return promoted(higher, DType.complex64) if lower.category == 3 else higher
    return promoted(higher, lower) if higher == DType.bool or lower.category >= 2 else higher


class Layout(_Named):
    """The layout of a tensor in memory; only a label, because every kernel here works on dense arrays.

    >>> from dispatchlab import tensor
    >>> tensor([1.0]).layout
    Layout.strided
    """

    strided = 0
    sparse = 1
    sparse_csr = 2
    mkldnn = 3
    sparse_csc = 4
    sparse_bsr = 5
    sparse_bsc = 6
    jagged = 7


class MemoryFormat(_Named):
    """The order of dimensions in memory."""

    contiguous_format = 0
    preserve_format = 1
    channels_last = 2
    channels_last_3d = 3


class DeviceType(WordEnum):
    """The kinds of devices; only labels, every kernel runs on numpy."""

    CPU = "cpu"
    CUDA = "cuda"
    HIP = "hip"
    XLA = "xla"
    MPS = "mps"
    IPU = "ipu"
    XPU = "xpu"
    HPU = "hpu"
    VE = "ve"
    LAZY = "lazy"
    MTIA = "mtia"
    MAIA = "maia"
    PRIVATEUSE1 = "privateuseone"
    META = "meta"
    FPGA = "fpga"
    VULKAN = "vulkan"
    METAL = "metal"


@dataclass(frozen=True, slots=True)
class Device:
    """A device: its type and, if there are several, its number.

    >>> from dispatchlab.call import Device
    >>> Device.parse("cuda:1").index
    1
    """

    type: DeviceType
    index: int | None = None

    @classmethod
    def parse(cls, text: str) -> Device:
        """`cuda` or `cuda:1` as a device.

        Raises:
            CallError: of kind `wrong_type`, with the nearest name.
        """
        name, colon, index = text.partition(":")
        if name not in tuple(DeviceType) or (colon and not is_device_index(index)):
            known = [str(one) for one in DeviceType]
            message = f"{text!r} is not a device: expected a type and perhaps a number, such as cuda:1"
            message += did_you_mean(name, known)
            raise CallError(ErrorKind.WRONG_TYPE, message, {"device": text})
        return cls(DeviceType(name), int(index) if colon else None)

    def __str__(self) -> str:
        return str(self.type) if self.index is None else f"{self.type}:{self.index}"


def is_device_index(text: str) -> bool:
    """Return whether a text is the number of a device, which PyTorch keeps in 7 bits."""
    return re.fullmatch("0|[1-9][0-9]{0,2}", text) is not None and int(text) < 128


CPU = Device(DeviceType.CPU)


def device_of(device: Device | str) -> Device:
    """Return a device from a device or a text."""
    return Device.parse(device) if isinstance(device, str) else device
