"""Calls of `torch.library` made again, each on a library object of its own that records which call it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Def, Impl, TorchLibraryCall, TorchLibraryFunction
from dispatchlab.model.schema import FunctionSchema, clone_with_name

# Note [Calls of torch.library, live]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Each call gets a `torch.library.Library` whose C++ library names our number in place of a file and a line, so that its
# kernels are told like all others. `custom_op` makes its library itself; for the time of the call it is handed ours. A
# call that is refused takes its library along: the user's own would live on with whatever was registered before the
# refusal, until the module that holds it goes.

_COMPLIANT = "pt2_compliant_tag"
"""The tag that `custom_op` gives by itself."""


class Unmade(Exception):
    """A block does not hold what its call needs; the text says what."""


class LayerLibrary:
    """What a call leaves behind.

    Args:
        library: the `torch.library.Library` of the call.
        custom_op: the operator of a `custom_op`, which PyTorch remembers by name besides; None for other calls.
        kept: objects that must live as long.
    """

    __slots__ = ("_custom_op", "_kept", "_library")

    def __init__(self, library: Any, custom_op: str | None = None, kept: object = None) -> None:
        self._library, self._custom_op, self._kept = library, custom_op, kept

    def reset(self) -> None:
        """Take everything back; a second time is harmless."""
        self._library._destroy()
        self._kept = None
        if self._custom_op is not None:
            ops = torch()._library.custom_ops
            ops.OPDEF_TO_LIB.pop(self._custom_op, None)
            ops.OPDEFS.pop(self._custom_op, None)


def stand_in(*arguments: object, **named: object) -> object:
    """What is registered in place of the user's functions."""
    return arguments[0] if arguments else None


def layer_opener(
    block: Block, call: TorchLibraryCall, prefix: str, mark: str, number: int
) -> Callable[[], LayerLibrary]:
    """The call of a block, to be made each time the result is called.

    Args:
        block: the block.
        call: what made it.
        prefix: stands before every namespace.
        mark: the file that the library names.
        number: the line that it names.

    Raises:
        Unmade: the block does not hold what the call needs.
    """
    namespace = prefix + (block.namespace or "")
    name = call.operator
    local = f"{name.name}.{name.overload}" if name.overload else name.name
    make = _MAKERS[call.function](block, call, f"{namespace}::{local}", local)

    def opened() -> LayerLibrary:
        library = torch().library.Library(namespace, "FRAGMENT")
        library.m.reset()
        library.m = bindings()._dispatch_library("FRAGMENT", namespace, "", mark, number)
        custom_op = f"{namespace}::{local}" if call.function is TorchLibraryFunction.CUSTOM_OP else None
        try:
            kept = make(library)
        except Exception as error:
            LayerLibrary(library, custom_op).reset()
            raise RuntimeError(f"{error}") from error
        return LayerLibrary(library, custom_op, kept)

    return opened


Maker = Callable[[Any], object]


def _define(block: Block, call: TorchLibraryCall, qualified: str, local: str) -> Maker:
    definition = _definition(block)
    schema = _schema(definition)
    text, alias, tags = str(clone_with_name(schema, _bare(schema.name))), str(definition.alias or ""), _tags(definition)
    return lambda library: library.define(text, alias, tags=tags)


def _impl(block: Block, call: TorchLibraryCall, qualified: str, local: str) -> Maker:
    registered = next((one for one in block.registrations if isinstance(one, Impl)), None)
    if registered is None:
        raise Unmade("the block of an impl has an impl inside")
    key = "" if registered.key in (None, DispatchKey.Undefined) else str(registered.key)
    kernel = registered.kernel
    function = torch().library.fallthrough_kernel if kernel.is_fallthrough else kernel.function or stand_in
    return lambda library: library.impl(local, function, key, with_keyset=kernel.with_keyset)


def _custom_op(block: Block, call: TorchLibraryCall, qualified: str, local: str) -> Maker:
    definition = _definition(block)
    schema = _schema(definition)
    text = str(clone_with_name(schema, OperatorName("", "x"))).removeprefix("x")
    arguments: dict[str, Any] = {
        "mutates_args": [each.name for each in schema.arguments if each.alias is not None and each.alias.is_write],
        "device_types": call.on or None,
        "schema": text,
    }
    tags = [tag for tag in _tags(definition) if tag.name != _COMPLIANT]
    if tags:
        arguments["tags"] = tags
    parts = [_PARTS[part.function](part) for part in call.parts]

    def make(library: Any) -> object:
        with _library_of(qualified, library):
            made = torch().library.custom_op(qualified, **arguments)(stand_in)
        for part in parts:
            part(made)
        return made

    return make


@contextmanager
def _library_of(qualified: str, library: Any) -> Iterator[None]:
    """Have `custom_op` take this library. See Note [Calls of torch.library, live]."""
    ops: Any = import_module("torch._library.custom_ops")
    makes = ops.get_library_allowing_overwrite

    def given(namespace: str, name: str) -> Any:
        ops.OPDEF_TO_LIB[f"{namespace}::{name}"] = library
        return library

    ops.get_library_allowing_overwrite = given
    try:
        yield
    finally:
        ops.get_library_allowing_overwrite = makes


def _register(call_it: Callable[[Any, str, TorchLibraryCall, Any], object]) -> Callable[..., Maker]:
    def maker(block: Block, call: TorchLibraryCall, qualified: str, local: str) -> Maker:
        return lambda library: call_it(torch().library, qualified, call, library)

    return maker


_MAKERS: Mapping[TorchLibraryFunction, Callable[[Block, TorchLibraryCall, str, str], Maker]] = {
    TorchLibraryFunction.DEFINE: _define,
    TorchLibraryFunction.IMPL: _impl,
    TorchLibraryFunction.CUSTOM_OP: _custom_op,
    TorchLibraryFunction.REGISTER_KERNEL: _register(
        lambda layer, name, call, library: layer.register_kernel(name, call.on or None, stand_in, lib=library)
    ),
    TorchLibraryFunction.REGISTER_FAKE: _register(
        lambda layer, name, call, library: layer.register_fake(name, stand_in, lib=library)
    ),
    TorchLibraryFunction.REGISTER_AUTOGRAD: _register(
        lambda layer, name, call, library: layer.register_autograd(name, stand_in, lib=library)
    ),
    TorchLibraryFunction.REGISTER_VMAP: _register(
        lambda layer, name, call, library: layer.register_vmap(name, stand_in, lib=library)
    ),
    TorchLibraryFunction.REGISTER_AUTOCAST: _register(
        lambda layer, name, call, library: layer.register_autocast(name, _one(call), torch().float16, lib=library)
    ),
    TorchLibraryFunction.REGISTER_TORCH_DISPATCH: _register(
        lambda layer, name, call, library: layer.register_torch_dispatch(
            name, _class(_one(call)), stand_in, lib=library
        )
    ),
}

_PARTS: Mapping[TorchLibraryFunction, Callable[[TorchLibraryCall], Callable[[Any], object]]] = {
    TorchLibraryFunction.REGISTER_KERNEL: lambda part: (
        lambda made: made.register_kernel(list(part.on) or None, stand_in)
    ),
    TorchLibraryFunction.REGISTER_FAKE: lambda part: lambda made: made.register_fake(stand_in),
    TorchLibraryFunction.REGISTER_AUTOGRAD: lambda part: lambda made: made.register_autograd(stand_in),
    TorchLibraryFunction.REGISTER_VMAP: lambda part: lambda made: made.register_vmap(stand_in),
    TorchLibraryFunction.REGISTER_AUTOCAST: lambda part: (
        lambda made: made.register_autocast(_one(part), torch().float16)
    ),
    TorchLibraryFunction.REGISTER_TORCH_DISPATCH: lambda part: (
        lambda made: made.register_torch_dispatch(_class(_one(part)), stand_in)
    ),
}


def check(block: Block, call: TorchLibraryCall) -> None:
    """Whether a block holds what its call needs.

    Raises:
        Unmade: it does not.
    """
    for part in (call, *call.parts):
        if part.function in (TorchLibraryFunction.REGISTER_AUTOCAST, TorchLibraryFunction.REGISTER_TORCH_DISPATCH):
            _one(part)
    for part in call.parts:
        if part.function not in _PARTS:
            raise Unmade(f"{part.function} cannot be a part of a custom_op")


def _one(call: TorchLibraryCall) -> str:
    if len(call.on) != 1:
        raise Unmade(f"{call.function} is on one device type or class, and `on` has {len(call.on)}")
    return call.on[0]


def _class(reference: str) -> type:
    """A class to hang a torch dispatch rule on: PyTorch's own by name, for any other a mode that stands in for it."""
    module, _, name = reference.partition(":")
    if module.partition(".")[0] == "torch":
        found: object = getattr(import_module(module), name, None)
        if isinstance(found, type):
            return found
    mode: type = import_module("torch.utils._python_dispatch").TorchDispatchMode
    return _stand_in_class(name or "StandIn", mode)


@cache
def _stand_in_class(name: str, mode: type) -> type:
    return type(name, (mode,), {})


def _definition(block: Block) -> Def:
    found = next((one for one in block.registrations if isinstance(one, Def)), None)
    if found is None:
        raise Unmade("the block of a define or a custom_op has a def inside")
    return found


def _schema(definition: Def) -> FunctionSchema:
    if isinstance(definition.schema, OperatorName):
        raise Unmade("torch.library wants a schema and not a name alone")
    return definition.schema


def _bare(name: OperatorName) -> OperatorName:
    return OperatorName("", name.name, name.overload)


def _tags(definition: Def) -> tuple[Any, ...]:
    known = torch().Tag.__members__
    for tag in sorted(definition.tags - known.keys()):
        raise Unmade(f"this PyTorch has no tag {tag}")
    return tuple(known[tag] for tag in sorted(definition.tags))
