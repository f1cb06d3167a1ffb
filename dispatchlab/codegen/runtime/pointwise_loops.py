"""Loops of pointwise kernels over the elements of a TensorIterator: scalar and vector loops of CPU, functors of CUDA.

A vector loop takes as many elements as fit two vectors at a time, and leaves what remains to the scalar loop. It is
chosen for each run along the fastest dimension, where all operands are contiguous, or all but one input that stands
still. Source: aten/src/ATen/native/cpu/Loops.h, aten/src/ATen/native/cuda/Loops.cuh,
aten/src/ATen/native/DispatchStub.h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dispatchlab.codegen.runtime.element_types import Array, Elements, Vectorized
from dispatchlab.codegen.runtime.memory import dimension_order
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
    order, run, strides = _runs(op)
    width = 2 * VECTOR_BYTES // op.common_dtype.numpy.itemsize
    taken = run // width * width if _takes_vectors(strides, op.common_dtype.numpy.itemsize) else 0
    rows = [array.transpose(order).reshape(-1, run) for array in op.inputs]
    result = np.empty(rows[0].shape, op.common_dtype.numpy)
    with np.errstate(all="ignore"):
        if taken:
            result[:, :taken] = vector(*(Vectorized(row[:, :taken]) for row in rows)).values
        if taken < run:
            result[:, taken:] = scalar(*(row[:, taken:] for row in rows))
    shape = [op.shape[at] for at in order]
    op.store(result.reshape(shape).transpose(np.argsort(order)) if order else result.reshape(()))


def gpu_kernel(op: TensorIteratorBase, functor: Callable[..., Elements]) -> None:
    """Call a functor for every element; what it returns is rounded to the common dtype."""
    with np.errstate(all="ignore"):
        op.store(np.broadcast_to(np.asarray(functor(*op.inputs)).astype(op.common_dtype.numpy), op.shape))


def _runs(op: TensorIteratorBase) -> tuple[list[int], int, list[int]]:
    """The dimensions, the slowest first; how long a run along the fastest is, and how far apart its elements are."""
    operands: list[Array] = [op.output_elements, *op.inputs]
    fastest_first = dimension_order(op.shape, [one.strides for one in operands])
    if 0 in op.shape:
        return fastest_first[::-1], 1, [0 for _ in operands]
    run, strides = 1, [0 for _ in operands]
    for at in fastest_first:
        steps = [one.strides[at] for one in operands]
        if run == 1:
            strides = steps
        elif op.shape[at] != 1 and any(run * own != step for own, step in zip(strides, steps, strict=True)):
            break
        run *= op.shape[at]
    return fastest_first[::-1], run, strides


def _takes_vectors(strides: list[int], itemsize: int) -> bool:
    still = [at for at, step in enumerate(strides) if step != itemsize]
    return not still or (len(still) == 1 and still[0] > 0 and strides[still[0]] == 0)
