"""Backend kernels: numpy on the arrays of CPU and CUDA tensors, and shapes alone on Meta.

A kernel knows nothing of autograd, of views or of versions; other keys see to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np

from dispatchlab.call.local_key_set import excluded
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Array, Generator, Tensor, contiguous_strides, is_dense
from dispatchlab.call.tensor_keys import AUTOGRAD_KEYS
from dispatchlab.call.tensor_options import (
    CPU,
    DEFAULT_DTYPE,
    Device,
    DeviceType,
    DType,
    Layout,
    MemoryFormat,
    promoted,
    result_dtype,
    stored,
)
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.lazy_elements import LAZY_BITS, held, meant
from dispatchlab.model.keys import DispatchKey


def refused(message: str) -> CallError:
    """The error of a kernel that cannot do what it was asked."""
    return CallError(ErrorKind.OTHER, message)


def like(array: Array, like: Tensor, dtype: DType | None = None) -> Tensor:
    """A result on the device and in the layout of an argument."""
    return Tensor(np.asarray(array), device=like.device, layout=like.layout, dtype=dtype)


def as_dtype(tensor: Tensor, dtype: DType) -> Array:
    """The elements as another dtype, in the order in which they lie in memory; in the usual one, when expanded."""
    order: Literal["K", "C"] = "K" if is_dense(tensor.shape, tensor.strides) else "C"
    return stored(tensor.data.astype(dtype.numpy, order=order), dtype)


def shape_of(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that the arguments of an operator are broadcast to.

    Raises:
        CallError: they do not go together.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise refused(
            f"{name} got shapes {' and '.join(map(str, map(list, shapes)))}, which cannot be broadcast"
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
    if written.elements is None:
        return  # on Meta there is no memory that two elements could share
    if any(size > 1 and step == 0 for size, step in zip(written.shape, written.strides, strict=True)):
        raise refused(f"{name} would write several elements at one memory location, as expand makes them: clone first")
    if read is not None and read is not written and _overlap_in_part(written, read):
        raise refused(f"{name} would write memory that it reads as other elements: clone one first")


def _overlap_in_part(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors without gaps share memory, unless they are the same elements in the same order."""
    if any(each.elements is None or not is_dense(each.shape, each.strides) for each in (one, other)):
        return False
    first, second = _bytes_of(one.data), _bytes_of(other.data)
    if first == second:
        return one.strides != other.strides
    return first[0] < second[1] and second[0] < first[1]


def _bytes_of(array: Array) -> tuple[int, int]:
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes


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


def _strided(stride: Sequence[int]) -> Fill:
    """Memory for a shape with these strides, which nobody has written."""

    def fill(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        last = 0 if 0 in shape else 1 + sum((one - 1) * step for one, step in zip(shape, stride, strict=True))
        steps = [step * kind.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(np.empty(last, kind), shape, steps)

    return fill


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

    fill = _strided(stride)
    return _new(self, tuple(size), fill, dtype, layout, device)


def _check_copied(self: Tensor, src: Tensor) -> None:
    check_overlap("copy_", self, src)
    if shape_of("copy_", self.shape, src.shape) != self.shape:
        raise refused(f"copy_ cannot write the shape {list(src.shape)} into {list(self.shape)}")


def _kept(array: Array, dtype: DType) -> Array:
    """An array that is copied to memory of a dtype: numpy converts it, but to the one that numpy lacks."""
    return stored(array, dtype) if dtype is DType.bfloat16 else array


def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:  # noqa: FBT001, FBT002
    """`copy_` for every backend; of complex numbers that go into real ones, the real part; on Meta, a check."""
    if self is src:
        return self
    _check_copied(self, src)
    if self.elements is None:
        return self
    source = meant(src)
    if np.iscomplexobj(source) and not np.iscomplexobj(self.data):
        source = source.real
    np.copyto(self.data, _kept(held(self, source), self.dtype), casting="unsafe")
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


def clone_kernel(empty_strided: Operator, copy_: Operator) -> Callable[..., Tensor]:
    """`clone` for every backend: a new tensor, and `copy_`.

    It lies in memory as what it copies, where that has no gaps and the usual order is not asked for.
    """

    def clone(self: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
        keeps = memory_format is not MemoryFormat.contiguous_format and is_dense(self.shape, self.strides)
        strides = self.strides if keeps else contiguous_strides(self.shape)
        options = {"dtype": self.dtype, "layout": self.layout, "device": self.device}
        copied: Tensor = copy_(empty_strided([*self.shape], [*strides], **options), self)
        return copied

    return clone


COPYING: dict[str, Callable[..., Tensor]] = {
    "ones_like": _filled_like(np.ones),
    "zeros_like": _filled_like(np.zeros),
    "new_empty_strided": new_empty_strided,
    "_to_copy": _to_copy,
}
"""The kernels that CPU and CUDA share, by operator."""


def zeros_kernel(empty: Operator) -> Callable[..., Tensor]:
    """`zeros` for every backend: an empty tensor, filled, which counts as a write."""

    def zeros(size: list[int], **options: object) -> Tensor:
        made: Tensor = empty(size, **options)
        if made.elements is not None:
            made.elements[...] = 0
        # Filling is a call of an operator that writes, below which a handler of `zeros` may have excluded all of that.
        if not made.is_inference and not excluded().has(DispatchKey.ADInplaceOrView):
            made.version_counter.value += 1
        return made

    return zeros


Size = Sequence[int]
Number = int | float | complex

_random = Generator()


def manual_seed(seed: int) -> None:
    """Start the generator that is used when a call gives none over.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.layers import manual_seed
    >>> lab = Lab()
    >>> manual_seed(1)
    >>> first = lab.randn([2]).numpy().tolist()
    >>> manual_seed(1)
    >>> lab.randn([2]).numpy().tolist() == first
    True
    """
    _random.manual_seed(seed)


def _together(name: str, first: Tensor, second: Tensor) -> Device:
    """The device of a result; a tensor without dimensions may come from the CPU."""
    if first.device != second.device:
        for one, other in ((first, second), (second, first)):
            if one.dim == 0 and one.device == CPU:
                return other.device
        raise refused(f"{name} got tensors on {first.device} and {second.device}: move them to one device")
    return first.device


# -- pointwise

_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda first, second: first + second,
    "sub": lambda first, second: first - second,
    "mul": lambda first, second: first * second,
}


def _binary_dtype(self: Tensor, other: Tensor, alpha: Number) -> DType:
    dtype = result_dtype([one.item() if one.is_wrapped_number else (one.dtype, one.dim) for one in (self, other)])
    if isinstance(alpha, float | complex) and dtype.category < 2:
        raise refused(f"alpha={alpha} is not an integer, and the result is of {dtype}")
    return dtype


def _binary(name: str) -> Callable[..., Tensor]:
    compute = _BINARY[name]

    def kernel(self: Tensor, other: Tensor, *, alpha: Number = 1) -> Tensor:
        device = _together(name, self, other)
        shape_of(name, self.shape, other.shape)
        dtype = _binary_dtype(self, other, alpha)
        second = as_dtype(other, dtype)
        array = compute(as_dtype(self, dtype), second if alpha == 1 else second * np.asarray(alpha, dtype.numpy))
        return Tensor(np.asarray(array), device=device, dtype=dtype, layout=self.layout)

    return kernel


def _binary_in_place(name: str) -> Callable[..., Tensor]:
    compute = _binary(name)

    def kernel(self: Tensor, other: Tensor, **alpha: Number) -> Tensor:
        _check_in_place(name, self, other)
        self.data[...] = stored(compute(self, other, **alpha).data, self.dtype)
        return self

    return kernel


def _check_in_place(name: str, self: Tensor, other: Tensor) -> None:
    check_overlap(f"{name}_", self, other)
    if shape_of(name, self.shape, other.shape) != self.shape:
        raise refused(f"{name}_ cannot write a result of shape {list(other.shape)} into {list(self.shape)}")
    dtype = _binary_dtype(self, other, 1)
    if dtype.category > self.dtype.category:
        raise refused(f"{name}_ cannot write a result of {dtype} into {self.dtype}")


def _meta_binary(name: str) -> Callable[..., Tensor]:
    def kernel(self: Tensor, other: Tensor, *, alpha: Number = 1) -> Tensor:
        shape = shape_of(name, self.shape, other.shape)
        return like(stand_in(shape, dtype := _binary_dtype(self, other, alpha)), self, dtype)

    return kernel


def _meta_binary_in_place(name: str) -> Callable[..., Tensor]:
    def kernel(self: Tensor, other: Tensor, **alpha: Number) -> Tensor:
        _check_in_place(name, self, other)
        return self

    return kernel


def mul_scalar(self: Tensor, other: Number) -> Tensor:
    """`mul.Scalar`."""
    dtype = result_dtype([(self.dtype, self.dim), other])
    return like(as_dtype(self, dtype) * np.asarray(other, dtype.numpy), self, dtype)


def meta_mul_scalar(self: Tensor, other: Number) -> Tensor:
    """`mul.Scalar` on Meta."""
    dtype = result_dtype([(self.dtype, self.dim), other])
    return like(stand_in(self.shape, dtype), self, dtype)


def _unary(compute: Callable[[Array], Array], *, floating: bool) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def dtype_of(self: Tensor) -> DType:
        if compute is np.negative and self.dtype is DType.bool:
            raise refused("neg cannot negate bool: use logical operators")
        return DEFAULT_DTYPE if floating and self.dtype.category < 2 else self.dtype

    def kernel(self: Tensor) -> Tensor:
        dtype = dtype_of(self)
        return like(compute(as_dtype(self, dtype)), self, dtype)

    def meta(self: Tensor) -> Tensor:
        dtype = dtype_of(self)
        return like(stand_in(self.shape, dtype), self, dtype)

    return kernel, meta


def threshold_backward(grad_output: Tensor, self: Tensor, threshold: Number) -> Tensor:
    """The gradient where `self` is above the threshold, and 0 elsewhere."""
    return like(np.where(self.data > threshold, grad_output.data, 0), self, grad_output.dtype)


def meta_threshold_backward(grad_output: Tensor, self: Tensor, threshold: Number) -> Tensor:
    """`threshold_backward` on Meta."""
    return like(stand_in(self.shape, grad_output.dtype), self, grad_output.dtype)


def _true_dtype(self: Tensor, other: Tensor) -> DType:
    dtype = _binary_dtype(self, other, 1)
    return DEFAULT_DTYPE if dtype.category < 2 else dtype


def div(self: Tensor, other: Tensor) -> Tensor:
    """`div.Tensor`: true division, of integers, too."""
    device = _together("div", self, other)
    shape_of("div", self.shape, other.shape)
    dtype = _true_dtype(self, other)
    with np.errstate(divide="ignore", invalid="ignore"):
        array = as_dtype(self, dtype) / as_dtype(other, dtype)
    return Tensor(np.asarray(array), device=device, dtype=dtype, layout=self.layout)


def meta_div(self: Tensor, other: Tensor) -> Tensor:
    """`div.Tensor` on Meta."""
    dtype = _true_dtype(self, other)
    return like(stand_in(shape_of("div", self.shape, other.shape), dtype), self, dtype)


_COMPARED: dict[str, Callable[[Array, Any], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compared(name: str) -> dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]]:
    """The kernels that compare with a tensor and with a number, elsewhere and on Meta, by overload."""
    compute = _COMPARED[name]

    def with_tensor(self: Tensor, other: Tensor) -> Tensor:
        device = _together(name, self, other)
        shape_of(name, self.shape, other.shape)
        dtype = _binary_dtype(self, other, 1)
        array = compute(as_dtype(self, dtype), as_dtype(other, dtype))
        return Tensor(np.asarray(array), device=device, dtype=DType.bool, layout=self.layout)

    def with_number(self: Tensor, other: Number) -> Tensor:
        dtype = result_dtype([(self.dtype, self.dim), other])
        return like(compute(as_dtype(self, dtype), np.asarray(other, dtype.numpy)), self, DType.bool)

    def meta_with_tensor(self: Tensor, other: Tensor) -> Tensor:
        return like(stand_in(shape_of(name, self.shape, other.shape), DType.bool), self, DType.bool)

    def meta_with_number(self: Tensor, other: Number) -> Tensor:
        return like(stand_in(self.shape, DType.bool), self, DType.bool)

    return {f"{name}.Tensor": (with_tensor, meta_with_tensor), f"{name}.Scalar": (with_number, meta_with_number)}


# -- matrices and sums


def _mm_shape(self: Tensor, mat2: Tensor) -> tuple[int, ...]:
    if self.dim != 2 or mat2.dim != 2 or self.shape[1] != mat2.shape[0] or self.dtype != mat2.dtype:
        found = f"{self.dtype}{list(self.shape)} and {mat2.dtype}{list(mat2.shape)}"
        raise refused(f"mm expects two matrices of one dtype and of shapes [n, m] and [m, p], but got {found}")
    return (self.shape[0], mat2.shape[1])


def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """`mm`."""
    _together("mm", self, mat2)
    _mm_shape(self, mat2)
    return like(self.data @ mat2.data, self, self.dtype)


def meta_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """`mm` on Meta."""
    return like(stand_in(_mm_shape(self, mat2), self.dtype), self)


def _mv_shape(self: Tensor, vec: Tensor) -> tuple[int, ...]:
    if self.dim != 2 or vec.dim != 1 or self.shape[1] != vec.shape[0] or self.dtype != vec.dtype:
        found = f"{self.dtype}{list(self.shape)} and {vec.dtype}{list(vec.shape)}"
        raise refused(f"mv expects a matrix and a vector of one dtype and of shapes [n, m] and [m], but got {found}")
    return self.shape[:1]


def mv(self: Tensor, vec: Tensor) -> Tensor:
    """`mv`."""
    _together("mv", self, vec)
    _mv_shape(self, vec)
    return like(self.data @ vec.data, self, self.dtype)


def meta_mv(self: Tensor, vec: Tensor) -> Tensor:
    """`mv` on Meta."""
    return like(stand_in(_mv_shape(self, vec), self.dtype), self)


def _check_dot(self: Tensor, tensor: Tensor) -> None:
    if self.dim != 1 or tensor.dim != 1 or self.shape != tensor.shape or self.dtype != tensor.dtype:
        found = f"{self.dtype}{list(self.shape)} and {tensor.dtype}{list(tensor.shape)}"
        raise refused(f"dot expects two vectors of one dtype and size, but got {found}")


def dot(self: Tensor, tensor: Tensor) -> Tensor:
    """`dot`."""
    _together("dot", self, tensor)
    _check_dot(self, tensor)
    return like(np.asarray(self.data @ tensor.data), self, self.dtype)


def meta_dot(self: Tensor, tensor: Tensor) -> Tensor:
    """`dot` on Meta."""
    _check_dot(self, tensor)
    return like(stand_in((), self.dtype), self)


def _bmm_shape(self: Tensor, mat2: Tensor) -> tuple[int, ...]:
    if self.dim != 3 or mat2.dim != 3 or self.shape[::2] != (mat2.shape[0], mat2.shape[1]) or self.dtype != mat2.dtype:
        found = f"{self.dtype}{list(self.shape)} and {mat2.dtype}{list(mat2.shape)}"
        raise refused(f"bmm expects batches of one dtype and of shapes [b, n, m] and [b, m, p], but got {found}")
    return (*self.shape[:2], mat2.shape[2])


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """`bmm`."""
    _together("bmm", self, mat2)
    _bmm_shape(self, mat2)
    return like(self.data @ mat2.data, self, self.dtype)


def meta_bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """`bmm` on Meta."""
    return like(stand_in(_bmm_shape(self, mat2), self.dtype), self)


def _sum_dtype(self: Tensor, dtype: DType | None) -> DType:
    return dtype if dtype is not None else DType.int64 if self.dtype.category < 2 else self.dtype


def sum_all(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """`sum`."""
    kind = _sum_dtype(self, dtype)
    return like(self.data.astype(kind.numpy).sum(dtype=kind.numpy), self, kind)


def meta_sum_all(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """`sum` on Meta."""
    return like(stand_in((), _sum_dtype(self, dtype)), self)


def _axes(self: Tensor, dim: Size | None) -> tuple[int, ...]:
    return tuple(range(self.dim)) if not dim else tuple(one % self.dim if self.dim else 0 for one in dim)


def sum_dim(self: Tensor, dim: Size | None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:  # noqa: FBT001, FBT002
    """`sum.dim_IntList`."""
    kind = _sum_dtype(self, dtype)
    axes = _axes(self, dim) if self.dim else ()
    return like(self.data.astype(kind.numpy).sum(axis=axes, dtype=kind.numpy, keepdims=keepdim), self, kind)


def meta_sum_dim(self: Tensor, dim: Size | None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:  # noqa: FBT001, FBT002
    """`sum.dim_IntList` on Meta."""
    axes = _axes(self, dim) if self.dim else ()
    sizes = ((1 if at in axes else size) for at, size in enumerate(self.shape) if keepdim or at not in axes)
    return like(stand_in(tuple(sizes), _sum_dtype(self, dtype)), self)


# -- new tensors


def _empty(device: str) -> Callable[..., Tensor]:
    def kernel(
        size: Size,
        *,
        dtype: DType | None = None,
        layout: Layout | None = None,
        device: Device | None = None,
        pin_memory: bool | None = None,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor:
        kind = DEFAULT_DTYPE if dtype is None else dtype
        where = Device.parse(home) if device is None else device
        array = stand_in(tuple(size), kind) if home == "meta" else np.empty(tuple(size), kind.numpy)
        return Tensor(array, dtype=kind, device=where, layout=Layout.strided if layout is None else layout)

    home = device
    return kernel


def _empty_strided(device: str) -> Callable[..., Tensor]:
    def kernel(
        size: Size,
        stride: Size,
        *,
        dtype: DType | None = None,
        layout: Layout | None = None,
        device: Device | None = None,
        pin_memory: bool | None = None,
    ) -> Tensor:
        if len(size) != len(stride) or any(one < 0 for one in (*size, *stride)):
            raise refused(f"empty_strided got the size {list(size)} and the strides {list(stride)}")
        kind = DEFAULT_DTYPE if dtype is None else dtype
        where = Device.parse(home) if device is None else device
        array = stand_in(tuple(size), kind) if home == "meta" else _strided(stride)(tuple(size), kind.numpy)
        return Tensor(array, dtype=kind, device=where, layout=Layout.strided if layout is None else layout)

    home = device
    return kernel


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """`normal_`."""
    _check_normal(self)
    source = _random if generator is None else generator
    self.data[...] = stored(source.random.normal(mean, std, self.shape), self.dtype)
    return self


def meta_normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """`normal_` on Meta."""
    _check_normal(self)
    return self


def _check_normal(self: Tensor) -> None:
    if self.dtype.category < 2:
        raise refused(f"normal_ draws floating point numbers, and cannot write them to {self.dtype}")
    check_overlap("normal_", self)


def stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """`stack`."""
    _stack_shape(tensors)
    return like(
        np.stack([one.data for one in tensors], dim), tensors[0], reduce(promoted, (one.dtype for one in tensors))
    )


def meta_stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """`stack` on Meta."""
    shape = [*_stack_shape(tensors)]
    shape.insert(dim if dim >= 0 else dim + len(shape) + 1, len(tensors))
    dtype = reduce(promoted, (one.dtype for one in tensors))
    return like(stand_in(tuple(shape), dtype), tensors[0], dtype)


def _stack_shape(tensors: list[Tensor]) -> tuple[int, ...]:
    shapes = sorted({one.shape for one in tensors})
    if len(shapes) != 1:
        raise refused(
            f"stack expects one or more tensors of one shape, but got {', '.join(map(str, shapes)) or 'none'}"
        )
    return shapes[0]


def select_backward(grad_output: Tensor, input_sizes: Size, dim: int, index: int) -> Tensor:
    """Zeros with the gradient at one index."""
    array = np.zeros(tuple(input_sizes), grad_output.dtype.numpy)
    array[_at(len(array.shape), dim, index)] = grad_output.data
    return like(array, grad_output, grad_output.dtype)


def meta_select_backward(grad_output: Tensor, input_sizes: Size, dim: int, index: int) -> Tensor:
    """`select_backward` on Meta."""
    return like(stand_in(tuple(input_sizes), grad_output.dtype), grad_output)


def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with other elements at one index."""
    _check_scattered(self, src, dim, index)
    array = self.data.copy()
    array[_at(self.dim, dim, index)] = src.data
    return like(array, self, self.dtype)


def meta_select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """`select_scatter` on Meta."""
    _check_scattered(self, src, dim, index)
    return like(stand_in(self.shape, self.dtype), self)


def _check_scattered(self: Tensor, src: Tensor, dim: int, index: int) -> None:
    shape = _select(stand_in(self.shape, self.dtype), dim, index).shape
    if shape != src.shape:
        raise refused(f"select_scatter expects a source of shape {list(shape)}, but got {list(src.shape)}")


# -- several results


def _found_unique(self: Tensor, axis: int | None, *, inverse: bool, counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    found, back, numbers = np.unique(self.data, return_inverse=True, return_counts=True, axis=axis)
    nothing = np.empty(0, np.int64)
    back = back.reshape(self.shape if axis is None else -1)
    return (
        like(found, self, self.dtype),
        like(back.astype(np.int64) if inverse else nothing, self),
        like(numbers.astype(np.int64) if counts else nothing, self),
    )


def unique2(
    self: Tensor,
    sorted: bool = True,  # noqa: FBT001, FBT002 - the names are those of the schema
    return_inverse: bool = False,  # noqa: FBT001, FBT002
    return_counts: bool = False,  # noqa: FBT001, FBT002
) -> tuple[Tensor, Tensor, Tensor]:
    """`_unique2`: each element once, in order; where each was, and how often."""
    return _found_unique(self, None, inverse=return_inverse, counts=return_counts)


def unique_dim(
    self: Tensor,
    dim: int,
    sorted: bool = True,  # noqa: FBT001, FBT002
    return_inverse: bool = False,  # noqa: FBT001, FBT002
    return_counts: bool = False,  # noqa: FBT001, FBT002
) -> tuple[Tensor, Tensor, Tensor]:
    """`unique_dim`: the same of the slices of a dimension."""
    return _found_unique(self, dim % max(self.dim, 1), inverse=return_inverse, counts=return_counts)


def lu_factor_ex(
    A: Tensor,
    *,
    pivot: bool = True,
    check_errors: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """`linalg_lu_factor_ex`: L and U in one matrix, the rows that were swapped, from 1, and the first zero pivot.

    Raises:
        CallError: it got no matrices of floating point numbers, or, with `check_errors`, a pivot is zero.
    """
    if A.dim < 2 or A.dtype.category < 2:
        raise refused(f"linalg_lu_factor_ex expects matrices of floating point numbers, not {A.dtype}{list(A.shape)}")
    *batch, rows, columns = A.shape
    count = min(rows, columns)
    both = np.array(A.data).reshape(-1, rows, columns)
    pivots = np.empty((len(both), count), np.int32)
    infos = np.zeros(len(both), np.int32)
    for matrix, swapped, at in zip(both, pivots, range(len(both)), strict=True):
        infos[at] = _factor(matrix, swapped, pivot=pivot)
    if check_errors and infos.any():
        raise refused(f"linalg_lu_factor_ex found a zero pivot, number {infos[infos > 0][0]}")
    return (
        like(both.reshape(A.shape), A, A.dtype),
        like(pivots.reshape((*batch, count)), A),
        like(infos.reshape(batch), A),
    )


def _factor(matrix: Array, pivots: Array, *, pivot: bool) -> int:
    """Replace a matrix by its L and U; the number of the first pivot that is zero, from 1, or 0."""
    first = 0
    for at in range(len(pivots)):
        largest = at + int(np.argmax(np.abs(matrix[at:, at]))) if pivot else at
        pivots[at] = largest + 1
        matrix[[at, largest]] = matrix[[largest, at]]
        if matrix[at, at] == 0:
            first = first or at + 1
            continue
        matrix[at + 1 :, at] /= matrix[at, at]
        matrix[at + 1 :, at + 1 :] -= np.outer(matrix[at + 1 :, at], matrix[at, at + 1 :])
    return first


# -- views; on Meta the same is done to a stand-in


def _at(rank: int, dim: int, index: int) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % rank), index)


def _view(array: Array, size: Size) -> Array:
    try:
        viewed = array.reshape(tuple(size))
    except ValueError:
        raise refused(f"view cannot make {list(size)} of the shape {list(array.shape)}") from None
    if array.size and not np.may_share_memory(viewed, array):
        raise refused(f"view cannot make {list(size)} of a tensor that is not contiguous: clone it first")
    return viewed


def _select(array: Array, dim: int, index: int) -> Array:
    if not array.ndim or not -array.ndim <= dim < array.ndim or not -array.shape[dim] <= index < array.shape[dim]:
        raise refused(f"select cannot take index {index} of dimension {dim} of the shape {list(array.shape)}")
    selected: Array = array[(*_at(array.ndim, dim, index), ...)]
    return selected


def _expand(array: Array, size: Size, *, implicit: bool = False) -> Array:
    missing = len(size) - array.ndim
    wanted = [array.shape[at - missing] if one == -1 else one for at, one in enumerate(size)]
    shape_of("expand", array.shape, tuple(wanted))
    # Not what `broadcast_to` gives: that cannot be written, not even where every element has a place of its own.
    return np.lib.stride_tricks.as_strided(array, wanted, np.broadcast_to(array, wanted).strides)


def _unsqueeze(array: Array, dim: int) -> Array:
    if not -array.ndim - 1 <= dim <= array.ndim:
        raise refused(f"unsqueeze cannot put a dimension at {dim} of the shape {list(array.shape)}")
    return np.expand_dims(array, dim)


def _squeeze(array: Array, dim: int) -> Array:
    if not -array.ndim <= dim < max(array.ndim, 1):
        raise refused(f"squeeze cannot take dimension {dim} of the shape {list(array.shape)}")
    return np.squeeze(array, dim) if array.ndim and array.shape[dim] == 1 else array[...]


def _transposed(array: Array) -> Array:
    if array.ndim > 2:
        raise refused(f"t expects at most two dimensions, but got the shape {list(array.shape)}")
    return array.T


def _permuted(array: Array, dims: Size) -> Array:
    if sorted(dim % max(array.ndim, 1) for dim in dims) != [*range(array.ndim)]:
        raise refused(f"permute got the dimensions {list(dims)} of the shape {list(array.shape)}")
    return np.transpose(array, dims)


def _swapped(array: Array, dim0: int, dim1: int) -> Array:
    rank = max(array.ndim, 1)
    if not -rank <= dim0 < rank or not -rank <= dim1 < rank:
        raise refused(f"transpose cannot swap the dimensions {dim0} and {dim1} of the shape {list(array.shape)}")
    return np.swapaxes(array, dim0, dim1) if array.ndim else array


def _squeezed(array: Array, dims: Size) -> Array:
    rank = max(array.ndim, 1)
    if any(not -rank <= dim < rank for dim in dims):
        raise refused(f"squeeze cannot take the dimensions {list(dims)} of the shape {list(array.shape)}")
    return np.squeeze(array, tuple(dim % rank for dim in dims if array.ndim and array.shape[dim] == 1))


_VIEWS: dict[str, Callable[..., Array]] = {
    "transpose.int": _swapped,
    "squeeze.dims": _squeezed,
    "alias": lambda array: array,
    "permute": _permuted,
    "detach": lambda array: array,
    "view": _view,
    "_unsafe_view": _view,
    "t": _transposed,
    "expand": _expand,
    "unsqueeze": _unsqueeze,
    "squeeze.dim": _squeeze,
    "select.int": _select,
}


def _viewing(compute: Callable[..., Array]) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def kernel(self: Tensor, *arguments: object, **named: object) -> Tensor:
        return _as_recorded(like(compute(self.data, *arguments, **named), self, self.dtype), self)

    def meta(self: Tensor, *arguments: object, **named: object) -> Tensor:
        whole = np.zeros(self.shape, DType.uint8.numpy)  # a stand-in of its own strides, for views ask for them
        view = like(stand_in(compute(whole, *arguments, **named).shape, self.dtype), self, self.dtype)
        return _as_recorded(view, self)

    return kernel, meta


_RECORDING = AUTOGRAD_KEYS.add(DispatchKey.ADInplaceOrView).bits


def _as_recorded(view: Tensor, viewed: Tensor) -> Tensor:
    """A view with some keys of what is viewed.

    Those of autograd, for inference mode makes no inference tensor of a normal one; and those of lazy elements.
    """
    view.key_bits = view.key_bits & ~_RECORDING | viewed.key_bits & (_RECORDING | LAZY_BITS)
    return view


_UNARY = {
    "neg": _unary(np.negative, floating=False),
    "sin": _unary(np.sin, floating=True),
    "cos": _unary(np.cos, floating=True),
    "exp": _unary(np.exp, floating=True),
    "relu": _unary(lambda array: np.maximum(array, 0), floating=False),
}
_COMPARING = {name: kernels for each in _COMPARED for name, kernels in _compared(each).items()}
_VIEWING = {name: _viewing(compute) for name, compute in _VIEWS.items()}

BACKEND_KERNELS: dict[str, Callable[..., Any]] = {
    **{f"{name}.Tensor": _binary(name) for name in _BINARY},
    **{f"{name}_.Tensor": _binary_in_place(name) for name in _BINARY},
    **{name: kernel for name, (kernel, _) in {**_UNARY, **_COMPARING, **_VIEWING}.items()},
    "div.Tensor": div,
    "_unique2": unique2,
    "unique_dim": unique_dim,
    "linalg_lu_factor_ex": lu_factor_ex,
    "mul.Scalar": mul_scalar,
    "threshold_backward": threshold_backward,
    "mm": mm,
    "mv": mv,
    "dot": dot,
    "bmm": bmm,
    "select_scatter": select_scatter,
    "sum": sum_all,
    "sum.dim_IntList": sum_dim,
    "normal_": normal_,
    **COPYING,
    "stack": stack,
    "select_backward": select_backward,
}
"""The kernels that CPU and CUDA share, by operator."""

EMPTY_KERNELS = {
    "CPU": {"empty.memory_format": _empty("cpu"), "empty_strided": _empty_strided("cpu")},
    "CUDA": {"empty.memory_format": _empty("cuda"), "empty_strided": _empty_strided("cuda")},
    "Meta": {"empty.memory_format": _empty("meta"), "empty_strided": _empty_strided("meta")},
}
"""The kernels that make an empty tensor, by key and operator."""

META_KERNELS: dict[str, Callable[..., Tensor]] = {
    **{f"{name}.Tensor": _meta_binary(name) for name in _BINARY},
    **{f"{name}_.Tensor": _meta_binary_in_place(name) for name in _BINARY},
    **{name: kernel for name, (_, kernel) in {**_UNARY, **_COMPARING, **_VIEWING}.items()},
    "div.Tensor": meta_div,
    "mul.Scalar": meta_mul_scalar,
    "threshold_backward": meta_threshold_backward,
    "mm": meta_mm,
    "mv": meta_mv,
    "dot": meta_dot,
    "bmm": meta_bmm,
    "select_scatter": meta_select_scatter,
    "sum": meta_sum_all,
    "sum.dim_IntList": meta_sum_dim,
    "normal_": meta_normal_,
    **COPYING,
    "stack": meta_stack,
    "select_backward": meta_select_backward,
}
"""The kernels of Meta, by operator."""
