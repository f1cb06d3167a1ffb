"""Calls of operators on functional tensors, in the lab and in the installed PyTorch, with the same kernels below.

The lab has the generated registrations, and its kernels of CPU and Meta ask PyTorch for the elements. What differs is
what the generated kernels of Functionalize do.

Two differences stay of these sides, and of calls in which no tensor is functional: an out variant cannot resize a view
of an array; what a kernel of PyTorch calls itself is not heard (`view.dtype` to the same dtype calls `detach`).
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from dispatchlab import DispatchKey, Library, Tensor
from dispatchlab.call import DType
from dispatchlab.call.local_key_set import IncludeDispatchKeyGuard
from dispatchlab.call.operators import Operator, operator
from dispatchlab.call.tensor_options import Device, DeviceType, Layout, MemoryFormat
from dispatchlab.codegen.emit.registration_source import registration_files
from dispatchlab.codegen.emit.registrations import FunctionRegistrations
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.schema_parts import SchemaKind
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import boxed
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.functional_tensors import FunctionalTensor, reapplied_views
from dispatchlab.model.schema import Argument
from dispatchlab.model.schema_types import ListType, OptionalType, Type
from dispatchlab.overrides import DispatchMode

View = tuple[str, tuple[Any, ...]]
"""A view operator, and its arguments after the tensor."""

# -- generated arguments, as values that say nothing of who calls


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor argument.

    Args:
        array: its elements.
        views: the views by which it is seen, from the base: operators with their arguments.
        others: the views of another tensor that shares its base, and is only looked at.
        is_functional: it is a functional tensor.
    """

    array: np.ndarray[Any, Any]
    views: tuple[View, ...] = ()
    others: tuple[View, ...] = ()
    is_functional: bool = True


_SHAPES = ((2, 3), (3, 3), (3,), (2, 3, 3), (), (1, 3))
_VIEWS: tuple[View, ...] = (
    *(("t", ()), ("t_", ()), ("alias", ()), ("detach", ()), ("squeeze", ()), ("squeeze_", ())),
    *(("unsqueeze", (0,)), ("unsqueeze", (-1,)), ("unsqueeze_", (1,)), ("squeeze.dim", (0,)), ("squeeze_.dim", (-1,))),
    *(("squeeze.dims", ([0, -1],)), ("squeeze_.dims", ([0],)), ("select.int", (0, -1)), ("select.int", (-1, 0))),
    *(("slice.Tensor", (0, 0, 2)), ("slice.Tensor", (-1, 1, None, 2)), ("transpose.int", (0, 1))),
    *(("transpose_", (0, -1)), ("diagonal", ()), ("diagonal", (1, -1, 0)), ("permute", ([1, 0],))),
    *(("permute", ([-1, 0, 1],)), ("expand", ([2, 3],)), ("expand", ([2, 2, 3],)), ("expand", ([2, 3, 3],))),
    *(("view", ([-1],)), ("view", ([3, -1],)), ("as_strided", ([2], [1], 1))),
    *(("as_strided_", ([2, 1], [1, 1])), ("unfold", (0, 1, 1)), ("unfold", (0, 2, 1)), ("unbind.int", (-1,))),
    *(("split.Tensor", (2, 0)), ("split.Tensor", (1, -1)), ("split_with_sizes", ([1, 2], -1))),
    *(("view_as_real", ()), ("view_as_complex", ())),
    *(("slice.Tensor", (0, -2, 7)), ("_indices", ()), ("values", ())),
)
SINGLE_VIEWS = tuple(
    view for view in _VIEWS if view[0].partition(".")[0] not in ("unbind", "split", "split_with_sizes")
)
"""Views with one result. Of a tensor that was resized PyTorch reads results that it has no longer."""


class Arguments:
    """Arguments of a schema, chosen at random.

    Args:
        choose: chooses.
        views: those that are chosen from.
    """

    def __init__(self, choose: random.Random, views: Sequence[View] = _VIEWS) -> None:
        self._choose, self._views_of = choose, views
        self._shape = choose.choice(_SHAPES)
        self._dtype = choose.choices(("float32", "float64", "int64", "bool", "complex64"), (8, 2, 3, 1, 1))[0]

    def of(self, argument: Argument) -> Any:
        """A value for an argument."""
        if argument.default is not None and self._choose.random() < 0.6:
            return argument.default.value
        return self._value(argument.type, argument)

    def _value(self, type_: Type, argument: Argument) -> Any:
        choose = self._choose
        if isinstance(type_, OptionalType):
            return None if choose.random() < 0.5 else self._value(type_.element, argument)
        if isinstance(type_, ListType):
            if str(type_.element) in ("Tensor", "Tensor?"):
                return [self._tensor(argument) for _ in range(2)]
            count = choose.choice((1, 2, len(self._shape)))
            if argument.name in ("size", "shape"):
                return list(choose.choice((self._shape, (3, 2), (6,), (3,))))
            return [self._value(type_.element, argument) for _ in range(count)]
        match str(type_):
            case "Tensor":
                return self._tensor(argument)
            case "Scalar":
                return choose.choice((2, 1, 0.5))
            case "int" | "SymInt":
                return choose.choice((0, 1, 0, -1, 2))
            case "float":
                return choose.choice((0.5, 1.0))
            case "bool":
                return choose.random() < 0.5
            case "ScalarType":
                return DType[choose.choice(("float32", "float64"))]
            case "str":
                return choose.choice(("mean", "none", "sum", "reduce", "L", "left"))
            case _:
                return None

    def _tensor(self, argument: Argument) -> Given:
        choose = self._choose
        is_index = "ind" in argument.name
        shape = self._shape if choose.random() < 0.8 else choose.choice(_SHAPES)
        dtype = "int64" if is_index and choose.random() < 0.8 else self._dtype
        if choose.random() < 0.1:
            dtype = choose.choice(("float32", "int64", "bool"))
        numbers = np.array([choose.choice((0, 1)) if is_index else choose.choice((-1.5, 0.5, 1, 2)) for _ in range(18)])
        array = numbers[: int(np.prod(shape))].astype(dtype).reshape(shape)
        is_written = argument.alias is not None and argument.alias.is_write
        # NB: PyTorch takes a list with both kinds for functional, and reads memory that is not there
        is_functional = choose.random() < (0.97 if is_written else 0.8) or isinstance(argument.type, ListType)
        return Given(array, self._views(), self._views(), is_functional=is_functional)

    def _views(self) -> tuple[View, ...]:
        count = self._choose.choices((0, 1, 2, 3), (6, 3, 2, 1))[0]
        found = tuple(self._choose.choice(self._views_of) for _ in range(count))
        # NB: an array does not say which storage it is of, as as_strided would have to know
        return found[:1] + tuple(view for view in found[1:] if not view[0].startswith("as_strided"))


_LEFT_ALONE: Mapping[str, tuple[str, ...]] = {
    "the elements of tensors without an array": ("mkldnn", "sparse", "quantize", "hash_tensor", "to_padded"),
    "memory that nobody wrote": ("empty", "resize"),
    "crashes of PyTorch with these arguments": (
        "pool",
        "backward",
        "unbind_copy",
        "split_copy",
        "split_with_sizes_copy",
    ),
    "kernels by hand above Functionalize": ("detach_", "set"),
}
"""Operators that are not called, by reason: the beginnings of names, or parts of them."""


def is_called(function: NativeFunction) -> bool:
    """Whether calls of a function are compared."""
    name = function.short_name
    if any(str(one.type) == "Storage" for one in function.schema.arguments):
        return False
    if name.startswith("_") and not name.startswith("_foreach"):
        return False
    return not any(part in name for parts in _LEFT_ALONE.values() for part in parts)


@dataclass(frozen=True, slots=True)
class Call:
    """A generated call of a function."""

    function: NativeFunction
    arguments: Mapping[str, Any]
    reapplied: bool

    @property
    def keywords(self) -> frozenset[str]:
        """The arguments that are given by name."""
        return frozenset(one.name for one in self.function.schema.arguments if one.kwarg_only)


def generated_call(choose: random.Random, function: NativeFunction) -> Call:
    """A call with random arguments."""
    views = _VIEWS if function.kind is SchemaKind.INPLACE else SINGLE_VIEWS
    values = Arguments(choose, views)
    arguments = {one.name: values.of(one) for one in function.schema.arguments}
    return Call(function, arguments, choose.random() < 0.5)


def compared(calls: Iterable[Callable[[], Call]], theirs: TheirSide, ours: OurSide) -> Counter[str]:
    """Make calls on both sides, and count those with a value, and those that both refuse.

    Args:
        calls: each makes a call; another one, when PyTorch refused the one before.
        theirs: PyTorch.
        ours: the lab.
    """
    counted: Counter[str] = Counter()
    for make in calls:
        for _ in range(6):
            call = make()
            expected = theirs.call(call)
            if not expected.error:
                break
        found = ours.call(call)
        assert bool(found.error) == bool(expected.error), (call, expected, found)
        # NB: what is not a number equals itself as text
        assert expected.error or repr(found) == repr(expected), (call, expected, found)
        counted["refused" if expected.error else "value"] += 1
    return counted


# -- the sides


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call did: the calls below, what came back, and all tensors as they are afterwards; or an error."""

    calls: tuple[str, ...]
    results: tuple[Any, ...]
    tensors: tuple[Any, ...]
    error: str = ""


def line(name: str, shapes: Iterable[Any]) -> str:
    return f"{name}{list(shapes)}"


class TheirSide:
    """The installed PyTorch."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def call(self, call: Call) -> Outcome:
        """What a call does."""
        name, arguments, keywords = call.function.short_name, call.arguments, call.keywords
        torch = self.torch
        bases: list[Any] = []
        seen: dict[int, Any] = {}

        def made(value: Any) -> Any:
            if isinstance(value, list):
                return [made(one) for one in value]
            if isinstance(value, Given):
                base = next(prepared)
                base = torch._to_functional_tensor(base) if value.is_functional else base
                bases.append(base)
                bases.append(viewed(base, value.others))
                found = viewed(base, value.views)
                bases.append(found)
                seen[id(found)] = found
                return found
            return self.theirs(value)

        def viewed(base: Any, views: Sequence[View]) -> Any:
            for view, others in views:
                found = operator_of(torch, view)(base, *map(self.theirs, others))
                base = found[-1] if isinstance(found, list | tuple) else found
            return base

        heard: list[str] = []

        class Listening(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined, misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                shapes = [tuple(one.shape) for one in tensors_in([args, kwargs or {}], torch.Tensor)]
                heard.append(line(func._schema.name.removeprefix("aten::") + overload_of(func), shapes))
                return func(*args, **(kwargs or {}))

        # NB: where functionalization is enabled, what is made of an array would be functional at once
        prepared = iter([torch.from_numpy(one.array.copy()) for one in tensors_in(arguments, Given)])
        torch.manual_seed(0)
        with torch.no_grad(), Listening():
            torch._enable_functionalization(reapply_views=call.reapplied)
            try:
                values = {key: made(value) for key, value in arguments.items()}
                positional = [value for key, value in values.items() if key not in keywords]
                named = {key: value for key, value in values.items() if key in keywords}
                result = results_of(operator_of(torch, name)(*positional, **named))
                for one in tensors_in([result, bases], torch.Tensor):
                    if torch._is_functional_tensor(one):
                        torch._sync(one)
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
                return Outcome(tuple(heard), (), (), str(error).partition("\n")[0])
            finally:
                torch._disable_functionalization()
        # NB: a mode would hear the look at the elements
        results = tuple(self._looked(one, seen) for one in result)
        return Outcome(tuple(heard), results, tuple(self._looked(one, {}) for one in bases))

    def _looked(self, value: Any, seen: Mapping[int, Any]) -> Any:
        if isinstance(value, list | tuple):
            return [self._looked(one, seen) for one in value]
        if not isinstance(value, self.torch.Tensor):
            return value
        is_functional = self.torch._is_functional_tensor(value)
        same = id(value) in seen
        inner = self.torch._from_functional_tensor(value) if is_functional else value
        return same, is_functional, tuple(value.shape), ours_of(inner)

    def theirs(self, value: Any) -> Any:
        torch = self.torch
        if isinstance(value, DType | Layout | MemoryFormat):
            return getattr(torch, str(value))
        if isinstance(value, Device):
            return torch.device(str(value))
        return value


def operator_of(torch: Any, name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def overload_of(func: Any) -> str:
    return f".{func._schema.overload_name}" if func._schema.overload_name else ""


def tensors_in(value: Any, kind: type) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one, kind)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one, kind)


def results_of(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def ours_of(tensor: Any) -> Any:
    found = tensor.detach().resolve_conj().resolve_neg().numpy()
    return str(found.dtype), found.tolist()


class OurSide:
    """A dispatcher with generated registrations, and kernels of CPU and Meta that ask PyTorch.

    Args:
        torch: PyTorch.
        registrations: what is generated; of each function that is called, and of those that are called below.
    """

    def __init__(self, torch: Any, registrations: Sequence[FunctionRegistrations]) -> None:
        self.torch = torch
        self.dispatcher = Dispatcher()
        self._held = ExitStack()
        for name, text in registration_files(registrations, "native_functions.yaml").items():
            if name.endswith(".py"):
                module = ModuleType(name)
                exec(compile(text, name, "exec"), module.__dict__)
                self._held.enter_context(module.register(self.dispatcher, object()))
        kernel = boxed(self._ask)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these override generated kernels
            for key in ("CPU", "Meta"):
                library = self._held.enter_context(Library("aten", "IMPL", key, dispatcher=self.dispatcher))
                for each in registrations:
                    library.impl(each.function.short_name, kernel)

    def close(self) -> None:
        self._held.close()

    def _ask(self, called: Operator, stack: list[object]) -> None:
        name = called.name
        found = operator_of(self.torch, str(name.without_namespace))
        declared = called.schema.arguments
        start = len(stack) - len(declared)
        asked: dict[int, tuple[Any, Tensor]] = {}

        def theirs(value: Any) -> Any:
            if isinstance(value, list):
                return [theirs(one) for one in value]
            if not isinstance(value, Tensor):
                return TheirSide(self.torch).theirs(value)
            dtype = getattr(self.torch, str(value.dtype))
            if value.device.type is DeviceType.META:
                made = self.torch.empty_strided(value.shape, value.strides, dtype=dtype, device="meta")
            else:
                made = self.torch.from_numpy(value.numpy())
            asked[id(made)] = made, value
            return made

        def ours(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [ours(one) for one in value]
            if not isinstance(value, self.torch.Tensor):
                return value
            if id(value) in asked:
                return asked[id(value)][1]
            if value.device.type == "meta":
                dtype = DType[str(value.dtype).removeprefix("torch.")]
                made = Tensor(
                    np.broadcast_to(np.zeros((), dtype.numpy), tuple(value.shape)), device="meta", dtype=dtype
                )
                made.wrapped_strides = tuple(value.stride())
                return made
            return Tensor(value.detach().resolve_conj().resolve_neg().numpy())

        values = [theirs(one) for one in stack[start:]]
        positional = [one for one, argument in zip(values, declared, strict=True) if not argument.kwarg_only]
        named = {argument.name: one for one, argument in zip(values, declared, strict=True) if argument.kwarg_only}
        try:
            with self.torch.no_grad():
                result = found(*positional, **named)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            raise CallError(ErrorKind.OTHER, str(error).partition("\n")[0]) from error
        for one, value in asked.values():
            if value.elements is not None and (tuple(one.shape), tuple(one.stride())) != (value.shape, value.strides):
                value.elements, value.shape = one.numpy(), tuple(one.shape)
        returns = called.schema.returns
        results = results_of(result) if len(returns) > 1 else (result,) if returns else ()
        stack[start:] = [ours(one) for one in results]

    def call(self, call: Call) -> Outcome:
        """What a call does."""
        name, arguments, keywords = call.function.short_name, call.arguments, call.keywords
        bases: list[Tensor] = []
        seen: dict[int, Any] = {}

        def made(value: Any) -> Any:
            if isinstance(value, list):
                return [made(one) for one in value]
            if isinstance(value, Given):
                base = Tensor(value.array.copy())
                base = FunctionalTensor(base) if value.is_functional else base
                bases.append(base)
                bases.append(viewed(base, value.others))
                written = viewed(base, value.views)
                bases.append(written)
                seen[id(written)] = written
                return written
            return value

        def viewed(base: Any, views: Sequence[View]) -> Any:
            for view, others in views:
                found = operator(self.dispatcher, f"aten::{view}")(base, *others)
                base = found[-1] if isinstance(found, list | tuple) else found
            return base

        heard: list[str] = []

        class Listening(DispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                shapes = [one.shape for one in tensors_in([args, kwargs or {}], Tensor)]
                heard.append(line(str(func.name.without_namespace), shapes))
                return func(*args, **(kwargs or {}))

        self.torch.manual_seed(0)
        with Listening(), reapplied_views(call.reapplied), IncludeDispatchKeyGuard(DispatchKey.Functionalize):
            try:
                values = {key: made(value) for key, value in arguments.items()}
                positional = [value for key, value in values.items() if key not in keywords]
                named = {key: value for key, value in values.items() if key in keywords}
                result = operator(self.dispatcher, f"aten::{name}")(*positional, **named)
                results = tuple(self._looked(one, seen) for one in results_of(result))
                tensors = tuple(self._looked(one, {}) for one in bases)
            except CallError as error:
                return Outcome(tuple(heard), (), (), str(error))
        return Outcome(tuple(heard), results, tensors)

    def _looked(self, value: Any, seen: Mapping[int, Any]) -> Any:
        if isinstance(value, list | tuple):
            return [self._looked(one, seen) for one in value]
        if not isinstance(value, Tensor):
            return value
        same = id(value) in seen
        if isinstance(value, FunctionalTensor):
            value.sync()
            array = value.value.numpy()
        else:
            array = value.numpy()
        return same, isinstance(value, FunctionalTensor), value.shape, (str(array.dtype), array.tolist())


@contextmanager
def our_side(torch: Any, registrations: Sequence[FunctionRegistrations]) -> Iterator[OurSide]:
    side = OurSide(torch, registrations)
    try:
        yield side
    finally:
        side.close()
