"""Watch registrations while packages are imported: calls of `torch.library` and of the bindings, and their call sites.

`RegistrationWatch` wraps the functions that register, in a process that is there for nothing else, and writes down
every call with what it registered. It changes nothing of what they do.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from typing import Any, TypeAlias

from dispatchlab.live.bridge.call_mark import debug_text, file_of_libraries
from dispatchlab.live.bridge.call_sites import CallSite, CallSites
from dispatchlab.live.bridge.expressible import T_T
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.bridge.wrapped_functions import WrappedFunctions
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.names import OperatorName
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Kernel, KernelForm, TorchLibraryFunction
from dispatchlab.model.schema_parser import parse_inferred

Registered: TypeAlias = Def | Impl | Fallback


@dataclass(slots=True)
class WatchedCall:
    """A call that registered something.

    Args:
        site: the line that made it.
        namespace: the namespace of its library.
        function: the function of `torch.library`; None for the bindings.
        operator: the name that it is about, without namespace; empty for a fallback and a claim.
        on: device types, or the class of a torch dispatch rule.
        made: what reached the dispatcher, in order; names are as they were given.
        parts: later calls of the same module on what `custom_op` gave; those of another one are calls of their own.
        claims: whether the library that was made claims its namespace.
        released: whether it was taken back.
        allow_override: what it gave, where that is not what this PyTorch has anyway.
    """

    site: CallSite
    namespace: str
    function: TorchLibraryFunction | None = None
    operator: str = ""
    on: tuple[str, ...] = ()
    made: list[Registered] = field(default_factory=list)
    parts: list[WatchedCall] = field(default_factory=list)
    claims: bool = False
    released: bool = False
    allow_override: bool | None = None


@dataclass(slots=True, eq=False)
class LoggedRegistration:
    """A registration that is in force.

    Args:
        operator: the full name of the operator; empty for a backend fallback.
        key: the name of the key of a kernel or fallback; empty for a def.
        site: the line that made it.
        shown: the debug text that PyTorch shows for it; None when its library is older than the watch.
        is_formula: whether `register_autograd` made it.
    """

    operator: str
    key: str
    site: CallSite
    shown: str | None
    is_formula: bool


class RegistrationWatch:
    """Records everything that is registered while it is on.

    Args:
        kept: is called with the `id` of each call of `calls`, while the code that made it is running.

    >>> with RegistrationWatch() as watch:
    ...     import_module("my_package")
    >>> watch.calls
    """

    def __init__(self, kept: Callable[[int], None] | None = None) -> None:
        self.calls: list[WatchedCall] = []
        self.refused: list[WatchedCall] = []
        """The calls that PyTorch refused."""
        self._kept = kept
        self.unreadable: list[str] = []
        self._libraries: dict[int, _WatchedLibrary] = {}
        self._inside = _Inside()
        self._wrapped, self._releases = WrappedFunctions(), WrappedFunctions()
        self._sites = CallSites()
        self._in_force: dict[tuple[str, str], list[LoggedRegistration]] = {}

    def __enter__(self) -> RegistrationWatch:
        self.open()
        return self

    def open(self) -> None:
        """Begin, or go on after a pause; a second time is harmless."""
        if self._wrapped:
            return
        c, library, ops = bindings(), torch().library.Library, import_module("torch._library.custom_ops")
        file_of_libraries()  # which makes a library to find out, so it does before that is watched
        if not self._releases:
            self._releases.wrap(c._DispatchModule, "reset", self._reset)
        self._wrapped.wrap(c, "_dispatch_library", self._new_library)
        for name, reader in _READERS.items():
            self._wrapped.wrap(c._DispatchModule, name, functools.partial(self._binding, reader))
        self._wrapped.wrap(library, "define", functools.partial(self._torch_library, TorchLibraryFunction.DEFINE))
        self._wrapped.wrap(library, "impl", functools.partial(self._torch_library, TorchLibraryFunction.IMPL))
        self._wrapped.wrap(library, "_register_fake", self._fake)
        self._wrapped.wrap(library, "_register_torch_dispatch_rule", self._rule)
        self._wrapped.wrap(ops, "get_library_allowing_overwrite", self._custom_op)
        for function in _PARTS:
            self._wrapped.wrap(ops.CustomOpDef, str(function), functools.partial(self._part, function))

    def pause(self) -> None:
        """Watch nothing more, but note releases; a second pause is harmless."""
        self._wrapped.put_back()

    def __exit__(self, *error: object) -> None:
        self.pause()
        self._releases.put_back()

    def _new_library(
        self,
        original: Callable[..., Any],
        kind: str,
        name: str,
        dispatch: str = "",
        file: str = "",
        linenum: int = 0,
        *more: Any,
        **named: Any,
    ) -> object:
        try:
            library = original(kind, name, dispatch, file, linenum, *more, **named)
        except RuntimeError:
            if kind == "DEF":
                self.refused.append(WatchedCall(self._sites.here(), name, claims=True))
            raise
        known = self._libraries[id(library)] = _WatchedLibrary(name, dispatch, debug_text(file, linenum))
        known.alive = weakref.ref(library, functools.partial(self._gone, id(library)))
        site = self._sites.here()
        if kind == "DEF":
            self._keep(known, WatchedCall(site, name, claims=True))
        return library

    def _binding(
        self,
        reader: Callable[..., list[Registered]],
        original: Callable[..., Any],
        module: Any,
        *arguments: Any,
        **named: Any,
    ) -> object:
        known = self._libraries.get(id(module))
        try:
            result = original(module, *arguments, **named)
        except RuntimeError:
            if known is not None and known.custom_op is not None:
                known.custom_op.released = not known.custom_op.made  # PyTorch keeps what the library made before
                self.refused.append(known.custom_op)
            elif known is not None and self._inside.call is None:
                self.refused.append(WatchedCall(self._sites.here(), known.namespace, operator=_name_in(arguments)))
            raise
        if known is None:  # a library that was there before the watch
            return result
        try:
            registrations = reader(known.key, *arguments, **named)
        except Exception as error:  # the package goes on, whatever it registered
            lines = str(error).splitlines()
            self.unreadable.append(
                f"{self._sites.here()}: a registration cannot be read: {lines[0] if lines else type(error).__name__}"
            )
            return result
        call = self._inside.call or known.custom_op
        if call is None:
            name = next((one.operator.name for one in registrations if not isinstance(one, Fallback)), "")
            call = self._keep(known, WatchedCall(self._sites.here(), known.namespace, operator=name))
        call.made += registrations
        for one in registrations:
            self._log(known, one)
        return result

    def _log(self, library: _WatchedLibrary, one: Registered) -> None:
        operator = "" if isinstance(one, Fallback) else str(replace(one.operator, namespace=library.namespace))
        key = "" if isinstance(one, Def) else str(one.key or DispatchKey.CompositeImplicitAutograd)
        is_formula = self._sites.function() == (TorchLibraryFunction.REGISTER_AUTOGRAD, ())
        logged = LoggedRegistration(operator, key, self._sites.here(), library.shown, is_formula)
        library.logged.append(logged)
        self._in_force.setdefault((operator, key), []).append(logged)

    def _reset(self, original: Callable[..., Any], module: Any) -> object:
        known = self._libraries.get(id(module))
        if known is not None:
            self._released(known)
        return original(module)

    def _gone(self, library: int, _: object) -> None:
        """Note that a library of the bindings has died, so that another one may get its `id`."""
        known = self._libraries.pop(library, None)
        if known is not None:
            self._released(known)

    def _released(self, library: _WatchedLibrary) -> None:
        """Note that a library releases its registrations, or goes."""
        for call in library.calls:
            call.released = True
        library.calls.clear()
        for each in library.logged:
            self._in_force[each.operator, each.key].remove(each)
        library.logged.clear()

    def _torch_library(
        self, function: TorchLibraryFunction, original: Callable[..., Any], library: Any, *arguments: Any, **named: Any
    ) -> object:
        def run() -> object:
            return original(library, *arguments, **named)

        first = arguments[0] if arguments else named.get("schema", named.get("op_name"))
        if function is TorchLibraryFunction.DEFINE:
            return self._made(library, function, str(first).partition("(")[0], run)
        name = first if isinstance(first, str) else str(getattr(first, "_name", first))
        function, on = self._sites.function() or (function, ())
        override = _override(original, named) if function is TorchLibraryFunction.IMPL else None
        return self._made(library, function, name, run, on, override=override)

    def _fake(
        self, original: Callable[..., Any], library: Any, name: str, fn: Any, level: int = 1, **named: Any
    ) -> object:
        level = named.pop("_stacklevel", level)
        return self._made(
            library,
            TorchLibraryFunction.REGISTER_FAKE,
            name,
            lambda: original(library, name, fn, level + 4, **named),
            override=_override(original, named),
        )

    def _rule(self, original: Callable[..., Any], library: Any, name: str, kind: type, fn: Any) -> object:
        return self._made(
            library,
            TorchLibraryFunction.REGISTER_TORCH_DISPATCH,
            name,
            lambda: original(library, name, kind, fn),
            (f"{kind.__module__}:{kind.__qualname__}",),
        )

    def _made(
        self,
        library: Any,
        function: TorchLibraryFunction,
        name: str,
        run: Callable[[], object],
        on: tuple[str, ...] = (),
        *,
        override: bool | None = None,
    ) -> object:
        known = self._libraries.setdefault(id(library.m), _WatchedLibrary(library.ns, library.dispatch_key))
        if self._inside.call is not None or known.custom_op is not None:
            return run()
        operator = name.rpartition("::")[2]
        call = WatchedCall(self._sites.here(), known.namespace, function, operator, on, allow_override=override)
        try:
            with self._during(call):
                result = run()
        except RuntimeError:
            self.refused.append(call)
            raise
        self._keep(known, call)
        return result

    def _custom_op(self, original: Callable[..., Any], namespace: str, name: str) -> object:
        library = original(namespace, name)
        known = self._libraries[id(library.m)]
        call = WatchedCall(self._sites.here(), namespace, TorchLibraryFunction.CUSTOM_OP, name)
        known.custom_op = self._keep(known, call)
        return library

    def _part(
        self, function: TorchLibraryFunction, original: Callable[..., Any], opdef: Any, *arguments: Any, **named: Any
    ) -> object:
        known = self._libraries.get(id(opdef._lib.m))
        call = known.custom_op if known is not None else None
        if known is not None and function is TorchLibraryFunction.REGISTER_KERNEL:
            self._replace_kernels(known, opdef, _on(function, arguments, named))
        made_before = 0 if call is None else len(call.made)
        result = original(opdef, *arguments, **named)
        if known is None or call is None:
            return result
        on = _on(function, arguments, named)
        is_kernel = function is TorchLibraryFunction.REGISTER_KERNEL
        if is_kernel and self._sites.is_inside("custom_op.<locals>.inner"):
            call.on = on
        elif not (is_kernel and self._sites.is_inside("CustomOpDef.register_kernel")):
            part = WatchedCall(self._sites.here(), call.namespace, function, call.operator, on)
            if part.site.module == call.site.module:
                call.parts.append(part)
            else:  # whose import may come before or after that of others who call something for the operator
                part.made = call.made[made_before:]
                del call.made[made_before:]
                part.made = part.made or [Impl(_name(call.operator), key, Kernel()) for key in _keys_of(function, on)]
                self._keep(known, part)
        return result

    def _replace_kernels(self, library: _WatchedLibrary, opdef: Any, devices: tuple[str, ...]) -> None:
        """Move the sites of kernels that call another function from now on, of which the dispatcher does not hear."""
        replaced = tuple(device for device in devices if device in opdef._backend_fns)
        keys = {str(key) for key in _keys_of(TorchLibraryFunction.REGISTER_KERNEL, replaced) if replaced}
        for logged in library.logged:
            if logged.key in keys:
                logged.site = self._sites.here()

    def _keep(self, library: _WatchedLibrary, call: WatchedCall) -> WatchedCall:
        library.calls.append(call)
        return self._note(call)

    def _note(self, call: WatchedCall) -> WatchedCall:
        self.calls.append(call)
        if self._kept is not None:
            self._kept(id(call))
        return call

    @contextlib.contextmanager
    def _during(self, call: WatchedCall) -> Iterator[None]:
        self._inside.call = call
        try:
            yield
        finally:
            self._inside.call = None


class _Inside(threading.local):
    """The call of `torch.library` in which a thread is; another thread may register meanwhile."""

    call: WatchedCall | None = None


@dataclass(slots=True)
class _WatchedLibrary:
    """A library of the bindings, and the calls on it."""

    namespace: str
    key: str
    shown: str | None = None
    calls: list[WatchedCall] = field(default_factory=list)
    logged: list[LoggedRegistration] = field(default_factory=list)
    custom_op: WatchedCall | None = None
    alive: weakref.ref[Any] | None = None


_PARTS = (
    TorchLibraryFunction.REGISTER_KERNEL,
    TorchLibraryFunction.REGISTER_FAKE,
    TorchLibraryFunction.REGISTER_AUTOGRAD,
    TorchLibraryFunction.REGISTER_VMAP,
    TorchLibraryFunction.REGISTER_AUTOCAST,
    TorchLibraryFunction.REGISTER_TORCH_DISPATCH,
)


def _on(function: TorchLibraryFunction, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, ...]:
    given = arguments[0] if arguments else next(iter(named.values()), None)
    match function:
        case TorchLibraryFunction.REGISTER_KERNEL:
            given = named.get("device_types", arguments[0] if arguments else None)
            return () if given is None else (given,) if isinstance(given, str) else tuple(map(str, given))
        case TorchLibraryFunction.REGISTER_AUTOCAST:
            return (str(named.get("device_type", given)),)
        case TorchLibraryFunction.REGISTER_TORCH_DISPATCH:
            return (f"{given.__module__}:{given.__qualname__}",) if isinstance(given, type) else (str(given),)
        case _:
            return ()


def _keys_of(function: TorchLibraryFunction, on: tuple[str, ...]) -> Sequence[DispatchKey | None]:
    """Return the keys at which a call registers kernels of an operator that no `custom_op` made."""
    match function:
        case TorchLibraryFunction.REGISTER_FAKE:
            return [DispatchKey.Meta]
        case TorchLibraryFunction.REGISTER_AUTOGRAD:
            return [DispatchKey.Autograd]
        case TorchLibraryFunction.REGISTER_VMAP:
            return [DispatchKey.FuncTorchBatched]
        case TorchLibraryFunction.REGISTER_KERNEL:
            keys = [parse_key(bindings()._dispatch_key_for_device(each)) for each in on]
            return keys or [DispatchKey.CompositeExplicitAutograd]
        case TorchLibraryFunction.REGISTER_AUTOCAST:
            return [parse_key(f"Autocast{bindings()._dispatch_key_for_device(each)}") for each in on]
        case _:
            return []


def _override(function: Callable[..., object], named: Mapping[str, object]) -> bool | None:
    """Return the argument `allow_override` of a call, unless the function has it anyway."""
    if "allow_override" not in named:
        return None
    given, parameter = bool(named["allow_override"]), signature(function).parameters.get("allow_override")
    return None if parameter is None or given == parameter.default else given


# What each method of the bindings registers: its reader takes the dispatch key of the library and then what the method
# takes, under the same names. Operators come out as they were named, without a namespace.


def _key(given: object) -> DispatchKey | None:
    text = given if isinstance(given, str) else str(getattr(given, "name", given))
    return (parse_key(text) or None) if text else None


def _name(text: str) -> OperatorName:
    name, _, overload = text.rpartition("::")[2].partition(".")
    return OperatorName("", name, overload)


def _name_in(arguments: Sequence[object]) -> str:
    """Return the operator that a call of the bindings names first; empty for a fallback."""
    text = next((one.partition("(")[0] for one in arguments if isinstance(one, str)), "")
    return "" if text in DispatchKey.__members__ else text


def _define(key: str, schema: str, alias_analysis: str = "", tags: object = ()) -> list[Registered]:
    parsed = parse_printed(schema)
    names = tags if isinstance(tags, tuple | list) else (tags,)
    kind = AliasKind(alias_analysis) if alias_analysis else AliasKind.FROM_SCHEMA
    return [Def(parsed, kind, frozenset(tag.name for tag in names))]


def _def(key: str, schema: str, alias: str = "") -> list[Registered]:
    return _define(key, schema, alias)


def _impl(key: str, name: str, dispatch: object, func: Any, with_keyset: bool = False) -> list[Registered]:  # noqa: FBT001, FBT002  # as the bindings have it
    fallthrough = func is torch().library.fallthrough_kernel
    kernel = Kernel(KernelForm.FALLTHROUGH if fallthrough else KernelForm.BOXED)
    return [Impl(_name(name), _key(dispatch) or _key(key), kernel)]


def _impl_t_t(key: str, name: str, dispatch: object = "", debug: str = "") -> list[Registered]:
    return [Impl(_name(name), _key(dispatch) or _key(key), Kernel(KernelForm.UNBOXED, parse_inferred(T_T)))]


def _fallback(key: str, dispatch: object, func: Any, with_keyset: bool = False) -> list[Registered]:  # noqa: FBT001, FBT002  # as the bindings have it
    fallthrough = func is torch().library.fallthrough_kernel
    return [Fallback(_key(dispatch) or _key(key), Kernel(KernelForm.FALLTHROUGH if fallthrough else KernelForm.BOXED))]


def _fallthrough(key: str, dispatch: object = "") -> list[Registered]:
    return [Fallback(_key(dispatch) or _key(key), Kernel(KernelForm.FALLTHROUGH))]


def _views(key: str, name: str) -> list[Registered]:
    return [Impl(_name(name), DispatchKey.ADInplaceOrView, Kernel())]


def _aoti(key: str, ns: str, op_name_with_overload: str, dispatch: object) -> list[Registered]:
    return [Impl(_name(op_name_with_overload), _key(dispatch) or _key(key), Kernel())]


_READERS: dict[str, Callable[..., list[Registered]]] = {
    "define": _define,
    "def_": _def,
    "def_legacy": lambda key, schema: [Def(parse_printed(schema), None)],
    "impl": _impl,
    "impl_t_t": _impl_t_t,
    "fallback": _fallback,
    "fallback_fallthrough": _fallthrough,
    "register_ad_inplace_or_view_fallback": _views,
    "impl_with_aoti_compile": _aoti,
}
