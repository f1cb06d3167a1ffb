"""Lazy elements: tensors that represent the conjugate or the negative of their elements, or zeros.

The fallbacks of Conjugate, Negative and ZeroTensor hand such a tensor on as a clone of it. So `clone`, `copy_`, the
views and what makes an empty tensor let these keys through, and their kernels know what a tensor stands for.
Source: aten/src/ATen/ConjugateFallback.cpp, aten/src/ATen/native/MathBitsFallback.h.
"""

from __future__ import annotations

import numpy as np

from dispatchlab.call.tensor import Array, Tensor
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

LAZY_KEYS = (DispatchKey.Conjugate, DispatchKey.Negative, DispatchKey.ZeroTensor)

_CONJUGATE, _NEGATIVE, _ZERO = (DispatchKeySet.of(key).bits for key in LAZY_KEYS)
LAZY_BITS = _CONJUGATE | _NEGATIVE | _ZERO

SEEN_THROUGH = ("empty.memory_format", "empty_strided", "copy_", "clone", "_unsafe_view")
"""The operators besides the views at which PyTorch lets all three keys through."""


def meant(tensor: Tensor) -> Array:
    """Return the represented elements of a tensor; its own array if it has them."""
    return tensor.data if not tensor.key_bits & LAZY_BITS else _applied(tensor.key_bits, tensor.data)


def held(tensor: Tensor, elements: Array) -> Array:
    """Return the elements to store in a tensor so that it represents these elements."""
    return elements if not tensor.key_bits & LAZY_BITS else _applied(tensor.key_bits, elements)


def _applied(bits: int, elements: Array) -> Array:
    if bits & _ZERO:
        return np.zeros_like(elements)
    if bits & _CONJUGATE:
        elements = np.conj(elements)
    return np.negative(elements) if bits & _NEGATIVE else elements
