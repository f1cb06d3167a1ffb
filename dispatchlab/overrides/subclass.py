"""Tensors of other classes: `as_subclass`, wrapper subclasses, and the default handler that keeps the class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dispatchlab.call.local_key_set import is_inference_mode
from dispatchlab.call.tensor import Tensor, VersionCounter, shallow_copy
from dispatchlab.call.tensor_keys import PYTHON_KEYS, compute_dispatch_key, python_bits, tensor_key_set
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.overrides.handlers import DisableTorchFunction

T = TypeVar("T", bound=Tensor)


def as_subclass(tensor: Tensor, kind: type[T]) -> T:
    """The same memory, version and history as a tensor of another class.

    >>> from dispatchlab import Tensor, tensor
    >>> from dispatchlab.overrides import as_subclass
    >>> class Length(Tensor):
    ...     __slots__ = ()
    >>> type(as_subclass(tensor([1.0]), Length)) is Length
    True
    """
    made = shallow_copy(tensor, kind)
    made.key_bits = tensor.key_bits & ~PYTHON_KEYS.bits | python_bits(kind)
    return made


def make_wrapper_subclass(kind: type[T], like: Tensor, *, requires_grad: bool = False) -> T:
    """A tensor of a class without elements of its own, of the shape, strides, dtype, device and layout of another.

    >>> from dispatchlab import Tensor, tensor
    >>> from dispatchlab.overrides import make_wrapper_subclass
    >>> class Wrapper(Tensor):
    ...     __slots__ = ()
    >>> make_wrapper_subclass(Wrapper, tensor([[1.0]])).shape
    (1, 1)

    Args:
        kind: its class; with a `__torch_dispatch__`, calls with the tensor come to it.
        like: what it looks like.
        requires_grad: whether operations on it are recorded.
    """
    made = object.__new__(kind)
    made.shape, made.dtype, made.device, made.layout = like.shape, like.dtype, like.device, like.layout
    key = compute_dispatch_key(like.device.type, like.layout, like.dtype)
    bits = tensor_key_set(DispatchKeySet.of(key), inference=is_inference_mode()).bits
    made.key_bits = bits | python_bits(kind)
    made.elements = None
    made.start_history(VersionCounter(), requires_grad=requires_grad)
    made.wrapped_strides = like.strides
    return made


def default_torch_function(
    implementation: Callable[..., Any],
    kind: type[Tensor],
    types: Sequence[type],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Any:
    """The default `__torch_function__`: run the function without overrides, and give its tensors the class of ours.

    Returns NotImplemented when another type takes part that ours does not derive from.
    Source: torch/_tensor.py (`Tensor.__torch_function__`).
    """
    if not all(issubclass(kind, one) for one in types):
        return NotImplemented
    with DisableTorchFunction():
        result = implementation(*args, **kwargs)
    return result if kind is Tensor else _converted(result, kind)


def _converted(result: Any, kind: type[Tensor]) -> Any:
    if isinstance(result, Tensor):
        return result if isinstance(result, kind) else as_subclass(result, kind)
    if isinstance(result, list | tuple):
        converted = [_converted(one, kind) for one in result]
        return type(result)(*converted) if hasattr(result, "_fields") else type(result)(converted)
    return result
