"""Tensors that belong to one level of the stack of transforms: batched ones of `vmap`, and wrappers of `grad`.

Each has the keys of its value's backend and one of its own, so that an operator with it arrives at the transform that
made it. Source: aten/src/ATen/functorch/BatchedTensorImpl.cpp, TensorWrapper.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatchlab.call.local_key_set import is_inference_mode
from dispatchlab.call.tensor import Array, Tensor, VersionCounter
from dispatchlab.call.transform_rules import GRAD, VMAP, TransformKeys
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.model.key_set import DispatchKeySet


class Lifetime:
    """Whether a level of the stack still runs; its wrappers ask it."""

    __slots__ = ("alive",)

    def __init__(self) -> None:
        self.alive = True

    def __repr__(self) -> str:
        return f"<Lifetime {'of a running transform' if self.alive else 'that is over'}>"


class TransformTensor(Tensor):
    """A tensor that stands for another one inside of a transform; what copies it asks no handler."""

    __slots__ = ("value",)
    __torch_function__ = None  # type: ignore[assignment]  # a place in a transform is nothing to preserve
    value: Tensor


class LevelTensor(TransformTensor):
    """A tensor that stands for another one at one level.

    Args:
        value: the other one.
        level: the number of the transform on the stack, from 1.
        shape: what it shows.
        strides: likewise.
        keys: those of the transform.
    """

    __slots__ = ("level",)

    def __init__(
        self, value: Tensor, level: int, *, shape: tuple[int, ...], strides: tuple[int, ...], keys: TransformKeys
    ) -> None:
        self.value, self.level = value, level
        self.shape, self.elements = shape, None
        self.dtype, self.device, self.layout = value.dtype, value.device, value.layout
        self.key_bits = keys.tensor_keys(DispatchKeySet(value.key_bits), inference=is_inference_mode()).bits
        self.start_history(VersionCounter(), requires_grad=False)
        self.wrapped_strides = strides

    @property
    def data(self) -> Array:
        """Not to be had: it belongs to the tensor outside of the transform."""
        message = (
            "a tensor inside of a transform has no elements of its own: compute with operators, look at the result "
            "outside"
        )
        raise CallError(ErrorKind.WRONG_TYPE, message, {"level": str(self.level)})


class LevelBatchedTensor(LevelTensor):
    """A tensor that hides one dimension of another.

    Args:
        value: the tensor with the dimension.
        bdim: which one is hidden, from 0.
        level: the level of the `vmap` that hides it.
    """

    __slots__ = ("bdim",)

    def __init__(self, value: Tensor, bdim: int, level: int) -> None:
        shape, strides = _without(value.shape, bdim), _without(value.strides, bdim)
        super().__init__(value, level, shape=shape, strides=strides, keys=VMAP)
        self.bdim = bdim

    def __repr__(self) -> str:
        return f"BatchedTensor(lvl={self.level}, bdim={self.bdim}, value={self.value!r})"


class TensorWrapper(LevelTensor):
    """A tensor with a history of its own at the level of a `grad`.

    Args:
        value: the tensor without that history.
        level: the level of the `grad`.
        lifetime: whether that level still runs.
        is_immutable: it was wrapped by the level itself and not by the user, so that a write to it would be lost.
    """

    __slots__ = ("is_immutable", "lifetime")

    def __init__(self, value: Tensor, level: int, lifetime: Lifetime, *, is_immutable: bool = False) -> None:
        super().__init__(value, level, shape=value.shape, strides=value.strides, keys=GRAD)
        self.lifetime, self.is_immutable = lifetime, is_immutable

    def refresh(self) -> None:
        """Show the sizes and strides that the value has now."""
        self.shape, self.wrapped_strides = self.value.shape, self.value.strides

    def __repr__(self) -> str:
        level = f"lvl={self.level}" if self.lifetime.alive else "dead"
        return f"GradTrackingTensor({level}, value={self.value!r})"


def unwrapped_at(tensor: Tensor, level: int) -> tuple[Tensor, int | None]:
    """The tensor with the dimension that a level hides, and that dimension; the tensor and None without one."""
    if isinstance(tensor, LevelBatchedTensor) and tensor.level == level:
        return tensor.value, tensor.bdim
    return tensor, None


def _without(sizes: Sequence[int], at: int) -> tuple[int, ...]:
    return (*sizes[:at], *sizes[at + 1 :])
