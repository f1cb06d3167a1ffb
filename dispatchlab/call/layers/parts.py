"""What the kernels share: results like an argument, shapes that go together, and how they refuse."""

from __future__ import annotations

import numpy as np

from dispatchlab.call.tensor import Array, Tensor
from dispatchlab.call.values import DType
from dispatchlab.errors import CallError, ErrorKind


def refused(message: str) -> CallError:
    """The error of a kernel that cannot do what it was asked."""
    return CallError(ErrorKind.OTHER, message)


def like(array: Array, like: Tensor, dtype: DType | None = None) -> Tensor:
    """A result on the device and in the layout of an argument."""
    return Tensor(np.asarray(array), device=like.device, layout=like.layout, dtype=dtype)


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
