"""The stack of transforms, and how a call goes through it: the keys FuncTorchDynamicLayerFrontMode and BackMode.

While a transform is active, every call comes to FrontMode first. Its fallback keeps what the thread includes and
excludes, leaves in only the keys of the innermost transform, and calls anew; what that transform's kernels call in turn
comes to BackMode, whose fallback puts back what was kept, takes the transform off the stack, and calls again. So the
next transform has its turn, or, when there is none left, the dispatcher as it is outside.
Source: aten/src/ATen/functorch/DynamicLayer.cpp, Interpreter.cpp, VmapInterpreter.cpp, ADInterpreters.cpp,
FunctionalizeInterpreter.cpp.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dispatchlab.call.local_key_set import ForceDispatchKeyGuard, excluded, included
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.transform_rules import FRONT_AND_BACK, FUNCTIONALIZE, GRAD, VMAP, TransformKeys, is_in_place
from dispatchlab.layers.errors import TransformError, TransformErrorKind
from dispatchlab.layers.functional_tensors import FunctionalTensor, reapplied_views
from dispatchlab.layers.grad_mode import is_grad_enabled, set_grad_enabled
from dispatchlab.layers.kernels import tensors_in
from dispatchlab.layers.level_tensors import LevelTensor, Lifetime, TensorWrapper
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.schema import FunctionSchema


class DynamicLayer:
    """A transform on the stack.

    Args:
        level: its number, from 1.

    Attributes:
        saved: what the thread included and excluded when a call came to this layer.
        lifetime: whether it still runs.
    """

    keys: TransformKeys
    """The keys that the layer enters, and those of its tensors."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.lifetime = Lifetime()
        self.saved: tuple[DispatchKeySet, DispatchKeySet] | None = None

    def process(self, called: Operator, stack: list[object]) -> None:
        """Call with only the keys of this layer."""
        with EnterLayer(self):
            called.call_boxed(stack)

    def send_to_next(self, called: Operator, stack: list[object]) -> None:
        """Call what is below this layer.

        Raises:
            TransformError: there is no layer below, and a kernel of this one handed on a tensor of a transform.
        """
        _check_outside(called, stack)
        called.call_boxed(stack)

    def __repr__(self) -> str:
        return f"{self.level}:{type(self).__name__.removesuffix('Layer')}"


class VmapLayer(DynamicLayer):
    """A `vmap`.

    Args:
        level: its number.
        batch_size: the size of the dimension that it hides.
        randomness: `error`, `same` or `different`.
    """

    keys = VMAP

    def __init__(self, level: int, batch_size: int, randomness: str) -> None:
        super().__init__(level)
        self.batch_size, self.randomness = batch_size, randomness


class GradLayer(DynamicLayer):
    """A `grad`: what comes to it records on the graph of this level, and what leaves it is unwrapped.

    Args:
        level: its number.
    """

    keys = GRAD

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.grad_mode_outside = is_grad_enabled()

    def process(self, called: Operator, stack: list[object]) -> None:
        """Wrap what is not of this level, and call with the autograd keys."""
        start = len(stack) - len(called.schema.arguments)
        if is_in_place(called.schema):
            written = stack[start]
            if not (isinstance(written, TensorWrapper) and written.level == self.level and not written.is_immutable):
                raise TransformError(TransformErrorKind.CAPTURED_WRITE, _captured(called))
        _replace(stack, start, self._materialized)
        super().process(called, stack)

    def send_to_next(self, called: Operator, stack: list[object]) -> None:
        """Unwrap, call what is below, and wrap the results; a view of what was never wrapped stays as it is."""
        start = len(stack) - len(called.schema.arguments)
        arguments = stack[start:]
        immutable = {
            aliased
            for at, one in enumerate(arguments)
            if isinstance(one, Tensor) and (not isinstance(one, TensorWrapper) or one.is_immutable)
            if (aliased := _aliased_result(called.schema, at)) is not None
        }
        _replace(stack, start, self._unwrapped)
        with set_grad_enabled(is_grad_enabled() and self.grad_mode_outside):
            super().send_to_next(called, stack)
        for at in range(len(called.schema.returns)):
            _replace(stack, start + at, self._mutable if at not in immutable else self._immutable, count=1)
        for one in arguments:
            if isinstance(one, TensorWrapper):
                one.refresh()

    def wrapped(self, tensor: Tensor, *, is_immutable: bool = False) -> TensorWrapper:
        """A tensor of this level around another one."""
        return TensorWrapper(tensor, self.level, self.lifetime, is_immutable=is_immutable)

    def _materialized(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, TensorWrapper) and tensor.level == self.level:
            return tensor
        return self._immutable(tensor)

    def _immutable(self, tensor: Tensor) -> Tensor:
        return self.wrapped(tensor, is_immutable=True)

    def _mutable(self, tensor: Tensor) -> Tensor:
        return self.wrapped(tensor)

    def _unwrapped(self, tensor: Tensor) -> Tensor:
        return tensor.value if isinstance(tensor, TensorWrapper) and tensor.level == self.level else tensor


class FunctionalizeLayer(DynamicLayer):
    """A `functionalize`.

    Args:
        level: its number.
        reapplies_views: whether views stay views.
    """

    keys = FUNCTIONALIZE

    def __init__(self, level: int, *, reapplies_views: bool) -> None:
        super().__init__(level)
        self.reapplies_views = reapplies_views

    def process(self, called: Operator, stack: list[object]) -> None:
        """Call with Functionalize, and give the level to the results."""
        with reapplied_views(self.reapplies_views):
            super().process(called, stack)
        for one in tensors_in(stack[len(stack) - len(called.schema.returns) :]):
            if isinstance(one, FunctionalTensor):
                one.level = self.level

    def send_to_next(self, called: Operator, stack: list[object]) -> None:
        """Call what is below, which must neither get nor return functional tensors.

        Raises:
            TransformError: a kernel of Functionalize handed one on, or let the call pass it by.
        """
        _check_not_functional(called, stack[len(stack) - len(called.schema.arguments) :])
        super().send_to_next(called, stack)
        _check_not_functional(called, stack[len(stack) - len(called.schema.returns) :])


class EnterLayer(ForceDispatchKeyGuard):
    """What the thread includes and excludes while the kernels of a layer run."""

    __slots__ = ()

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__(included() | layer.keys.also_included, layer.keys.excluded(excluded()))


class LeaveLayer(ForceDispatchKeyGuard):
    """What the thread included and excluded when a call came to a layer; below the last one, no layer is active."""

    __slots__ = ()

    def __init__(self, saved: tuple[DispatchKeySet, DispatchKeySet]) -> None:
        include, exclude = saved
        super().__init__(include if _thread.layers else include - FRONT_AND_BACK, exclude)


class ActiveLayers(ForceDispatchKeyGuard):
    """FrontMode and BackMode included, as long as there is a layer."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(included() | FRONT_AND_BACK, excluded())


class _Thread(threading.local):
    def __init__(self) -> None:
        self.layers: list[DynamicLayer] = []


_thread = _Thread()


def current_layer() -> DynamicLayer | None:
    """The innermost transform of this thread; None when there is none."""
    return _thread.layers[-1] if _thread.layers else None


def layers() -> tuple[DynamicLayer, ...]:
    """The transforms of this thread, the outermost first."""
    return tuple(_thread.layers)


@contextmanager
def active(make: Callable[[int], DynamicLayer]) -> Iterator[DynamicLayer]:
    """A transform for the length of a `with` block.

    Args:
        make: given its level, the layer.
    """
    layer = make(len(_thread.layers) + 1)
    with ActiveLayers():
        _thread.layers.append(layer)
        try:
            yield layer
        finally:
            _thread.layers.pop()
            layer.lifetime.alive = False


def front_fallback(called: Operator, stack: list[object]) -> None:
    """Enter the innermost transform; there is one."""
    layer = _thread.layers[-1]
    found, layer.saved = layer.saved, (included(), excluded())
    try:
        _replace(stack, len(stack) - len(called.schema.arguments), unwrapped_if_dead)
        layer.process(called, stack)
    finally:
        layer.saved = found


def back_fallback(called: Operator, stack: list[object]) -> None:
    """Leave the innermost transform; there is one, and a call is in it."""
    layer = _thread.layers.pop()
    assert layer.saved is not None
    try:
        with LeaveLayer(layer.saved):
            layer.send_to_next(called, stack)
    finally:
        _thread.layers.append(layer)


def dead_wrapper_fallback(called: Operator, stack: list[object]) -> bool:
    """Unwrap the tensors of transforms that are over, and call anew; whether there were any."""
    start = len(stack) - len(called.schema.arguments)
    dead = any(isinstance(one, TensorWrapper) and not one.lifetime.alive for one in tensors_in(stack[start:]))
    if dead:
        _replace(stack, start, unwrapped_if_dead)
        called.call_boxed(stack)
    return dead


def unwrapped_if_dead(tensor: Tensor) -> Tensor:
    """What a wrapper of a transform that is over stands for; every other tensor as it is."""
    return tensor.value if isinstance(tensor, TensorWrapper) and not tensor.lifetime.alive else tensor


def _check_outside(called: Operator, stack: list[object]) -> None:
    """Below the last layer no tensor may belong to one."""
    if _thread.layers:
        return
    for one in tensors_in(stack[len(stack) - len(called.schema.arguments) :]):
        if isinstance(unwrapped_if_dead(one), LevelTensor):
            message = (
                f"{called.name} got a tensor of a transform below all transforms: a kernel at a key of the transform "
                "has to call on with the tensors that it stands for, and a fallthrough there does not"
            )
            raise TransformError(TransformErrorKind.ESCAPED_TENSOR, message)


def _check_not_functional(called: Operator, values: list[object]) -> None:
    if any(isinstance(one, FunctionalTensor) for one in tensors_in(values)):
        message = (
            f"{called.name} got a functional tensor below functionalize(): its kernel at Functionalize has to call "
            "on with the values, or leave the key to the builtin fallback"
        )
        raise TransformError(TransformErrorKind.ESCAPED_TENSOR, message)


def _aliased_result(schema: FunctionSchema, at: int) -> int | None:
    alias = schema.arguments[at].alias
    if alias is None:
        return None
    return next((number for number, one in enumerate(schema.returns) if one.alias is not None), None)


def _captured(called: Operator) -> str:
    return (
        f"{called.name} would write a tensor inside of grad() that comes from outside of the function, where the write "
        "would not be recorded: pass that tensor as an argument"
    )


def _replace(
    stack: list[object], start: int, function: Callable[[Tensor], Tensor], *, count: int | None = None
) -> None:
    """Put a function of each tensor, those in lists included, in its place."""
    for at in range(start, len(stack) if count is None else start + count):
        value = stack[at]
        if isinstance(value, Tensor):
            stack[at] = function(value)
        elif isinstance(value, list) and any(isinstance(one, Tensor) for one in value):
            stack[at] = [function(one) if isinstance(one, Tensor) else one for one in value]
