"""The kernels of copies, and of new tensors like another one, on backends and on Meta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dispatchlab.call.layers.parts import check_overlap, like, refused, shape_of, stand_in
from dispatchlab.call.strides import is_dense
from dispatchlab.call.tensor import Array, Tensor
from dispatchlab.call.values import Device, DeviceType, DType, Layout, MemoryFormat

Fill = Callable[[tuple[int, ...], np.dtype[Any]], Array]


def _new(
    self: Tensor, shape: tuple[int, ...], fill: Fill, dtype: DType | None, layout: Layout | None, device: Device | None
) -> Tensor:
    """A tensor with these options, and those of `self` where they are None; on Meta nothing is filled."""
    kind = self.dtype if dtype is None else dtype
    where = self.device if device is None else device
    array = stand_in(shape, kind) if where.type is DeviceType.META else fill(shape, kind.numpy)
    return Tensor(array, dtype=kind, device=where, layout=self.layout if layout is None else layout)


def _filled_like(fill: Fill) -> Callable[..., Tensor]:
    def kernel(
        self: Tensor,
        *,
        dtype: DType | None = None,
        layout: Layout | None = None,
        device: Device | None = None,
        pin_memory: bool | None = None,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor:
        return _new(self, self.shape, fill, dtype, layout, device)

    return kernel


def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: Device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """`new_empty_strided`."""
    if len(size) != len(stride) or any(one < 0 for one in (*size, *stride)):
        raise refused(f"new_empty_strided got the size {list(size)} and the strides {list(stride)}")

    def fill(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        last = 0 if 0 in shape else 1 + sum((one - 1) * step for one, step in zip(shape, stride, strict=True))
        steps = [step * kind.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(np.empty(last, kind), shape, steps)

    return _new(self, tuple(size), fill, dtype, layout, device)


def _check_copied(self: Tensor, src: Tensor) -> None:
    check_overlap("copy_", self, src)
    if shape_of("copy_", self.shape, src.shape) != self.shape:
        raise refused(f"copy_ cannot write the shape {list(src.shape)} into {list(self.shape)}")


def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:  # noqa: FBT001, FBT002
    """`copy_`; of complex numbers that go into real ones, the real part."""
    if self is src:
        return self
    _check_copied(self, src)
    source = src.data.real if np.iscomplexobj(src.data) and not np.iscomplexobj(self.data) else src.data
    np.copyto(self.data, source, casting="unsafe")
    return self


def meta_copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:  # noqa: FBT001, FBT002
    """`copy_` on Meta."""
    if self is not src:
        _check_copied(self, src)
    return self


def _to_copy(
    self: Tensor,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: Device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    made = _new(self, self.shape, np.empty, dtype, layout, device)
    return made if made.device.type is DeviceType.META else copy_(made, self)


def clone(self: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """`clone`; it lies in memory as what it copies, where that has no gaps and the usual order is not asked for."""
    keeps = memory_format is not MemoryFormat.contiguous_format and is_dense(self.shape, self.strides)
    return like(np.array(self.data, order="K" if keeps else "C", copy=True), self, self.dtype)


def meta_clone(self: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """`clone` on Meta."""
    return like(stand_in(self.shape, self.dtype), self, self.dtype)


COPYING: dict[str, Callable[..., Tensor]] = {
    "ones_like": _filled_like(np.ones),
    "zeros_like": _filled_like(np.zeros),
    "new_empty_strided": new_empty_strided,
    "copy_": copy_,
    "_to_copy": _to_copy,
    "clone": clone,
}
"""The kernels that CPU and CUDA share, by operator."""

META_COPYING: dict[str, Callable[..., Tensor]] = {**COPYING, "copy_": meta_copy_, "clone": meta_clone}
"""The kernels of Meta, by operator."""
