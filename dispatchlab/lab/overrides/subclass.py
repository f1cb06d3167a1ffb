"""Tensors of other classes: the same elements with `as_subclass`, and wrapper subclasses without any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from dispatchlab.call.local_key_set import is_inference_mode
from dispatchlab.call.tensor import Tensor, VersionCounter, contiguous_strides, of_class
from dispatchlab.call.tensor_keys import compute_dispatch_key, tensor_key_set
from dispatchlab.call.tensor_options import CPU, DEFAULT_DTYPE, Device, DType, Layout, device_of
from dispatchlab.call.torch_handlers import DISPATCH, has_handler, python_bits
from dispatchlab.lab.overrides.errors import MissingHandlerError, name_of
from dispatchlab.lab.overrides.modes import without_modes
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

T = TypeVar("T", bound=Tensor)
_NESTED = DispatchKeySet.of(DispatchKey.AutogradNestedTensor)


def as_subclass(tensor: Tensor, kind: type[T], alias: Alias | None = None) -> T:
    """Return a tensor of another class with the same memory and version: a view with `alias`, else with its history.

    >>> from dispatchlab import Lab, Tensor, tensor
    >>> from dispatchlab.lab.overrides import as_subclass
    >>> class Length(Tensor):
    ...     __slots__ = ()
    >>> x = tensor([1.0], requires_grad=True)
    >>> type(as_subclass(x, Length)) is Length
    True
    >>> as_subclass(x, Length, Lab().alias).grad_fn
    <AliasBackward0>

    Args:
        tensor: the tensor to view as another class.
        kind: that class.
        alias: the operator `aten::alias`. PyTorch's `as_subclass` calls it, unseen by modes, and autograd records it.

    Raises:
        CallError: a handler returned a tensor of a class of its own.
    """
    return of_class(tensor, kind, None if alias is None else unseen_by_modes(alias))


Alias: TypeAlias = Callable[[Tensor], Tensor]


def unseen_by_modes(alias: Alias) -> Alias:
    """Return the operator if no mode is open."""

    def run(tensor: Tensor) -> Tensor:
        with without_modes():
            return alias(tensor)

    return run


def make_wrapper_subclass(
    kind: type[T],
    like: Tensor | Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    layout: Layout | None = None,
    requires_grad: bool = False,
    extra_dispatch_keys: DispatchKeySet | None = None,
) -> T:
    """Return a tensor of a class without elements, with the shape, strides and options of another tensor.

    >>> from dispatchlab import Tensor, tensor
    >>> from dispatchlab.lab.overrides import make_wrapper_subclass
    >>> class Wrapper(Tensor):
    ...     @classmethod
    ...     def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
    ...         return NotImplemented
    >>> make_wrapper_subclass(Wrapper, tensor([[1.0]])).shape
    (1, 1)
    >>> make_wrapper_subclass(Wrapper, (1_000_000, 1_000_000)).shape
    (1000000, 1000000)

    Args:
        kind: its class; calls with the tensor call its `__torch_dispatch__`.
        like: a tensor with its shape and options, or only its shape; then the default is contiguous float32 on the CPU.
        strides: replaces the strides of `like`.
        dtype: replaces the dtype of `like`.
        device: replaces the device of `like`.
        layout: replaces the layout of `like`.
        requires_grad: whether operations on it are recorded.
        extra_dispatch_keys: further keys of the tensor besides the key of its backend.

    Raises:
        MissingHandlerError: the class has no `__torch_dispatch__`.
    """
    if not has_handler(kind, DISPATCH):
        message = f"{name_of(kind)} must define {DISPATCH}: no call with such a tensor could be answered"
        raise MissingHandlerError(message)
    made = object.__new__(kind)
    if isinstance(like, Tensor):
        made.shape, made.dtype, made.device, made.layout = like.shape, like.dtype, like.device, like.layout
    else:
        made.shape, made.dtype, made.device, made.layout = tuple(like), DEFAULT_DTYPE, CPU, Layout.strided
    made.dtype = made.dtype if dtype is None else dtype
    made.device = made.device if device is None else device_of(device)
    made.layout = made.layout if layout is None else layout
    base = DispatchKeySet.of(compute_dispatch_key(made.device.type, made.layout, made.dtype))
    extra = DispatchKeySet() if extra_dispatch_keys is None else extra_dispatch_keys
    keys = tensor_key_set(base | extra, inference=is_inference_mode())
    if made.layout is not Layout.jagged and not extra.bits & _NESTED.bits:
        keys = keys - _NESTED  # what is nested by its keys alone has no autograd of its own
    made.key_bits = keys.bits | python_bits(kind)
    made.elements = None
    made.start_history(VersionCounter(), requires_grad=requires_grad)
    if strides is not None:
        made.wrapped_strides = tuple(strides)
    else:
        made.wrapped_strides = like.strides if isinstance(like, Tensor) else contiguous_strides(made.shape)
    return made
