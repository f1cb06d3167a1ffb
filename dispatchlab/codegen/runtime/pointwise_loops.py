"""Loops of pointwise kernels over the elements of a TensorIterator: scalar and vector loops of CPU, functors of CUDA.

A vector loop takes as many elements as fit two vectors at a time, and leaves what remains to the scalar loop.
Source: aten/src/ATen/native/cpu/Loops.h, aten/src/ATen/native/cuda/Loops.cuh,
aten/src/ATen/native/DispatchStub.h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dispatchlab.codegen.runtime.element_types import Elements, Vectorized
from dispatchlab.codegen.runtime.tensor_iterator import TensorIteratorBase
from dispatchlab.errors import CallError, ErrorKind

VECTOR_BYTES = 32
"""How wide a vector is: that of AVX2."""


class DispatchStub:
    """A kernel of each device, behind one name."""

    __slots__ = ("_kernels", "name")

    def __init__(self, name: str, kernels: Mapping[str, Callable[..., None]]) -> None:
        self.name, self._kernels = name, dict(kernels)

    def __call__(self, op: TensorIteratorBase, *args: Any) -> None:
        device = op.common_device.type.name
        kernel = self._kernels.get(device)
        if kernel is None:
            raise CallError(ErrorKind.OTHER, f"DispatchStub: missing kernel for {device.lower()}")
        kernel(op, *args)


def cpu_kernel(op: TensorIteratorBase, scalar: Callable[..., Elements]) -> None:
    """Compute every element with a scalar loop."""
    with np.errstate(all="ignore"):
        op.store(np.asarray(scalar(*op.inputs)))


def cpu_kernel_vec(op: TensorIteratorBase, scalar: Callable[..., Elements], vector: Callable[..., Vectorized]) -> None:
    """Compute elements with a vector loop, and those that fill no two vectors with a scalar loop."""
    rows = [array.reshape(-1) for array in op.inputs]
    width = 2 * VECTOR_BYTES // op.common_dtype.numpy.itemsize
    taken = len(rows[0]) // width * width
    result = np.empty(rows[0].shape, op.common_dtype.numpy)
    with np.errstate(all="ignore"):
        if taken:
            result[:taken] = vector(*(Vectorized(row[:taken]) for row in rows)).values
        if taken < len(result):
            result[taken:] = scalar(*(row[taken:] for row in rows))
    op.store(result.reshape(op.shape))


def gpu_kernel(op: TensorIteratorBase, functor: Callable[..., Elements]) -> None:
    """Call a functor for every element; what it returns is rounded to the common dtype."""
    with np.errstate(all="ignore"):
        op.store(np.broadcast_to(np.asarray(functor(*op.inputs)).astype(op.common_dtype.numpy), op.shape))
