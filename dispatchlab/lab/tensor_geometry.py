"""The geometry of a tensor, kept without the tensor: sizes, strides, offset, and copies that lie in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self, TypeAlias

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, is_dense
from dispatchlab.call.tensor_options import Device, DType, Layout, MemoryFormat

Calls: TypeAlias = Callable[[str], Operator]


class Geometry(NamedTuple):
    """Shape, strides in elements, and options."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    layout: Layout
    device: Device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Return the geometry of a tensor."""
        return cls(tensor.shape, tensor.strides, tensor.dtype, tensor.layout, tensor.device)


def empty_like(calls: Calls, gradient: Tensor, geometry: Geometry) -> Tensor:
    """Return a new tensor of the kind of `gradient`, with memory that is not written yet."""
    made: Tensor = calls("new_empty_strided")(
        *(gradient, [*geometry.shape], [*geometry.strides]),
        **{name: getattr(geometry, name) for name in ("dtype", "layout", "device")},
    )
    return made


def copied_like(calls: Calls, gradient: Tensor, geometry: Geometry) -> Tensor:
    """Return a copy with the strides of the geometry, if these have no gaps.

    Source: torch/csrc/autograd/utils/grad_layout_contract.h (`clone_obey_contract`).
    """
    copied: Tensor
    if is_dense(geometry.shape, geometry.strides):
        copied = calls("copy_")(empty_like(calls, gradient, geometry), gradient)
    else:
        copied = calls("clone")(gradient, memory_format=MemoryFormat.contiguous_format)
    return copied
