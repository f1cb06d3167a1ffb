"""Backend kernels: numpy on the arrays of CPU and CUDA tensors, and only shapes on Meta.

A kernel does not handle autograd, views or versions; kernels at other keys do. It is written once: its first argument,
`Results`, makes the returned tensor, from the computed array or, on Meta, only from the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce, update_wrapper
from typing import Any, Literal, Protocol

import numpy as np

from dispatchlab.call.local_key_set import excluded
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Array, Generator, Tensor, contiguous_strides, is_dense, is_inference_tensor
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
from dispatchlab.lab.lazy_elements import LAZY_BITS, held, meant
from dispatchlab.model.keys import DispatchKey


def refused(message: str) -> CallError:
    """Return the error of a kernel that cannot do its work."""
    return CallError(ErrorKind.OTHER, message)


def like(array: Array, like: Tensor, dtype: DType | None = None) -> Tensor:
    """Return a result on the device and in the layout of an argument."""
    return Tensor(np.asarray(array), device=like.device, layout=like.layout, dtype=dtype)


def tensors_in(values: Sequence[object]) -> list[Tensor]:
    """Return the tensors in some values, also those in lists."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [one for one in value if isinstance(one, Tensor)]
    return found


def as_dtype(tensor: Tensor, dtype: DType) -> Array:
    """Return the elements as another dtype, in memory order; for an expanded tensor, in the usual order."""
    order: Literal["K", "C"] = "K" if is_dense(tensor.shape, tensor.strides) else "C"
    return stored(tensor.data.astype(dtype.numpy, order=order), dtype)


def shape_of(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that the arguments of an operator are broadcast to.

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
    """Return an array of that shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype.numpy), shape)


def check_overlap(name: str, written: Tensor, read: Tensor | None = None) -> None:
    """Refuse a write to memory that several elements share, or that overlaps an input in part.

    Raises:
        CallError: the tensor is expanded, or it overlaps `read` without being equal to it.

    Source: aten/src/ATen/MemoryOverlap.cpp.
    """
    if overlaps_itself(written):
        raise refused(f"{name} would write several elements at one memory location, as expand makes them: clone first")
    if read is not None and read is not written and overlap_in_part(written, read):
        raise refused(f"{name} would write memory that it reads as other elements: clone one first")


def overlaps_itself(tensor: Tensor) -> bool:
    """Return whether two elements share memory, as those of an expanded tensor do; never on Meta."""
    if tensor.elements is None or 0 in tensor.shape:
        return False
    return any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.strides, strict=True))


def overlap_in_part(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors without gaps share memory, unless they are the same elements in the same order."""
    if any(each.elements is None or not is_dense(each.shape, each.strides) for each in (one, other)):
        return False
    first, second = _bytes_of(one.data), _bytes_of(other.data)
    if first == second:
        return one.strides != other.strides
    return first[0] < second[1] and second[0] < first[1]


def _bytes_of(array: Array) -> tuple[int, int]:
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes


Size = Sequence[int]
Number = int | float | complex
Fill = Callable[[tuple[int, ...], np.dtype[Any]], Array]


class _Options(Protocol):
    """The options of a tensor besides its shape."""

    @property
    def dtype(self) -> DType: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def device(self) -> Device: ...


def _new(
    shape: Size,
    fill: Fill,
    like: _Options,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: Device | None = None,
    pin_memory: bool | None = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Return a tensor with these options; for None, the option of `like`. On Meta, nothing is filled."""
    kind = like.dtype if dtype is None else dtype
    where = like.device if device is None else device
    array = stand_in(tuple(shape), kind) if where.type is DeviceType.META else fill(tuple(shape), kind.numpy)
    return Tensor(array, dtype=kind, device=where, layout=like.layout if layout is None else layout)


def _filled_like(fill: Fill) -> Callable[..., Tensor]:
    def kernel(self: Tensor, **options: Any) -> Tensor:
        return _new(self.shape, fill, self, **options)

    return kernel


def _strided(name: str, size: Size, stride: Size) -> Fill:
    """Return memory for a shape with these strides, not yet written."""
    if len(size) != len(stride) or any(one < 0 for one in (*size, *stride)):
        raise refused(f"{name} got the size {list(size)} and the strides {list(stride)}")

    return lambda shape, kind: strided_array(shape, stride, kind)


def strided_array(shape: tuple[int, ...], strides: Size, kind: np.dtype[Any]) -> Array:
    """Return a new array with these strides, which count elements, over memory of its own."""
    needed = 1 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    steps = [step * kind.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(np.zeros(needed, kind), shape, steps)


def new_empty_strided(self: Tensor, size: Size, stride: Size, **options: Any) -> Tensor:
    """Return an empty tensor with the given strides (`new_empty_strided`)."""
    return _new(size, _strided("new_empty_strided", size, stride), self, **options)


def _check_copied(self: Tensor, src: Tensor) -> None:
    check_overlap("copy_", self, src)
    if shape_of("copy_", self.shape, src.shape) != self.shape:
        raise refused(f"copy_ cannot write the shape {list(src.shape)} into {list(self.shape)}")


def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:  # noqa: FBT001, FBT002
    """Copy, for every backend: from complex to real, the real part; on Meta, only check."""
    if self is src:
        return self
    _check_copied(self, src)
    if self.elements is None:
        return self
    source = meant(src)
    if np.iscomplexobj(source) and not np.iscomplexobj(self.data):
        source = source.real
    array = held(self, source)  # numpy converts it, except to bfloat16, which it lacks
    np.copyto(self.data, stored(array, self.dtype) if self.dtype is DType.bfloat16 else array, casting="unsafe")
    return self


def _to_copy(self: Tensor, *, non_blocking: bool = False, **options: Any) -> Tensor:
    made = _new(self.shape, np.empty, self, **options)
    return made if made.device.type is DeviceType.META else copy_(made, self)


def clone_kernel(empty_strided: Operator, copy_: Operator) -> Callable[..., Tensor]:
    """Copy a tensor into a new one with `copy_`: `clone` for every backend.

    The copy has the memory layout of the original, if this has no gaps and the caller does not ask for the usual order.
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
    """Return an empty tensor, filled with zeros: `zeros` for every backend. The fill counts as a write."""

    def zeros(size: list[int], **options: object) -> Tensor:
        made: Tensor = empty(size, **options)
        if made.elements is not None:
            made.elements[...] = 0
        # Filling is a call of an operator that writes, below which a handler of `zeros` may have excluded all of that.
        if not is_inference_tensor(made) and not excluded().has(DispatchKey.ADInplaceOrView):
            made.version_counter.value += 1
        return made

    return zeros


_random = Generator()


def manual_seed(seed: int) -> None:
    """Set the seed of the default generator, which calls without a generator use.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.lab import manual_seed
    >>> lab = Lab()
    >>> manual_seed(1)
    >>> first = lab.randn([2]).numpy().tolist()
    >>> manual_seed(1)
    >>> lab.randn([2]).numpy().tolist() == first
    True
    """
    _random.manual_seed(seed)


def _together(name: str, first: Tensor, second: Tensor) -> Device:
    """Return the device of a result; a tensor without dimensions may come from the CPU."""
    if first.device != second.device:
        for one, other in ((first, second), (second, first)):
            if one.ndim == 0 and one.device == CPU:
                return other.device
        raise refused(f"{name} got tensors on {first.device} and {second.device}: move them to one device")
    return first.device


# -- results: a kernel is written once, for a backend that computes and for Meta


class _Computed:
    """The results on CPU and CUDA: computed on the device of the arguments."""

    together = staticmethod(_together)

    @staticmethod
    def result(
        compute: Callable[[], Array], shape: tuple[int, ...], like: Tensor, dtype: DType, device: Device | None = None
    ) -> Tensor:
        """Return a result with the elements of `compute`."""
        where = like.device if device is None else device
        return Tensor(np.asarray(compute()), device=where, layout=like.layout, dtype=dtype)

    @staticmethod
    def written(self: Tensor, compute: Callable[[], Array]) -> Tensor:
        """Return the tensor, with the elements of `compute` written into it."""
        self.data[...] = stored(compute(), self.dtype)
        return self


class _Shaped:
    """The results of Meta: only shapes."""

    @staticmethod
    def together(name: str, first: Tensor, second: Tensor) -> Device:
        """Return the device of a result."""
        return first.device

    @staticmethod
    def result(
        compute: Callable[[], Array], shape: tuple[int, ...], like: Tensor, dtype: DType, device: Device | None = None
    ) -> Tensor:
        """Return a result with this shape, without computing it."""
        return Tensor(stand_in(shape, dtype), device=like.device, layout=like.layout, dtype=dtype)

    @staticmethod
    def written(self: Tensor, compute: Callable[[], Array]) -> Tensor:
        """Return the tensor."""
        return self


Results = type[_Computed] | type[_Shaped]
"""Where a kernel has its results from, its first argument."""


# -- pointwise

_BINARY: dict[str, Callable[[Array, Array], Array]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _binary_dtype(self: Tensor, other: Tensor) -> DType:
    return result_dtype([one.item() if one.is_wrapped_number else (one.dtype, one.ndim) for one in (self, other)])


def check_alpha(dtype: DType, alpha: Number) -> None:
    """Refuse an alpha that the dtype of the result cannot take.

    Source: aten/src/ATen/native/BinaryOps.h (`alpha_check`), whose words these are.
    """
    if isinstance(alpha, bool) and dtype != DType.bool:
        raise refused("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float | complex) and dtype.category < 2:
        raise refused("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and dtype.category < 3:
        raise refused("For non-complex input tensors, argument alpha must not be a complex number.")


def check_sub(self: Tensor, other: Tensor) -> None:
    """Refuse to subtract bool tensors.

    Source: aten/src/ATen/native/BinaryOps.h (`sub_check`), whose words these are.
    """
    if self.dtype is DType.bool and other.dtype is DType.bool:
        what, hint = "two bool tensors", "Use the `^` or `logical_xor()` operator instead."
    elif DType.bool in (self.dtype, other.dtype):
        what = "a bool tensor"
        hint = "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
    else:
        return
    raise refused(f"Subtraction, the `-` operator, with {what} is not supported. {hint}")


def _binary(name: str) -> Callable[..., Tensor]:
    compute = _BINARY[name]

    def kernel(results: Results, self: Tensor, other: Tensor, *, alpha: Number = 1) -> Tensor:
        device = results.together(name, self, other)
        shape = shape_of(name, self.shape, other.shape)
        dtype = _binary_dtype(self, other)
        if name == "sub":
            check_sub(self, other)
        if alpha != 1 or isinstance(alpha, bool):
            check_alpha(dtype, alpha)

        def elements() -> Array:
            second = as_dtype(other, dtype)
            return compute(as_dtype(self, dtype), second if alpha == 1 else second * np.asarray(alpha, dtype.numpy))

        return results.result(elements, shape, self, dtype, device)

    return kernel


def _binary_in_place(name: str) -> Callable[..., Tensor]:
    compute = _binary(name)

    def kernel(results: Results, self: Tensor, other: Tensor, **alpha: Number) -> Tensor:
        _check_in_place(name, self, other)
        return results.written(self, lambda: compute(results, self, other, **alpha).data)

    return kernel


def _check_in_place(name: str, self: Tensor, other: Tensor) -> None:
    check_overlap(f"{name}_", self, other)
    if shape_of(name, self.shape, other.shape) != self.shape:
        raise refused(f"{name}_ cannot write a result of shape {list(other.shape)} into {list(self.shape)}")
    dtype = _binary_dtype(self, other)
    if dtype.category > self.dtype.category:
        raise refused(f"{name}_ cannot write a result of {dtype} into {self.dtype}")


def mul_scalar(results: Results, self: Tensor, other: Number) -> Tensor:
    """Multiply by a number (`mul.Scalar`)."""
    dtype = result_dtype([(self.dtype, self.ndim), other])
    return results.result(lambda: as_dtype(self, dtype) * np.asarray(other, dtype.numpy), self.shape, self, dtype)


def _unary(compute: Callable[[Array], Array], *, floating: bool = False) -> Callable[..., Tensor]:
    def kernel(results: Results, self: Tensor) -> Tensor:
        if compute is np.negative and self.dtype is DType.bool:
            raise refused("neg cannot negate bool: use logical operators")
        dtype = DEFAULT_DTYPE if floating and self.dtype.category < 2 else self.dtype
        return results.result(lambda: compute(as_dtype(self, dtype)), self.shape, self, dtype)

    return kernel


def threshold_backward(results: Results, grad_output: Tensor, self: Tensor, threshold: Number) -> Tensor:
    """Return the gradient where `self` is above the threshold, and 0 elsewhere."""
    return results.result(
        lambda: np.where(self.data > threshold, grad_output.data, 0), self.shape, self, grad_output.dtype
    )


def div(results: Results, self: Tensor, other: Tensor) -> Tensor:
    """Divide: `div.Tensor`, true division, also of integers."""
    device = results.together("div", self, other)
    shape = shape_of("div", self.shape, other.shape)
    common = _binary_dtype(self, other)
    dtype = DEFAULT_DTYPE if common.category < 2 else common

    def elements() -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return as_dtype(self, dtype) / as_dtype(other, dtype)

    return results.result(elements, shape, self, dtype, device)


_COMPARED: dict[str, Callable[[Array, Any], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compared(name: str) -> dict[str, Callable[..., Tensor]]:
    """Return the kernels that compare with a tensor and with a number, by overload."""
    compute = _COMPARED[name]

    def with_tensor(results: Results, self: Tensor, other: Tensor) -> Tensor:
        device = results.together(name, self, other)
        shape = shape_of(name, self.shape, other.shape)
        dtype = _binary_dtype(self, other)
        elements = lambda: compute(as_dtype(self, dtype), as_dtype(other, dtype))  # noqa: E731
        return results.result(elements, shape, self, DType.bool, device)

    def with_number(results: Results, self: Tensor, other: Number) -> Tensor:
        dtype = result_dtype([(self.dtype, self.ndim), other])
        elements = lambda: compute(as_dtype(self, dtype), np.asarray(other, dtype.numpy))  # noqa: E731
        return results.result(elements, self.shape, self, DType.bool)

    return {f"{name}.Tensor": with_tensor, f"{name}.Scalar": with_number}


# -- matrices and sums

_PRODUCTS = {
    "mm": (2, 2, "two matrices of one dtype and of shapes [n, m] and [m, p]"),
    "mv": (2, 1, "a matrix and a vector of one dtype and of shapes [n, m] and [m]"),
    "dot": (1, 1, "two vectors of one dtype and size"),
    "bmm": (3, 3, "batches of one dtype and of shapes [b, n, m] and [b, m, p]"),
}
"""The dimensions of both arguments, and what is expected of them, in words."""


def _product(name: str) -> Callable[..., Tensor]:
    first, second, expected = _PRODUCTS[name]

    def kernel(results: Results, self: Tensor, other: Tensor) -> Tensor:
        results.together(name, self, other)
        fits = (self.ndim, other.ndim, self.dtype) == (first, second, other.dtype)
        if not fits or self.shape[-1] != other.shape[-2:][0] or self.shape[:-2] != other.shape[:-2]:
            shapes = f"{self.dtype}{list(self.shape)} and {other.dtype}{list(other.shape)}"
            raise refused(f"{name} expects {expected}, but got {shapes}")
        shape = (*self.shape[:-1], *other.shape[-1:][: second - 1])
        return results.result(lambda: self.data @ other.data, shape, self, self.dtype)

    return kernel


def sum_dtype(self: Tensor, dtype: DType | None) -> DType:
    """Return the dtype of a sum: the requested one, else int64 for integers."""
    return dtype if dtype is not None else DType.int64 if self.dtype.category < 2 else self.dtype


def reduced(shape: tuple[int, ...], axes: Size, *, keepdim: bool) -> tuple[int, ...]:
    """Return the shape without the reduced dimensions, or, with `keepdim`, with these dimensions of size 1."""
    return tuple(1 if at in axes else size for at, size in enumerate(shape) if keepdim or at not in axes)


def sum_dim(
    results: Results,
    self: Tensor,
    dim: Size | None = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Add up all elements, or those along some dimensions (`sum`, `sum.dim_IntList`)."""
    kind = sum_dtype(self, dtype)
    axes = tuple(one % self.ndim for one in dim) if dim and self.ndim else tuple(range(self.ndim))
    return results.result(
        lambda: self.data.astype(kind.numpy).sum(axis=axes, dtype=kind.numpy, keepdims=keepdim),
        reduced(self.shape, axes, keepdim=keepdim),
        self,
        kind,
    )


# -- new tensors


@dataclass(frozen=True, slots=True)
class _Home:
    """The options of a tensor that is made without any."""

    device: Device
    dtype: DType = DEFAULT_DTYPE
    layout: Layout = Layout.strided


def _empty_kernels(device: str) -> dict[str, Callable[..., Tensor]]:
    """Return the kernels that make an empty tensor on a device, by operator."""
    home = _Home(Device.parse(device))

    def empty(size: Size, **options: Any) -> Tensor:
        return _new(size, np.empty, home, **options)

    def empty_strided(size: Size, stride: Size, **options: Any) -> Tensor:
        return _new(size, _strided("empty_strided", size, stride), home, **options)

    return {"empty.memory_format": empty, "empty_strided": empty_strided}


def normal_(
    results: Results, self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill a tensor with random numbers (`normal_`)."""
    if self.dtype.category < 2:
        raise refused(f"normal_ draws floating point numbers, and cannot write them to {self.dtype}")
    check_overlap("normal_", self)
    source = _random if generator is None else generator
    return results.written(self, lambda: source.random.normal(mean, std, self.shape))


def stack(results: Results, tensors: list[Tensor], dim: int = 0) -> Tensor:
    """Stack tensors along a new dimension (`stack`)."""
    shape = [*_stack_shape(tensors)]
    shape.insert(dim if dim >= 0 else dim + len(shape) + 1, len(tensors))
    dtype = reduce(promoted, (tensor.dtype for tensor in tensors))
    return results.result(lambda: np.stack([tensor.data for tensor in tensors], dim), tuple(shape), tensors[0], dtype)


def _stack_shape(tensors: list[Tensor]) -> tuple[int, ...]:
    shapes = sorted({tensor.shape for tensor in tensors})
    if len(shapes) != 1:
        raise refused(
            f"stack expects one or more tensors of one shape, but got {', '.join(map(str, shapes)) or 'none'}"
        )
    return shapes[0]


def select_backward(results: Results, grad_output: Tensor, input_sizes: Size, dim: int, index: int) -> Tensor:
    """Return zeros with the gradient at one index."""

    def elements() -> Array:
        array = np.zeros(tuple(input_sizes), grad_output.dtype.numpy)
        array[_at(len(array.shape), dim, index)] = grad_output.data
        return array

    return results.result(elements, tuple(input_sizes), grad_output, grad_output.dtype)


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
    """Return each element once, in order, with positions and counts (`_unique2`)."""
    return _found_unique(self, None, inverse=return_inverse, counts=return_counts)


def unique_dim(
    self: Tensor,
    dim: int,
    sorted: bool = True,  # noqa: FBT001, FBT002
    return_inverse: bool = False,  # noqa: FBT001, FBT002
    return_counts: bool = False,  # noqa: FBT001, FBT002
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the unique slices along a dimension."""
    return _found_unique(self, dim % max(self.ndim, 1), inverse=return_inverse, counts=return_counts)


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
    """Return a view with some keys of its base.

    Those of autograd, for inference mode makes no inference tensor of a normal one; and those of lazy elements.
    """
    view.key_bits = view.key_bits & ~_RECORDING | viewed.key_bits & (_RECORDING | LAZY_BITS)
    return view


_VIEWING = {name: _viewing(compute) for name, compute in _VIEWS.items()}

_KERNELS: dict[str, Callable[..., Tensor]] = {
    **{f"{name}.Tensor": _binary(name) for name in _BINARY},
    **{f"{name}_.Tensor": _binary_in_place(name) for name in _BINARY},
    "neg": _unary(np.negative),
    "sin": _unary(np.sin, floating=True),
    "cos": _unary(np.cos, floating=True),
    "exp": _unary(np.exp, floating=True),
    "relu": _unary(lambda array: np.maximum(array, 0)),
    **{name: kernel for each in _COMPARED for name, kernel in _compared(each).items()},
    **{name: _product(name) for name in _PRODUCTS},
    "div.Tensor": div,
    "mul.Scalar": mul_scalar,
    "threshold_backward": threshold_backward,
    "sum": sum_dim,
    "sum.dim_IntList": sum_dim,
    "normal_": normal_,
    "stack": stack,
    "select_backward": select_backward,
}
"""The kernels that are written once, by operator."""


def _with_results(results: Results) -> dict[str, Callable[..., Any]]:
    """Return these kernels for a backend; each keeps its name, which debug texts show."""
    return {name: update_wrapper(partial(kernel, results), kernel) for name, kernel in _KERNELS.items()}


BACKEND_KERNELS: dict[str, Callable[..., Any]] = {
    **_with_results(_Computed),
    **{name: kernel for name, (kernel, _) in _VIEWING.items()},
    "_unique2": unique2,
    "unique_dim": unique_dim,
    **COPYING,
}
"""The kernels that CPU and CUDA share, by operator."""

EMPTY_KERNELS = {key: _empty_kernels(key.lower()) for key in ("CPU", "CUDA", "Meta")}
"""The kernels that make an empty tensor, by key and operator."""

META_KERNELS: dict[str, Callable[..., Tensor]] = {
    **_with_results(_Shaped),
    **{name: kernel for name, (_, kernel) in _VIEWING.items()},
    **COPYING,
}
"""The kernels of Meta, by operator."""
