"""Make the `torch.library` call of a block, on a library object whose debug texts carry the number of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any, TypeAlias

from dispatchlab.live.bridge.call_mark import CallMark
from dispatchlab.live.bridge.expressible import NotExpressibleError, stand_in, tags_of
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Def, Impl, TorchLibraryCall, TorchLibraryFunction
from dispatchlab.model.schema import FunctionSchema, clone_with_name, source_text

# Note [Calls of torch.library, live]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Each call gets a `torch.library.Library` whose C++ library names our number in place of a file and a line, so that its
# kernels are recognised like all others. `custom_op` makes its library itself; during the call it is handed ours, after
# the one that was there under that name is destroyed, as PyTorch does it. PyTorch keeps the library of a `custom_op` by
# name, so a refused `custom_op` leaves what it registered before the refusal. Any other refused call takes its library
# along: the user's own would live on until the module that holds it goes.
#
# What reaches registries of Python is a function. Each call has one of its own that knows the number, wherever PyTorch
# wraps it.
#
# When the garbage collector finds a library that was destroyed, PyTorch forgets the operators of its names once more,
# those that were defined anew among them. Here the library has no names then, so that nothing depends on when that is.

_OF_LIBRARY = TorchLibraryFunction.DEFINE, TorchLibraryFunction.IMPL
"""The functions that are methods of `Library`."""

_OWN_TAGS = frozenset({"pt2_compliant_tag"})
"""The tags that `custom_op` gives every operator."""

_OWN_TAGS_WITHOUT_PARAMETER = frozenset({"needs_fixed_stride_order"})
"""Those that it gives, too, where it takes no tags: before PyTorch 2.8."""

Make: TypeAlias = Callable[[Any], object]
"""Makes a call on a `torch.library.Library`; what it returns is kept as long as the registration."""


class MadeLibrary:
    """The library of a call that was made; `reset` takes the registrations back.

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
        library = self._library
        if library.m is None:  # another `custom_op` has destroyed it
            for handle in library._registration_handles:
                handle.destroy()
            library._registration_handles.clear()
        else:
            library._destroy()
        library._op_defs.clear()
        library._op_impls.clear()
        self._kept = None
        if self._custom_op is not None:
            ops = torch()._library.custom_ops
            if ops.OPDEF_TO_LIB.get(self._custom_op) is library:
                del ops.OPDEF_TO_LIB[self._custom_op]
            if getattr(ops.OPDEFS.get(self._custom_op), "_lib", None) is library:
                del ops.OPDEFS[self._custom_op]


def torch_library_call(
    block: Block, call: TorchLibraryCall, prefix: str, mark: CallMark, number: int
) -> Callable[[], MadeLibrary]:
    """Return the call of a block, made each time the result is called.

    Args:
        block: the block.
        call: what made it.
        prefix: stands before every namespace.
        mark: what the library is made with in place of a file and a line.
        number: the number of the call.

    Raises:
        NotExpressibleError: the block does not hold what the call needs.
    """
    _check(block, call)
    namespace = prefix + (block.namespace or "")
    local = str(call.operator.without_namespace)
    qualified = f"{namespace}::{local}"
    make = _MAKERS.get(call.function, _by_name)(block, call, qualified, numbered(number))
    custom_op = qualified if call.function is TorchLibraryFunction.CUSTOM_OP else None

    def made() -> MadeLibrary:
        if block.namespace in getattr(torch().library, "_reserved_namespaces", ()):
            namespace_as_given(block.namespace)
        with _libraries_at(mark.file, mark.line(number)):
            library = torch().library.Library(namespace, "FRAGMENT")
            try:
                kept = make(library)
            except Exception as error:
                if custom_op is None or torch()._library.custom_ops.OPDEF_TO_LIB.get(custom_op) is not library:
                    MadeLibrary(library).reset()
                # Until 2.9 it is a bare assert.
                raise RuntimeError(f"{error}" or "Library object has been destroyed") from error
        return MadeLibrary(library, custom_op, kept)

    return made


@contextmanager
def _libraries_at(file: str, line: int) -> Iterator[None]:
    """Have every library name this file and line: until 2.7 a fake implementation makes one of its own."""
    made = torch().library.Library
    original = made.__init__

    def init(library: Any, namespace: str, *rest: object) -> None:
        original(library, namespace, *rest)
        library.m.reset()
        library.m = bindings()._dispatch_library("FRAGMENT", namespace, "", file, line)

    made.__init__ = init
    try:
        yield
    finally:
        made.__init__ = original


def _check(block: Block, call: TorchLibraryCall) -> None:
    library, ops = torch().library, import_module("torch._library.custom_ops")
    for part, owner in ((call, library), *((part, ops.CustomOpDef) for part in call.parts)):
        of_library = owner.Library if part.function in _OF_LIBRARY else owner
        if not hasattr(of_library, str(part.function)):
            raise NotExpressibleError(block, f"PyTorch {torch().__version__} has no {part.function}")
    on_one = TorchLibraryFunction.REGISTER_AUTOCAST, TorchLibraryFunction.REGISTER_TORCH_DISPATCH
    for part in (call, *call.parts):
        if part.function in on_one and len(part.on) != 1:
            reason = f"{part.function} is on one device type or class, and `on` has {len(part.on)}"
            raise NotExpressibleError(block, reason)
    for part in call.parts:
        if part.function in (*_OF_LIBRARY, TorchLibraryFunction.CUSTOM_OP):
            raise NotExpressibleError(block, f"{part.function} cannot be a part of a custom_op")


def namespace_as_given(namespace: str | None) -> None:
    """Make a library of a reserved namespace, which PyTorch refuses.

    Raises:
        RuntimeError: PyTorch's refusal.
    """
    try:
        torch().library.Library(namespace, "FRAGMENT")._destroy()
    except ValueError as error:
        raise RuntimeError(f"{error}") from error


NUMBER = "_dispatchlab_number"
"""The attribute of a function that has the number of its call."""


def numbered(number: int) -> Callable[..., object]:
    """Return a stand-in function that knows the number of its call."""

    def function(*arguments: object, **named: object) -> object:
        return stand_in(*arguments, **named)

    setattr(function, NUMBER, number)
    return function


def _define(block: Block, call: TorchLibraryCall, qualified: str, function: Any) -> Make:
    definition, schema = _definition(block)
    text, alias = source_text(clone_with_name(schema, schema.name.without_namespace)), str(definition.alias or "")
    tags = tags_of(definition.tags, block)
    return lambda library: library.define(text, alias, tags=tags)


def _impl(block: Block, call: TorchLibraryCall, qualified: str, function: Any) -> Make:
    registered = next((registration for registration in block.registrations if isinstance(registration, Impl)), None)
    if registered is None:
        raise NotExpressibleError(block, "the block of an impl has an impl inside")
    local, kernel = str(call.operator.without_namespace), registered.kernel
    key = "" if registered.key in (None, DispatchKey.Undefined) else str(registered.key)
    given = torch().library.fallthrough_kernel if kernel.is_fallthrough else kernel.function or function
    override = _override(block, call, torch().library.Library.impl)
    return lambda library: library.impl(local, given, key, with_keyset=kernel.with_keyset, **override)


def _by_name(block: Block, call: TorchLibraryCall, qualified: str, function: Any) -> Make:
    register = getattr(torch().library, call.function)
    override = _override(block, call, register)
    return lambda library: register(qualified, *_arguments(call, function), lib=library, **override)


def _arguments(call: TorchLibraryCall, function: Any) -> tuple[object, ...]:
    """Return the arguments of a function after the operator; methods of a `custom_op` take the same."""
    match call.function:
        case TorchLibraryFunction.REGISTER_KERNEL:
            return list(call.on) or None, function
        case TorchLibraryFunction.REGISTER_AUTOCAST:
            return call.on[0], torch().float16
        case TorchLibraryFunction.REGISTER_TORCH_DISPATCH:
            return _class(call.on[0]), function
        case _:
            return (function,)


def _override(block: Block, call: TorchLibraryCall, function: Callable[..., object]) -> dict[str, bool]:
    """Return the argument `allow_override` of a call, by name."""
    if call.allow_override is None:
        return {}
    if "allow_override" not in signature(function).parameters:
        raise NotExpressibleError(block, f"{call.function} of PyTorch {torch().__version__} has no allow_override")
    return {"allow_override": call.allow_override}


def _custom_op(block: Block, call: TorchLibraryCall, qualified: str, function: Any) -> Make:
    definition, schema = _definition(block)
    arguments: dict[str, Any] = {
        "mutates_args": [argument.name for argument in schema.arguments if argument.is_written],
        "device_types": call.on or None,
        "schema": source_text(clone_with_name(schema, OperatorName("", "x"))).removeprefix("x"),
    }
    takes_tags = "tags" in signature(torch().library.custom_op).parameters
    own = _OWN_TAGS if takes_tags else _OWN_TAGS | _OWN_TAGS_WITHOUT_PARAMETER
    tags = tags_of(definition.tags - own, block)
    if tags:
        if not takes_tags:
            raise NotExpressibleError(block, f"PyTorch {torch().__version__} gives no tags to a custom_op")
        arguments["tags"] = tags

    def make(library: Any) -> object:
        with _library_of(qualified, library):
            made = torch().library.custom_op(qualified, **arguments)(function)
        for part in call.parts:
            getattr(made, part.function)(*_arguments(part, function))
        return made

    return make


def reset_custom_ops(prefix: str) -> None:
    """Destroy the libraries of refused calls of `custom_op`; `prefix` stands before their namespaces."""
    libraries = torch()._library.custom_ops.OPDEF_TO_LIB
    for name in [name for name in libraries if name.startswith(prefix)]:
        MadeLibrary(libraries[name], name).reset()


@contextmanager
def _library_of(qualified: str, library: Any) -> Iterator[None]:
    """Have `custom_op` take this library. See Note [Calls of torch.library, live]."""
    ops: Any = import_module("torch._library.custom_ops")
    original = ops.get_library_allowing_overwrite

    def given(namespace: str, name: str) -> Any:
        older = ops.OPDEF_TO_LIB.pop(qualified, None)
        if older is not None:
            MadeLibrary(older).reset()
        ops.OPDEF_TO_LIB[qualified] = library
        return library

    ops.get_library_allowing_overwrite = given
    try:
        yield
    finally:
        ops.get_library_allowing_overwrite = original


def _autocast(block: Block, call: TorchLibraryCall, qualified: str, function: Any) -> Make:
    """Register a cast, and mark the Python kernel that PyTorch makes for it, even where it refuses the cast then."""
    register = _by_name(block, call, qualified, function)

    def make(library: Any) -> object:
        try:
            return register(library)
        finally:
            overload = None if qualified in torch()._library.custom_ops.OPDEFS else known_overload(qualified)
            for key, kernel in getattr(overload, "py_kernels", {}).items():
                if key.name.startswith("Autocast") and not hasattr(kernel, NUMBER):
                    setattr(kernel, NUMBER, getattr(function, NUMBER))

    return make


def known_overload(qualified: str) -> Any:
    """Return the object that `torch.ops` has for an operator now; None before the first access."""
    namespace, _, name = qualified.partition("::")
    base, _, overload = name.partition(".")
    packet = vars(vars(torch().ops).get(namespace, object)).get(base)
    return None if packet is None else vars(packet).get(overload or "default")


def forget_operator(qualified: str) -> None:
    """Have `torch.ops` look up an operator again, as it does when `torch.library` destroys one."""
    namespace, _, name = qualified.partition("::")
    known = vars(torch().ops).get(namespace)
    if known is None or name not in vars(known):
        return
    delattr(known, name)
    with suppress(ValueError):
        known._dir.remove(name)


_MAKERS: Mapping[TorchLibraryFunction, Callable[[Block, TorchLibraryCall, str, Any], Make]] = {
    TorchLibraryFunction.DEFINE: _define,
    TorchLibraryFunction.IMPL: _impl,
    TorchLibraryFunction.CUSTOM_OP: _custom_op,
    TorchLibraryFunction.REGISTER_AUTOCAST: _autocast,
}
"""What makes each call but those that `_by_name` makes."""


def _class(reference: str) -> type:
    """Return the class of a torch dispatch rule: PyTorch's own by name; for any other, a mode that stands in for it."""
    module, _, name = reference.partition(":")
    if module.partition(".")[0] == "torch":
        found: object = getattr(import_module(module), name, None)
        if isinstance(found, type):
            return found
    mode: type = import_module("torch.utils._python_dispatch").TorchDispatchMode
    return _stand_in_class(module, name or "StandIn", mode)


@cache
def _stand_in_class(module: str, name: str, mode: type) -> type:
    return type(name, (mode,), {"__module__": module, "__qualname__": name})


def _definition(block: Block) -> tuple[Def, FunctionSchema]:
    """Return the def in a block, and its schema."""
    found = next((registration for registration in block.registrations if isinstance(registration, Def)), None)
    if found is None:
        raise NotExpressibleError(block, "the block of a define or a custom_op has a def inside")
    if isinstance(found.schema, OperatorName):
        raise NotExpressibleError(block, "torch.library expects a schema, not a name alone")
    return found, found.schema
