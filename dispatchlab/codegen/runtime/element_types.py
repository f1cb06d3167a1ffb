"""Element types as C++ has them: their names, numbers converted to them, and the arithmetic of their vectors.

Source: c10/core/Scalar.h, c10/util/TypeCast.h (`overflows`), aten/src/ATen/OpMathType.h,
aten/src/ATen/cpu/vec/vec256, aten/src/ATen/native/ufunc/add.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
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
    """The elements of a vector loop, in the place of `at::vec::Vectorized`; arithmetic with them is that of vectors."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values

    def __add__(self, other: Vectorized) -> Vectorized:
        return Vectorized(self.values + other.values)

    def __sub__(self, other: Vectorized) -> Vectorized:
        return Vectorized(self.values - other.values)

    def __mul__(self, other: Vectorized) -> Vectorized:
        return Vectorized(_complex_product(self.values, other.values, _two_roundings))


# Note [Multiply and add]
# ~~~~~~~~~~~~~~~~~~~~~~~
# `self + alpha * other` is rounded once or twice, and both are found in one kernel. PyTorch compiles its loops for AVX2
# with -mfma, and the compiler contracts the expression: single elements of float and double are rounded once, and so
# are vectors, where `fmadd` asks for it. A scalar loop over Half rounds the product and the sum, as each operator of
# c10::Half returns one; a vector of Half is converted once and rounded once. The products of single complex numbers are
# contracted in double, and vectors of complex numbers multiply with two roundings; the sum comes after that. Without
# AVX2 nothing is contracted, and that is not modelled. Nor are loops of which the compiler makes several versions, each
# contracted in its own way: where `other` is one number for all elements, it takes the product out of the loop that
# ends a vector loop, and so rounds it; and single complex numbers of float are contracted in some loops and not in
# others, by how their elements lie in memory.


def fmadd(first: Vectorized, second: Vectorized, addend: Vectorized) -> Vectorized:
    """`first * second + addend` of vectors. See Note [Multiply and add]."""
    one, other, rest = first.values, second.values, addend.values
    kind = np.result_type(one)
    if kind == np.float16:
        wide = one.astype(np.float32) * np.float32(other) + rest.astype(np.float32)
        return Vectorized(wide.astype(np.float16))
    if kind.kind == "f":
        return Vectorized(fused(one, other, rest))
    return Vectorized(_complex_product(one, other, _two_roundings) + rest)


def contracted(addend: Elements, first: Elements, second: Elements) -> Elements:
    """`addend + first * second` of single elements, as a compiler contracts it. See Note [Multiply and add]."""
    kind = np.result_type(addend)
    if kind.kind == "f" and kind != np.float16:
        return fused(first, second, addend)
    return addend + _complex_product(first, second, fused if kind == np.complex128 else _two_roundings)


def _two_roundings(first: Any, second: Any, addend: Any) -> Any:
    return first * second + addend


def _complex_product(first: Any, second: Any, multiply_add: Callable[[Any, Any, Any], Any]) -> Any:
    if np.result_type(first).kind != "c":
        return first * second
    real = multiply_add(first.real, second.real, -(first.imag * second.imag))
    imaginary = multiply_add(first.real, second.imag, first.imag * second.real)
    made = np.empty(np.broadcast_shapes(np.shape(first), np.shape(second)), np.result_type(first))
    made.real, made.imag = real, imaginary
    return made


def fused(first: Any, second: Any, addend: Any) -> Any:
    """`first * second + addend` of float32 or float64, rounded once, as an instruction of the processor has it."""
    plain = first * second + addend
    if np.all(np.equal(first, 1)) or np.all(np.equal(second, 1)):
        return plain
    if np.result_type(plain) == np.float32:
        exact = np.float64(first) * np.float64(second)
        return np.asarray(_rounded_to_odd(exact, np.float64(addend))).astype(np.float32)
    one, other, rest = np.broadcast_arrays(first, second, addend)
    return _fused_double(one, other, rest, plain)


def _two_sum(first: Any, second: Any) -> tuple[Any, Any]:
    """A sum and what rounding took from it. Source: Knuth, The Art of Computer Programming 2, 4.2.2."""
    total = first + second
    part = total - first
    return total, (first - (total - part)) + (second - part)


def _rounded_to_odd(first: Any, second: Any) -> Any:
    """A sum of float64; where it is not exact, the neighbour whose last bit is 1, which can be rounded once more."""
    total, rest = _two_sum(first, second)
    total = np.asarray(total)
    even = (total.view(np.int64) & 1) == 0
    toward = np.where(rest > 0, np.inf, -np.inf)
    inexact = np.isfinite(total) & np.isfinite(rest) & (rest != 0) & even
    return np.where(inexact, np.nextafter(total, toward), total)


_SAFE = (2.0**-400, 2.0**400)


def _fused_double(first: Array, second: Array, addend: Array, plain: Array) -> Array:
    """Source: Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008."""
    high, low = _two_product(first, second)
    upper, lower = _two_sum(addend, low)
    total, rest = _two_sum(high, upper)
    result = total + _rounded_to_odd(lower, rest)
    finite = np.isfinite(first) & np.isfinite(second) & np.isfinite(addend) & (first != 0) & (second != 0)
    safe = np.ones(plain.shape, bool)
    for one in (first, second, addend):
        size = np.abs(one)
        safe &= (size > _SAFE[0]) & (size < _SAFE[1])
    result = np.where(finite & safe, result, plain)
    for at in zip(*np.nonzero(finite & ~safe), strict=True):
        exact = Fraction(float(first[at])) * Fraction(float(second[at])) + Fraction(float(addend[at]))
        try:
            result[at] = float(exact) if exact else plain[at]
        except OverflowError:
            result[at] = math.inf if exact > 0 else -math.inf
    return result


def _two_product(first: Any, second: Any) -> tuple[Any, Any]:
    """A product and what rounding took from it. Source: Dekker, A floating-point technique, 1971."""
    product = first * second
    one, other = _halves(first), _halves(second)
    rest = ((one[0] * other[0] - product) + one[0] * other[1] + one[1] * other[0]) + one[1] * other[1]
    return product, rest


def _halves(number: Any) -> tuple[Any, Any]:
    scaled = number * 134217729.0  # 2 ** 27 + 1
    high = scaled - (scaled - number)
    return high, number - high
