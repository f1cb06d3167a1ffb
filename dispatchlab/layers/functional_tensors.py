"""Functional tensors: every write becomes a new value, and every view is made again of the base that was written.

A functional tensor holds a value that nobody writes, and shares a storage with its views. A write queues an update on
the storage; who looks next has the updates applied to the base, view by view backwards, and makes its own view anew.
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
from dispatchlab.call.transform_rules import FUNCTIONALIZE, NOT_IN_FUNCTIONAL
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.derivatives import Calls, sum_to_size
from dispatchlab.layers.kernels import stand_in
from dispatchlab.layers.level_tensors import TransformTensor
from dispatchlab.layers.schemas import COPIES
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema_types import OPTIONAL_TENSORS, TENSOR, ListType

BoxedKernel: TypeAlias = Callable[[Operator, list[object]], None]


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One view of a chain.

    Args:
        forward: a tensor to its view.
        backward: a tensor and a changed view of it to the changed tensor.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


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
        """Queue a new value of a view of the base."""
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


def view_kernel(calls: Calls) -> BoxedKernel:
    """The kernel of a view: a view of the value, or a copy, with the step from one to the other.

    The value may be an old one: a view of it is made anew when somebody looks at it.
    """

    def kernel(called: Operator, stack: list[object]) -> None:
        start = len(stack) - len(called.schema.arguments)
        viewed, *others = stack[start:]
        if not isinstance(viewed, FunctionalTensor):
            with skip_functionalize():
                called.call_boxed(stack)
            return
        step = view_step(calls, _local(called), others, reapplied=_thread.reapplies_views)
        with skip_functionalize():
            value = step.forward(viewed.value)
        stack[start:] = [FunctionalTensor(value, viewed.storage, (*viewed.steps, step))]

    return kernel


def in_place_kernel(calls: Calls, functional: str) -> BoxedKernel:
    """The kernel of a write: the operator that returns what it would write, and an update with that.

    Args:
        calls: the operators.
        functional: the name of that operator.
    """

    def kernel(called: Operator, stack: list[object]) -> None:
        start = len(stack) - len(called.schema.arguments)
        arguments = stack[start:]
        written = arguments[0]
        assert isinstance(written, Tensor)
        _check_on_meta(called, arguments)
        values = [synced(one) for one in arguments]
        if not isinstance(written, FunctionalTensor):
            if any(map(_is_functional, arguments)):
                message = (
                    f"{called.name} would write a tensor that is not functional with one that is: pass the written "
                    "tensor as an argument of functionalize()"
                )
                raise CallError(ErrorKind.OTHER, message, {"operator": str(called.name)})
            with skip_functionalize():
                called.call_boxed(values)
            stack[start:] = [written]
            return
        with skip_functionalize():
            calls(functional).call_boxed(values)
        (result,) = values
        assert isinstance(result, Tensor)
        if result.dtype != written.dtype:
            with skip_functionalize():
                result = calls("_to_copy")(result, dtype=written.dtype, layout=written.layout)
            assert isinstance(result, Tensor)
        written.replace(result)
        written.commit_update()
        written.sync()
        stack[start:] = [written]

    return kernel


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


def _local(called: Operator) -> str:
    name = called.name
    return f"{name.name}.{name.overload}" if name.overload else name.name


def _is_functional(value: object) -> bool:
    return isinstance(value, FunctionalTensor) or (isinstance(value, list) and any(map(_is_functional, value)))


def _functional(value: object) -> object:
    if isinstance(value, list):
        return [_functional(one) for one in value]
    return FunctionalTensor(value) if isinstance(value, Tensor) else value


# -- the inverses of views


def view_step(calls: Calls, name: str, others: Sequence[object], *, reapplied: bool) -> ViewStep:
    """The step of a view operator.

    Args:
        calls: the operators.
        name: of the view.
        others: its arguments after the tensor.
        reapplied: whether it stays a view, and so the views of its inverse.
    """

    def copied(view: str) -> str:
        return view if reapplied else COPIES[view]

    inverse = _INVERSES[name]
    keyword_only = {"implicit": others[1]} if name == "expand" else {}
    positional = others[:1] if name == "expand" else others
    forward = calls(copied(name))
    return ViewStep(
        lambda base: forward(base, *positional, **keyword_only),
        lambda base, changed: inverse(lambda view: calls(copied(view)), calls, base, changed, others),
    )


Inverse = Callable[[Calls, Calls, Tensor, Tensor, Sequence[object]], Tensor]


def _expand_inverse(views: Calls, calls: Calls, base: Tensor, changed: Tensor, others: Sequence[object]) -> Tensor:
    difference = calls("sub.Tensor")(changed, base)
    whole: Tensor = calls("add.Tensor")(base, sum_to_size(_with_views(views, calls), difference, base.shape))
    return whole


def _with_views(views: Calls, calls: Calls) -> Calls:
    return lambda name: views(name) if name == "view" else calls(name)


def _view_inverse(views: Calls, calls: Calls, base: Tensor, changed: Tensor, others: Sequence[object]) -> Tensor:
    whole: Tensor = views("view")(changed, [*base.shape])
    return whole


def _transposed(name: str) -> Inverse:
    def inverse(views: Calls, calls: Calls, base: Tensor, changed: Tensor, others: Sequence[object]) -> Tensor:
        whole: Tensor = views(name)(changed, *others)
        return whole

    return inverse


def _permute_inverse(views: Calls, calls: Calls, base: Tensor, changed: Tensor, others: Sequence[object]) -> Tensor:
    (dims,) = others
    assert isinstance(dims, list)
    wrapped = [dim % base.dim for dim in dims]
    whole: Tensor = views("permute")(changed, [wrapped.index(at) for at in range(base.dim)])
    return whole


def _squeeze_inverse(views: Calls, calls: Calls, base: Tensor, changed: Tensor, others: Sequence[object]) -> Tensor:
    (dims,) = others
    assert isinstance(dims, int | list)
    for dim in sorted({one % max(base.dim, 1) for one in (dims if isinstance(dims, list) else [dims])}):
        if base.dim and base.shape[dim] == 1:
            changed = views("unsqueeze")(changed, dim)
    return changed


_INVERSES: dict[str, Inverse] = {
    "detach": lambda views, calls, base, changed, others: changed,
    "view": _view_inverse,
    "t": _transposed("t"),
    "transpose.int": _transposed("transpose.int"),
    "permute": _permute_inverse,
    "expand": _expand_inverse,
    "unsqueeze": lambda views, calls, base, changed, others: views("squeeze.dim")(changed, *others),
    "alias": lambda views, calls, base, changed, others: views("alias")(changed),
    "squeeze.dim": _squeeze_inverse,
    "squeeze.dims": _squeeze_inverse,
    "select.int": lambda views, calls, base, changed, others: calls("select_scatter")(base, changed, *others),
}


# -- the check of shapes

_NOT_ON_META = NOT_IN_FUNCTIONAL | DispatchKeySet.of(
    DispatchKey.FuncTorchDynamicLayerBackMode, DispatchKey.FuncTorchDynamicLayerFrontMode, DispatchKey.Functionalize
)


def _check_on_meta(called: Operator, arguments: Sequence[object]) -> None:
    """Run the write on Meta, for its functional form would take shapes that a write cannot."""
    with ExcludeDispatchKeyGuard(_NOT_ON_META):
        called.call_boxed([_on_meta(one) for one in arguments])


def _on_meta(value: object) -> object:
    if isinstance(value, list):
        return [_on_meta(one) for one in value]
    if not isinstance(value, Tensor) or value.is_wrapped_number:
        return value
    made = Tensor(stand_in(value.shape, value.dtype), dtype=value.dtype, device="meta", layout=value.layout)
    made.wrapped_strides = value.strides
    return made
