"""Element types as C++ has them: their names, numbers converted to them, and the elements of their vectors.

Every operation is rounded to the type. A compiler may contract `self + alpha * other` of PyTorch and round once; that
is not modelled. Source: c10/core/Scalar.h, c10/util/TypeCast.h (`overflows`), aten/src/ATen/OpMathType.h.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from dispatchlab.call.tensor_options import DType
from dispatchlab.errors import CallError, ErrorKind

Elements: TypeAlias = Any
"""The elements that a loop goes over at once: an array, or a `Vectorized` one."""
Array: TypeAlias = np.ndarray[Any, Any]
Number: TypeAlias = bool | int | float | complex

_NAMES = {
    **{DType.uint8: "Byte", DType.int8: "Char", DType.int16: "Short", DType.int32: "Int", DType.int64: "Long"},
    **{DType.float16: "Half", DType.float32: "Float", DType.float64: "Double", DType.bool: "Bool"},
    **{DType.complex64: "ComplexFloat", DType.complex128: "ComplexDouble"},
    **{DType.qint8: "QInt8", DType.quint8: "QUInt8", DType.qint32: "QInt32"},
}
_BY_NAME = {name: dtype for dtype, name in _NAMES.items()}
_CPP_NAMES = {
    **{"Byte": "uint8_t", "Char": "int8_t", "Short": "int16_t", "Int": "int", "Long": "int64_t", "Bool": "bool"},
    **{"Half": "c10::Half", "Float": "float", "Double": "double"},
    **{"ComplexFloat": "c10::complex<float>", "ComplexDouble": "c10::complex<double>"},
}
_OPMATH = {"Half": "Float"}


def scalar_kind(dtype: DType) -> str:
    """The name of an element type in C++: `Long`."""
    return _NAMES[dtype]


def not_implemented(kernel: str, dtype: DType) -> CallError:
    """What a switch over dtypes raises where a kernel has no case."""
    return CallError(ErrorKind.OTHER, f"\"{kernel}\" not implemented for '{scalar_kind(dtype)}'")


def scalar_to(number: Number, kind: str) -> Any:
    """A number as an element of a type. A negative one may wrap around in an unsigned type.

    Raises:
        CallError: of kind `other`: it does not fit.
    """
    dtype = _BY_NAME[kind].numpy
    if _overflows(number, dtype):
        message = f"value cannot be converted to type {_CPP_NAMES[kind]} without overflow"
        raise CallError(ErrorKind.OTHER, message)
    if dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            if dtype == np.float16:
                return np.float16(np.float32(number.real))  # NB: as C++ does, which rounds twice
            return dtype.type(number.real if dtype.kind == "f" else number)
    return np.array(int(number.real) % (1 << 64), np.uint64).astype(dtype)[()]


def _overflows(number: Number, dtype: np.dtype[Any]) -> bool:
    match dtype.kind:
        case "b":
            return False
        case "c":
            part = np.dtype(f"f{dtype.itemsize // 2}")
            return _overflows(number.real, part) or _overflows(number.imag, part)
        case "f":
            if isinstance(number, complex):
                return number.imag != 0 or _overflows(number.real, dtype)
            return math.isfinite(number) and abs(number) > float(np.finfo(dtype).max)
        case _:
            if isinstance(number, complex):
                return number.imag != 0 or _overflows(number.real, dtype)
            if not math.isfinite(number):
                return True
            limits = np.iinfo(dtype)
            lowest = -int(limits.max) if dtype.kind == "u" else int(limits.min)
            return not lowest <= number <= int(limits.max)


def opmath_scalar(number: Number, kind: str) -> Any:
    """A number in the type that kernels of CUDA compute elements of a type in."""
    return scalar_to(number, _OPMATH.get(kind, kind))


def opmath(elements: Array) -> Array:
    """Elements in the type that kernels of CUDA compute them in."""
    return elements.astype(np.float32) if elements.dtype == np.float16 else elements


class Vectorized:
    """The elements of a vector loop, in the place of `at::vec::Vectorized`."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values

    def __add__(self, other: Vectorized) -> Vectorized:
        return Vectorized(self.values + other.values)

    def __sub__(self, other: Vectorized) -> Vectorized:
        return Vectorized(self.values - other.values)

    def __mul__(self, other: Vectorized) -> Vectorized:
        return Vectorized(self.values * other.values)
