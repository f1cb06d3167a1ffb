"""Structured kernels at run time: outputs made, checked or resized, and the functions written by hand.

The three forms of an output are those of torchgen's RegisterCPU.cpp: the functional variant allocates, the in-place
variant checks, the out variant resizes with a warning. Where a kernel needs other strides than the tensor that it
writes has, it writes a proxy, which is copied over. Source: torchgen/dest/register_dispatch_key.py,
aten/src/ATen/native/Resize.cpp.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from dispatchlab.call.operators import Operator, operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import CPU, Device, DType
from dispatchlab.codegen.runtime.memory import Options, empty_strided, is_on_meta, overwrite, reset
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import CallError, ErrorKind

Scalar: TypeAlias = bool | int | float | complex
ScalarType: TypeAlias = DType
SymInt: TypeAlias = int
Sizes: TypeAlias = Sequence[int] | None


class Kernels:
    """The functions written by hand, by name, and calls of other operators.

    Args:
        dispatcher: the dispatcher with the operators.
        given: a module or an object that has the functions.
        by_hand: how each function that may be asked for is called.
    """

    __slots__ = ("_by_hand", "_dispatcher", "_given", "_operators")

    def __init__(self, dispatcher: Dispatcher, given: object, by_hand: Mapping[str, str]) -> None:
        self._dispatcher, self._given, self._by_hand = dispatcher, given, by_hand
        self._operators: dict[str, Operator] = {}

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._given, name, None)
        if function is not None:
            return function
        where = getattr(self._given, "__name__", type(self._given).__name__)
        wanted = self._by_hand.get(name, name)
        message = f"{where} has no function {name}, which this kernel is made of: write {wanted}"
        raise CallError(ErrorKind.MISSING_KERNEL, message, {"function": name})

    def call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        """Call an operator, from the top; a name without a namespace is in `aten`."""
        found = self._operators.get(name)
        if found is None:
            whole = name if "::" in name else f"aten::{name}"
            found = self._operators[name] = operator(self._dispatcher, whole)
        return found(*args, **kwargs)


def link(dispatcher: Dispatcher, kernels: object, by_hand: Mapping[str, str]) -> Kernels:
    """Return the hand-written functions for generated code; a missing function raises when it is called."""
    return Kernels(dispatcher, kernels, by_hand)


def create_out(sizes: Sizes, strides: Sizes, options: Options, *, on_meta: bool = False) -> Tensor:
    """Return a new output, with the strides that meta requests, or contiguous when it requests none."""
    return empty_strided(sizes or (), strides, options, on_meta=on_meta)


def check_inplace(out: Tensor, sizes: Sizes, options: Options) -> None:
    """Make sure that the tensor has the shape and options of the result.

    Raises:
        CallError: of kind `other`: dtype, device or size differ.
    """
    wanted = list(sizes or ())
    if options.dtype != out.dtype:
        difference = f"input tensor dtype {out.dtype} and output tensor dtype {options.dtype} should match"
    elif options.device != out.device:
        difference = f"input tensor device {out.device} and output tensor device {options.device} should match"
    elif wanted != list(out.shape):
        difference = f"input tensor size {list(out.shape)} and output tensor size {wanted} should match"
    else:
        return
    raise CallError(ErrorKind.OTHER, f"Bad in-place call: {difference}")


def resize_out(out: Tensor, sizes: Sizes, strides: Sizes, options: Options) -> None:
    """Give the tensor the shape of the result; warn if a tensor with elements is resized.

    Raises:
        CallError: of kind `other`: dtype or device differ, which no resizing can help.
    """
    if options.dtype != out.dtype:
        message = f"Expected out tensor to have dtype {options.dtype}, but got {out.dtype} instead"
        raise CallError(ErrorKind.OTHER, message)
    if options.device != out.device:
        message = f"Expected out tensor to have device {options.device}, but got {out.device} instead"
        raise CallError(ErrorKind.OTHER, message)
    wanted = tuple(sizes or ())
    if out.shape == wanted:
        return
    if 0 not in out.shape:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
            f"match the required output shape {list(wanted)}. This behavior is deprecated, and in a future PyTorch "
            "release outputs will not be resized unless they have zero elements. You can explicitly reuse an out "
            "tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            UserWarning,
            stacklevel=4,
        )
    reset(out, wanted, strides)


def maybe_create_proxy(out: Tensor, sizes: Sizes, strides: Sizes, options: Options) -> Tensor | None:
    """Return a tensor with the strides that meta requests, when `out` has others."""
    if not strides or is_on_meta(out) or out.strides == tuple(strides):
        return None
    return empty_strided(sizes or (), strides, options)


def copy_proxies(op: Any) -> None:
    """Copy each proxy to its tensor."""
    for out, proxy in zip(op.outputs, op.proxies, strict=True):
        if proxy is not None:
            overwrite(out, proxy)


def one_device(device: Device | None, options: Options) -> Device:
    """Return the device of all outputs so far.

    Raises:
        CallError: of kind `other`: a tensor is on another device.
    """
    if device is not None and device != options.device:
        message = f"structured kernels have their outputs on one device, and these are on {device} and {options.device}"
        raise CallError(ErrorKind.OTHER, message)
    return options.device


def check_same_device(wrapper: str, /, **tensors: Tensor | Sequence[Tensor | None] | None) -> None:
    """Check that all tensors are on one device; tensors without dimensions may be on the CPU.

    Raises:
        CallError: of kind `other`, naming the argument that is elsewhere.
    """
    device: Device | None = None
    for name, value in tensors.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(one, Tensor) or (one.ndim == 0 and one.device == CPU):
                continue
            if device is None:
                device = one.device
            elif device != one.device:
                message = (
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{device} and {one.device}! (when checking argument for argument {name} in method {wrapper})"
                )
                raise CallError(ErrorKind.OTHER, message)
