"""Functional tensors: every write becomes a new value, and every view is made again of the base that was written.

A functional tensor holds a value that is never written, and shares a storage with its views. A write queues an update
on the storage; who looks next has the updates applied to the base, view by view backwards, and makes its own view anew.
Source: aten/src/ATen/FunctionalTensorWrapper.cpp, FunctionalStorageImpl.cpp, FunctionalInverses.cpp,
FunctionalizeFallbackKernel.cpp; torchgen/gen_functionalization_type.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard, included
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Array, Tensor, VersionCounter
from dispatchlab.call.tensor_options import DeviceType
from dispatchlab.call.transform_rules import FUNCTIONALIZE, NOT_IN_FUNCTIONAL
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.derivatives import Calls
from dispatchlab.layers.kernels import stand_in
from dispatchlab.layers.level_tensors import TransformTensor
from dispatchlab.layers.schemas import copy_of
from dispatchlab.layers.view_inverses import View
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema_types import OPTIONAL_TENSORS, TENSOR, ListType, SimpleType

BoxedKernel: TypeAlias = Callable[[Operator, list[object]], None]


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One view of a chain.

    Args:
        forward: a tensor to its view.
        backward: a tensor and a changed view of it to the changed tensor.
        is_as_strided: it goes by the memory of its base, so that it means nothing on another view.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    is_as_strided: bool = False


class FunctionalStorage:
    """What a functional tensor and its views share: the base, and the updates that are not yet in it.

    Args:
        base: the value that all of them are views of.
    """

    def __init__(self, base: Tensor) -> None:
        self.base = base
        self.generation = 0
        self._updates: list[tuple[Tensor, tuple[ViewStep, ...]]] = []

    def add_update(self, value: Tensor, steps: tuple[ViewStep, ...]) -> None:
        """Queue a new value of a view of the base.

        Raises:
            CallError: of kind `other`: as_strided was called on a view, and a write through that has no way back.
        """
        if any(step.is_as_strided for step in steps[1:]):
            message = (
                f"a view chain of length {len(steps)} was written, and as_strided() in it was called on a view: that "
                "cannot be functionalized"
            )
            raise CallError(ErrorKind.OTHER, message)
        self._updates.append((value, steps))
        self.generation += 1

    def apply_updates(self) -> bool:
        """Put what is queued into the base; whether there was anything."""
        updates, self._updates = self._updates, []
        with skip_functionalize():
            for value, steps in updates:
                bases = [self.base]
                for step in steps[:-1]:
                    bases.append(step.forward(bases[-1]))
                for step, base in zip(reversed(steps), reversed(bases), strict=False):  # one base, and no step at all
                    value = step.backward(base, value)
                self.base = value
        return bool(updates)

    def __repr__(self) -> str:
        return f"<FunctionalStorage of {self.base!r} with {len(self._updates)} updates>"


class FunctionalTensor(TransformTensor):
    """A tensor whose value changes while no memory is written.

    Args:
        value: the value.
        storage: what it shares with its base; a storage of its own when left out.
        steps: the views from the base to here.
    """

    __slots__ = ("generation", "level", "steps", "storage")

    def __init__(
        self, value: Tensor, storage: FunctionalStorage | None = None, steps: tuple[ViewStep, ...] = ()
    ) -> None:
        self.storage = FunctionalStorage(value) if storage is None else storage
        self.steps = steps
        self.generation, self.level = 0, -1
        self.elements = None
        self.device = value.device
        self.start_history(VersionCounter(), requires_grad=False)
        self.key_bits = FUNCTIONALIZE.tensor_keys(DispatchKeySet(value.key_bits)).bits
        self.replace(value)
        self.version_counter = value.version_counter

    def replace(self, value: Tensor) -> None:
        """Take another value, and show its sizes and strides."""
        self.value = value
        self.shape, self.wrapped_strides = value.shape, value.strides
        self.dtype, self.layout = value.dtype, value.layout

    def commit_update(self) -> None:
        """Queue the value as an update of the base."""
        self.storage.add_update(self.value, self.steps)

    def sync(self) -> None:
        """Make the value that the base gives now."""
        if self.generation == self.storage.generation:
            return
        self.storage.apply_updates()
        self.regenerate()

    def regenerate(self) -> None:
        """Make the value of the base by the views."""
        with skip_functionalize():
            value = self.storage.base
            for step in self.steps:
                value = step.forward(value)
        self.replace(value)
        self.generation = self.storage.generation

    @property
    def data(self) -> Array:
        """Not to be had: it belongs to the tensor outside of the transform."""
        message = "a functional tensor has no elements of its own: look at the result outside of functionalize()"
        raise CallError(ErrorKind.WRONG_TYPE, message, {"level": str(self.level)})

    def __repr__(self) -> str:
        return f"FunctionalTensor(lvl={self.level}, value={self.value!r})"


class _Thread(threading.local):
    reapplies_views: bool = False


_thread = _Thread()


@contextmanager
def reapplied_views(reapplied: bool) -> Iterator[None]:  # noqa: FBT001 - the only thing that it says
    """Whether views stay views inside of functionalization, or become copies."""
    found, _thread.reapplies_views = _thread.reapplies_views, reapplied
    try:
        yield
    finally:
        _thread.reapplies_views = found


def skip_functionalize() -> ExcludeDispatchKeyGuard:
    """A guard inside of which calls pass Functionalize by."""
    return ExcludeDispatchKeyGuard(DispatchKey.Functionalize)


_TENSOR_TYPES = (TENSOR, ListType(TENSOR), OPTIONAL_TENSORS)
"""What counts as a tensor argument even where it is undefined or empty."""


def functional_fallback(called: Operator, stack: list[object]) -> None:
    """Call with the values of functional tensors; the results are functional, if any argument or no argument is."""
    start = len(stack) - len(called.schema.arguments)
    tensors = [
        isinstance(value, Tensor) or argument.type in _TENSOR_TYPES
        for argument, value in zip(called.schema.arguments, stack[start:], strict=True)
    ]
    functional = False
    for at in range(start, len(stack)):
        functional |= _is_functional(stack[at])
        stack[at] = synced(stack[at])
    with skip_functionalize():
        called.call_boxed(stack)
    if functional or not any(tensors):
        stack[start:] = [_functional(one) for one in stack[start:]]


def view_kernel(
    calls: Calls, view: str | None = None, copy: str | None = None, *, in_place: bool = False
) -> BoxedKernel:
    """The kernel of a view: a view of the value, or a copy, with the step from one to the other.

    The value may be an old one: a view of it is made anew when it is looked at.

    Args:
        calls: the operators.
        view: the name of the view; that of the operator when left out.
        copy: the name of the operator that copies; by default `view_copy` for `view`.
        in_place: the tensor itself becomes the view.
    """

    def kernel(called: Operator, stack: list[object]) -> None:
        start = len(stack) - len(called.schema.arguments)
        viewed, *others = (_value(one) for one in stack[start:])
        tensor = stack[start]
        if not isinstance(tensor, FunctionalTensor):
            stack[start:] = [viewed, *others]
            with skip_functionalize():
                called.call_boxed(stack)
            return
        name = _local(called) if view is None else view
        reapplied = _thread.reapplies_views
        made = View(calls, name, copy_of(name) if copy is None else copy, tuple(others), reapplied=reapplied)
        if in_place:
            (step,) = _steps(made, 1, in_place=True)
            with skip_functionalize():
                value = step.forward(tensor.value)
            tensor.steps = (*tensor.steps, step)
            tensor.replace(value)
            stack[start:] = [tensor]
            return
        with skip_functionalize():
            found = made.of(tensor.value)
        values = found if isinstance(found, list) else [found]
        seen: list[object] = [
            FunctionalTensor(value, tensor.storage, (*tensor.steps, step))
            for value, step in zip(values, _steps(made, len(values), in_place=False), strict=True)
        ]
        stack[start:] = [seen] if isinstance(found, list) else seen

    return kernel


def _steps(made: View, count: int, *, in_place: bool) -> list[ViewStep]:
    """The steps to the results of a view, one for each of them."""
    return [
        ViewStep(
            lambda base, at=at: made.result_of(base, at),  # type: ignore[misc]
            lambda base, changed, at=at: made.changed_base(base, changed, at),  # type: ignore[misc]
            # NB: PyTorch asks for the name of the operator, and so does not mean the one in place
            made.name == "as_strided" and not in_place,
        )
        for at in range(count)
    ]


def write_kernel(calls: Calls, functional: str, *, in_place: bool) -> BoxedKernel:
    """The kernel of a write: the operator that returns what it would write, and an update with that.

    Args:
        calls: the operators.
        functional: the name of that operator.
        in_place: it writes `self`, whose shape its Meta kernel compares with that of the result.
    """

    def kernel(called: Operator, stack: list[object]) -> None:
        declared = called.schema.arguments
        start = len(stack) - len(declared)
        arguments = stack[start:]
        if in_place and not any(one.type == _STORAGE for one in declared):
            _check_on_meta(called, arguments)
        values = [synced(one) for one in arguments]
        written = [one for one, argument in zip(arguments, declared, strict=True) if argument.is_written]
        if not all(map(_is_functional, written)):
            _check_may_write(called, arguments)
            with skip_functionalize():
                called.call_boxed(values)
            stack[start:] = _returned(called, arguments, values)
            return
        result = _functional_arguments(called, calls(functional), values)
        with skip_functionalize():
            calls(functional).call_boxed(result)
        fresh = len(result) - len(written)
        made = [_functional(one) for one in result[:fresh]]
        for one, value in zip(written, result[fresh:], strict=True):
            _write(calls, one, value)
        # NB: what is new stands where it would stand without functionalization
        stack[start:] = _returned(called, arguments, _filled(called, made))

    return kernel


_STORAGE = SimpleType("Storage")
_OPTIONS_OF_OUT = ("dtype", "layout", "device")
_KEEPS_DTYPE_OF_OUT = ("cumsum.out", "cumprod.out")
"""Source: `CUMULATIVE_OUT_OPS_PRESERVING_OUT_DTYPE`."""


def _functional_arguments(called: Operator, functional: Operator, values: list[object]) -> list[object]:
    """What the functional variant is called with: by name, and the options of a factory are those of `out`."""
    given = dict(zip((argument.name for argument in called.schema.arguments), values, strict=True))
    out = given.get("out")
    if isinstance(out, Tensor):
        if _local(called) in _KEEPS_DTYPE_OF_OUT and given["dtype"] is None:
            given["dtype"] = out.dtype
        given = {name: getattr(out, name) for name in _OPTIONS_OF_OUT} | {"pin_memory": None} | given
    return [given[argument.name] for argument in functional.schema.arguments]


def _write(calls: Calls, written: object, value: object) -> None:
    """Give a functional tensor, or those of a list, a new value, and queue that as an update."""
    tensors = written if isinstance(written, list) else [written]
    found = value if isinstance(value, list) else [value]
    if len(found) < len(tensors):
        message = f"{len(tensors)} tensors would be written, and there are new values for {len(found)} of them"
        raise CallError(ErrorKind.OTHER, message)
    # NB: values that were not asked for are dropped
    for one, new in zip(tensors, found, strict=False):
        assert isinstance(one, FunctionalTensor)
        assert isinstance(new, Tensor)
        if (new.dtype, new.layout) != (one.dtype, one.layout):
            with skip_functionalize():
                new = calls("_to_copy")(new, dtype=one.dtype, layout=one.layout)
            assert isinstance(new, Tensor)
        one.replace(new)
    functional = [tensor for tensor in tensors if isinstance(tensor, FunctionalTensor)]
    for one in functional:
        one.commit_update()
    for one in functional:
        one.sync()


def _check_may_write(called: Operator, arguments: Sequence[object]) -> None:
    read = [one for one, argument in zip(arguments, called.schema.arguments, strict=True) if argument.alias is None]
    if not any(map(_is_functional, read)):
        return
    # NB: a tensor of a lazy device may be copied to one of another device
    if any(isinstance(one, Tensor) and one.device.type is DeviceType.XLA for one in read):
        return
    message = (
        f"{called.name} would write a tensor that is not functional with one that is: pass the written "
        "tensor as an argument of functionalize()"
    )
    raise CallError(ErrorKind.OTHER, message, {"operator": str(called.name)})


def _filled(called: Operator, fresh: Sequence[object]) -> list[object]:
    """One value for each return: the new ones, and nothing for those that are arguments."""
    new = iter(fresh)
    return [next(new) if one.alias is None else None for one in called.schema.returns]


def _returned(called: Operator, arguments: Sequence[object], results: Sequence[object]) -> list[object]:
    """What comes back: first the written arguments among the returns, then what is new."""
    by_alias = {
        one.alias: value for one, value in zip(called.schema.arguments, arguments, strict=True) if one.alias is not None
    }
    returns = called.schema.returns
    same = [by_alias[one.alias] for one in returns if one.alias is not None]
    return same + [value for one, value in zip(returns, results, strict=True) if one.alias is None]


def unsafe_view_kernel(called: Operator, stack: list[object]) -> None:
    """`_unsafe_view`: a step to which both ways are the operator itself, though its schema names no alias."""
    start = len(stack) - len(called.schema.arguments)
    viewed, size = stack[start:]
    with skip_functionalize():
        if not isinstance(viewed, FunctionalTensor):
            called.call_boxed(stack)
            return
        step = ViewStep(lambda base: called(base, size), lambda base, changed: called(changed, [*base.shape]))
        value = step.forward(viewed.value)
    stack[start:] = [FunctionalTensor(value, viewed.storage, (*viewed.steps, step))]


def to_copy_kernel(called: Operator, stack: list[object]) -> None:
    """`_to_copy`: inside of functionalization its result is functional, whatever its argument is."""
    start = len(stack) - len(called.schema.arguments)
    functional_fallback(called, stack)
    (copied,) = stack[start:]
    if (
        isinstance(copied, Tensor)
        and not isinstance(copied, FunctionalTensor)
        and included().has(DispatchKey.Functionalize)
    ):
        stack[start:] = [FunctionalTensor(copied)]


def synced(value: object) -> object:
    """The value of a functional tensor as it is now; of a list, those of its elements; else what it is."""
    if isinstance(value, FunctionalTensor):
        value.sync()
        return value.value
    if isinstance(value, list) and any(isinstance(one, FunctionalTensor) for one in value):
        return [synced(one) for one in value]
    return value


def _value(argument: object) -> object:
    """The value of a functional tensor, which may be an old one; of a list, those of its elements."""
    if isinstance(argument, list):
        return [_value(one) for one in argument]
    return argument.value if isinstance(argument, FunctionalTensor) else argument


def _local(called: Operator) -> str:
    name = called.name
    return f"{name.name}.{name.overload}" if name.overload else name.name


def _is_functional(value: object) -> bool:
    return isinstance(value, FunctionalTensor) or (isinstance(value, list) and any(map(_is_functional, value)))


def _functional(value: object) -> object:
    if isinstance(value, list):
        return [_functional(one) for one in value]
    return FunctionalTensor(value) if isinstance(value, Tensor) else value


# -- the check of shapes

_NOT_ON_META = NOT_IN_FUNCTIONAL | DispatchKeySet.of(
    DispatchKey.FuncTorchDynamicLayerBackMode, DispatchKey.FuncTorchDynamicLayerFrontMode, DispatchKey.Functionalize
)


def _check_on_meta(called: Operator, arguments: Sequence[object]) -> None:
    """Run the write on Meta, for its functional form would take shapes that a write cannot."""
    with ExcludeDispatchKeyGuard(_NOT_ON_META):
        called.call_boxed([_on_meta(argument) for argument in arguments])


def _on_meta(value: object) -> object:
    if isinstance(value, list):
        return [_on_meta(one) for one in value]
    if not isinstance(value, Tensor) or value.is_wrapped_number:
        return value
    made = Tensor(stand_in(value.shape, value.dtype), dtype=value.dtype, device="meta", layout=value.layout)
    made.wrapped_strides = value.strides
    return made
