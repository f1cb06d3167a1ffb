"""The two base classes of meta classes: one sets the properties of outputs, one computes them for pointwise kernels.

`TensorIteratorBase` does what ATen's does for kernels that compute element by element: the shape that all inputs
broadcast to, the dtype that they promote to, the strides that keep their order of dimensions, the checks of an output
that was given, and the casts on the way in and out. Source: aten/src/ATen/TensorIterator.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dispatchlab.call.tensor import Tensor, contiguous_strides
from dispatchlab.call.tensor_options import CPU, DEFAULT_DTYPE, Device, DType, result_dtype
from dispatchlab.codegen.runtime.memory import Options, cast_into, dense_strides, is_on_meta, strides_in_order, write
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab.kernels import overlap_in_part, overlaps_itself, strided_array


class MetaBase:
    """A structured operator while it is called: the outputs, as meta sets them.

    Generated classes implement the three methods, each in one of three forms.
    """

    kernels: Any
    outputs: list[Any]
    proxies: list[Any]
    device: Any

    def set_output_strided(
        self, index: int, sizes: Sequence[int] | None, strides: Sequence[int] | None, options: Options
    ) -> None:
        """Set shape and options of an output; impl relies on its strides, so a proxy may replace it."""
        raise NotImplementedError

    def set_output_raw_strided(
        self, index: int, sizes: Sequence[int] | None, strides: Sequence[int] | None, options: Options
    ) -> None:
        """Set shape and options of an output; impl takes any strides."""
        raise NotImplementedError

    def maybe_get_output(self, index: int = 0) -> Any:
        """Return the output, or its proxy; None if the functional variant has not made it yet."""
        raise NotImplementedError


class TensorIteratorBase(MetaBase):
    """A called pointwise operator: the inputs as arrays with one shape and one dtype, and one output."""

    shape: tuple[int, ...]
    common_dtype: DType
    inputs: tuple[np.ndarray[Any, Any], ...]

    def set_output_raw_strided(
        self, index: int, sizes: Sequence[int] | None, strides: Sequence[int] | None, options: Options
    ) -> None:
        """Set the output of a generated class once it is there."""

    def build(
        self,
        *tensors: Tensor,
        dtype: DType | None = None,
        to_float: bool = False,
        common: DType | None = None,
        checks_cast: bool = True,
        same_dtype: bool = False,
    ) -> None:
        """Work out the output from the inputs and set it.

        Args:
            tensors: the inputs.
            dtype: the dtype of the output, if it is not the common dtype, as for comparisons.
            to_float: integers become floating point.
            common: the common dtype, where more than the tensors decides it.
            checks_cast: an output that the result may not be cast to is an error.
            same_dtype: an output of any other dtype is an error.

        Raises:
            CallError: of kind `other`: shapes, dtypes, devices or memory do not go together.
        """
        out: Tensor | None = self.maybe_get_output(0)
        if out is not None:
            check_overlap(out, tensors)
        self.shape = broadcast_shape([tensor.shape for tensor in tensors])
        device = _common_device(tensors)
        if common is None:
            common = result_dtype([(tensor.dtype, tensor.ndim) for tensor in tensors])
        if to_float and common.category < 2:
            common = DEFAULT_DTYPE
        self.common_dtype = common
        target = common if dtype is None else dtype
        if out is not None:
            self._check_output(out, tensors, target, device, checks_cast=checks_cast, same_dtype=same_dtype)
            target = out.dtype
        strides = output_strides(tensors, self.shape, common)
        self.set_output_raw_strided(0, self.shape, strides, Options(target, device))
        if not any(is_on_meta(tensor) for tensor in tensors):
            self.inputs = tuple(np.broadcast_to(_elements(tensor, common), self.shape) for tensor in tensors)

    def store(self, result: np.ndarray[Any, Any]) -> None:
        """Write the result of impl to the output, cast to its dtype."""
        write(self.maybe_get_output(0), result)

    def _check_output(
        self,
        out: Tensor,
        tensors: Sequence[Tensor],
        target: DType,
        device: Device,
        *,
        checks_cast: bool,
        same_dtype: bool,
    ) -> None:
        if out.shape != self.shape and any(tensor is out for tensor in tensors):
            message = f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(self.shape)}"
            raise CallError(ErrorKind.OTHER, message)
        if same_dtype and target != out.dtype:
            raise CallError(ErrorKind.OTHER, f"Found dtype {out.dtype} but expected {target}")
        if out.device != device:
            message = (
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{out.device} and {device}!"
            )
            raise CallError(ErrorKind.OTHER, message)
        if checks_cast and not can_cast(target, out.dtype):
            message = f"result type {target} can't be cast to the desired output type {out.dtype}"
            raise CallError(ErrorKind.OTHER, message)


def _elements(tensor: Tensor, common: DType) -> np.ndarray[Any, Any]:
    """Return the elements of an input, copied if the dtype differs, with the strides of such a copy."""
    if tensor.dtype == common:
        return tensor.data
    copied = strided_array(tensor.shape, dense_strides(tensor), common.numpy)
    cast_into(copied, tensor.data)
    return copied


def check_overlap(out: Tensor, tensors: Sequence[Tensor]) -> None:
    """Make sure that writing the output changes no input, and no other element of the output.

    Raises:
        CallError: of kind `other`.
    """
    if overlaps_itself(out):
        message = (
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
        raise CallError(ErrorKind.OTHER, message)
    if any(tensor is not out and overlap_in_part(out, tensor) for tensor in tensors):
        message = (
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )
        raise CallError(ErrorKind.OTHER, message)


def can_cast(source: DType, target: DType) -> bool:
    """Return whether a result of one dtype may be written as another: never down a category. Source: c10 `canCast`."""
    if source.category == 3 and target.category != 3:
        return False
    if source.category == 2 and target.category < 2:
        return False
    return not (source.category > 0 and target.category == 0)


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that all shapes broadcast to.

    Raises:
        CallError: of kind `other`, with the dimension that does not fit, in PyTorch's words.
    """
    result: list[int] = []
    for shape in shapes:
        ahead = len(shape) - len(result)
        merged: list[int] = []
        count = min(len(shape), len(result))
        for at in range(-1, -count - 1, -1):
            one, other = result[at], shape[at]
            if one != other and 1 not in (one, other):
                message = (
                    f"The size of tensor a ({one}) must match the size of tensor b ({other}) "
                    f"at non-singleton dimension {max(len(result), len(shape)) + at}"
                )
                raise CallError(ErrorKind.OTHER, message)
            merged.append(other if one == 1 else one)
        result = [*shape[: max(ahead, 0)], *result[: max(-ahead, 0)], *reversed(merged)]
    return tuple(result)


def _common_device(tensors: Sequence[Tensor]) -> Device:
    device: Device | None = None
    for tensor in tensors:
        if tensor.ndim == 0 and tensor.device == CPU:
            continue
        if device is not None and device != tensor.device:
            message = (
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{device} and {tensor.device}!"
            )
            raise CallError(ErrorKind.OTHER, message)
        device = tensor.device
    return CPU if device is None else device


def output_strides(tensors: Sequence[Tensor], shape: tuple[int, ...], common: DType | None = None) -> tuple[int, ...]:
    """Return the strides of a new output, in the inputs' order of dimensions in memory.

    Source: `TensorIteratorBase::allocate_or_resize_outputs`.

    Args:
        tensors: the inputs.
        shape: their broadcast shape.
        common: the dtype that inputs on the CPU are copied to before anything looks at their strides.
    """
    own = [
        dense_strides(one) if common is not None and one.device == CPU and one.dtype != common else one.strides
        for one in tensors
    ]
    if all(
        strides == contiguous_strides(one.shape) and one.shape == shape
        for one, strides in zip(tensors, own, strict=True)
    ):
        return contiguous_strides(shape)
    return strides_in_order(
        shape, [_strides_in(one.shape, each, shape) for one, each in zip(tensors, own, strict=True)]
    )


def _strides_in(given: tuple[int, ...], own: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor broadcast to the shape, 0 where it has no dimension of that size."""
    ahead = len(shape) - len(given)
    return (
        *([0] * ahead),
        *(0 if size == 1 and shape[ahead + at] != 1 else own[at] for at, size in enumerate(given)),
    )
