"""Watch registrations while packages are imported: which call of `torch.library` or the bindings, and from where.

`READERS` has a function for each method that registers: it takes the dispatch key of the library, and then what the
method takes, under the same names. Operators come out as they were named, without a namespace.

`Watch` puts itself in front of the functions that register, in a process that is there for nothing else, and writes
down every call with what it made. It changes nothing of what they do.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import FrameType
from typing import Any, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.registration_calls import T_T
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Kernel, KernelForm, TorchLibraryFunction
from dispatchlab.model.schema_parser import parse_inferred, parse_schema


@dataclass(frozen=True, slots=True)
class Site:
    """Where a registration was made.

    Args:
        file: the file.
        line: the line, from 1.
        module: the name of the module.
        via: the place in a function that was called there, as `file:line`; empty for none.
        by_torch: PyTorch registered for itself.
    """

    file: str
    line: int
    module: str
    via: str = ""
    by_torch: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Call:
    """A call that registered something.

    Args:
        site: where.
        namespace: the namespace of its library.
        function: which function of `torch.library`; None for the bindings.
        operator: the name that it is about, without namespace; empty for a fallback and a claim.
        on: device types, or the class of a torch dispatch rule.
        made: what reached the dispatcher, in order; names are as they were given.
        parts: later calls on what `custom_op` gave.
        claims: the library that was made claims its namespace.
        released: it was taken back.
    """

    site: Site
    namespace: str
    function: TorchLibraryFunction | None = None
    operator: str = ""
    on: tuple[str, ...] = ()
    made: list[Def | Impl | Fallback] = field(default_factory=list)
    parts: list[Call] = field(default_factory=list)
    claims: bool = False
    released: bool = False


# Note [Call sites]
# ~~~~~~~~~~~~~~~~~
# PyTorch prints the line that made the library, which is one line of torch/library.py for everything that is registered
# without a library of one's own. Here a registration is where the code outside of `torch.library` made it. If that is
# in a function, a decorator of the package say, the site is the line of the module that called it, and the function is
# told as well: `registered at my/ops.py:12 via my/utils.py:250`. Whether PyTorch registers for itself is decided by the
# first frame outside of `torch.library`: a package that imports a part of PyTorch makes it load, and did not write it.

_IN_IMPL = {
    "register_autograd": TorchLibraryFunction.REGISTER_AUTOGRAD,
    "register_vmap": TorchLibraryFunction.REGISTER_VMAP,
    "register_autocast": TorchLibraryFunction.REGISTER_AUTOCAST,
}


class CallSites:
    """Looks at who called.

    Args:
        file: the file of the functions that ask, whose frames are passed over.
    """

    def __init__(self, file: str) -> None:
        self._torch = os.path.join(os.path.dirname(torch().__file__), "")
        self._layer = (os.path.join(self._torch, "library.py"), os.path.join(self._torch, "_library", ""))
        self._passed = (file, __file__, functools.__file__, contextlib.__file__, "<frozen importlib")

    def here(self) -> Site:
        """The place that registers now. See Note [Call sites]."""
        outside = (frame for frame in self._frames() if not frame.f_code.co_filename.startswith(self._layer))
        first = next(outside, None)
        if first is None:
            return Site("<unknown>", 0, "")
        at = Site(first.f_code.co_filename, first.f_lineno, str(first.f_globals.get("__name__", "")))
        if at.file.startswith(self._torch):
            return replace(at, by_torch=True)
        if first.f_code.co_name == "<module>":
            return at
        for frame in outside:
            if frame.f_code.co_name == "<module>" and not frame.f_code.co_filename.startswith(self._torch):
                name = str(frame.f_globals.get("__name__", ""))
                if name == "__main__" or name.startswith("dispatchlab."):
                    break
                return Site(frame.f_code.co_filename, frame.f_lineno, name, via=str(at))
        return at

    def function(self) -> tuple[TorchLibraryFunction, tuple[str, ...]] | None:
        """The function of `torch.library` that led here, and on what, if it is one of those that end in an impl."""
        for frame in self._frames():
            if not frame.f_code.co_filename.startswith(self._layer):
                return None
            found = _IN_IMPL.get(frame.f_code.co_qualname.partition(".")[0])
            if found is not None:
                device = frame.f_locals.get("device_type") if found is TorchLibraryFunction.REGISTER_AUTOCAST else None
                return found, () if device is None else (str(device),)
        return None

    def is_inside(self, function: str) -> bool:
        """Whether a function of `torch.library` with this qualified name led here."""
        for frame in self._frames():
            if not frame.f_code.co_filename.startswith(self._layer):
                return False
            if frame.f_code.co_qualname == function:
                return True
        return False

    def _frames(self) -> Iterator[FrameType]:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if not frame.f_code.co_filename.startswith(self._passed):
                yield frame
            frame = frame.f_back


Made: TypeAlias = list[Def | Impl | Fallback]


def _key(given: object) -> DispatchKey | None:
    text = given if isinstance(given, str) else str(getattr(given, "name", given))
    return (parse_key(text) or None) if text else None


def _name(text: str) -> OperatorName:
    name, _, overload = text.rpartition("::")[2].partition(".")
    return OperatorName("", name, overload)


def _define(key: str, schema: str, alias_analysis: str = "", tags: object = ()) -> Made:
    parsed = parse_schema(schema)
    names = tags if isinstance(tags, tuple | list) else (tags,)
    kind = AliasKind(alias_analysis) if alias_analysis else AliasKind.FROM_SCHEMA
    return [Def(parsed, kind, frozenset(tag.name for tag in names))]


def _def(key: str, schema: str, alias: str = "") -> Made:
    return _define(key, schema, alias)


def _legacy(key: str, schema: str) -> Made:
    return [Def(parse_schema(schema), None)]


def _impl(key: str, name: str, dispatch: object, func: Any, with_keyset: bool = False) -> Made:  # noqa: FBT001, FBT002  # as the bindings have it
    fallthrough = func is torch().library.fallthrough_kernel
    kernel = Kernel(KernelForm.FALLTHROUGH if fallthrough else KernelForm.BOXED)
    return [Impl(_name(name), _key(dispatch) or _key(key), kernel)]


def _impl_t_t(key: str, name: str, dispatch: object = "", debug: str = "") -> Made:
    return [Impl(_name(name), _key(dispatch) or _key(key), Kernel(KernelForm.UNBOXED, parse_inferred(T_T)))]


def _fallback(key: str, dispatch: object, func: Any, with_keyset: bool = False) -> Made:  # noqa: FBT001, FBT002  # as the bindings have it
    fallthrough = func is torch().library.fallthrough_kernel
    return [Fallback(_key(dispatch) or _key(key), Kernel(KernelForm.FALLTHROUGH if fallthrough else KernelForm.BOXED))]


def _fallthrough(key: str, dispatch: object = "") -> Made:
    return [Fallback(_key(dispatch) or _key(key), Kernel(KernelForm.FALLTHROUGH))]


def _views(key: str, name: str) -> Made:
    return [Impl(_name(name), DispatchKey.ADInplaceOrView, Kernel())]


def _aoti(key: str, ns: str, op_name_with_overload: str, dispatch: object) -> Made:
    return [Impl(_name(op_name_with_overload), _key(dispatch) or _key(key), Kernel())]


READERS: dict[str, Callable[..., Made]] = {
    "define": _define,
    "def_": _def,
    "def_legacy": _legacy,
    "impl": _impl,
    "impl_t_t": _impl_t_t,
    "fallback": _fallback,
    "fallback_fallthrough": _fallthrough,
    "register_ad_inplace_or_view_fallback": _views,
    "impl_with_aoti_compile": _aoti,
}


_PARTS = (
    TorchLibraryFunction.REGISTER_KERNEL,
    TorchLibraryFunction.REGISTER_FAKE,
    TorchLibraryFunction.REGISTER_AUTOGRAD,
    TorchLibraryFunction.REGISTER_VMAP,
    TorchLibraryFunction.REGISTER_AUTOCAST,
    TorchLibraryFunction.REGISTER_TORCH_DISPATCH,
)


@dataclass(slots=True)
class _Module:
    """A library of the bindings."""

    namespace: str
    key: str
    calls: list[Call] = field(default_factory=list)
    custom_op: Call | None = None


class Watch:
    """Everything that is registered while it is on.

    >>> with Watch() as watch:
    ...     import_module("my_package")
    >>> watch.calls
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.unread: list[str] = []
        self._modules: dict[int, _Module] = {}
        self._active: Call | None = None
        self._undo: list[Callable[[], None]] = []
        self._sites = CallSites(__file__)

    def __enter__(self) -> Watch:
        try:
            self._wrap_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wrap_all(self) -> None:
        c, library, ops = bindings(), torch().library.Library, import_module("torch._library.custom_ops")
        self._wrap(c, "_dispatch_library", self._library)
        for name, made in READERS.items():
            if hasattr(c._DispatchModule, name):
                self._wrap(c._DispatchModule, name, functools.partial(self._binding, made))
        self._wrap(c._DispatchModule, "reset", self._reset)
        self._wrap(library, "define", functools.partial(self._layered, TorchLibraryFunction.DEFINE))
        self._wrap(library, "impl", functools.partial(self._layered, TorchLibraryFunction.IMPL))
        self._wrap(library, "_register_fake", self._fake)
        self._wrap(library, "_register_torch_dispatch_rule", self._rule)
        self._wrap(ops, "get_library_allowing_overwrite", self._custom_op)
        for function in _PARTS:
            self._wrap(ops.CustomOpDef, str(function), functools.partial(self._part, function))

    def __exit__(self, *error: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str, around: Callable[..., object]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> object:
            return around(original, *arguments, **named)

        setattr(owner, name, wrapper)
        self._undo.append(lambda: setattr(owner, name, original))

    def _library(
        self, original: Callable[..., Any], kind: str, name: str, dispatch: str, *more: Any, **named: Any
    ) -> object:
        library = original(kind, name, dispatch, *more, **named)
        module = self._modules[id(library)] = _Module(name, dispatch)
        if kind == "DEF":
            self._keep(module, Call(self._sites.here(), name, claims=True))
        return library

    def _binding(
        self,
        made: Callable[..., Made],
        original: Callable[..., Any],
        module: Any,
        *arguments: Any,
        **named: Any,
    ) -> object:
        result = original(module, *arguments, **named)
        known = self._modules.get(id(module))
        if known is None:  # a library that was there before the watch
            return result
        try:
            registrations = made(known.key, *arguments, **named)
        except DispatchLabError as error:
            self.unread.append(f"{self._sites.here()}: {str(error).splitlines()[0]}")
            return result
        call = self._active or known.custom_op
        if call is None:
            name = next((one.operator.name for one in registrations if not isinstance(one, Fallback)), "")
            call = self._keep(known, Call(self._sites.here(), known.namespace, operator=name))
        call.made += registrations
        return result

    def _reset(self, original: Callable[..., Any], module: Any) -> object:
        known = self._modules.get(id(module))
        for call in known.calls if known is not None else ():
            call.released = True
        return original(module)

    def _known(self, library: Any) -> _Module:
        """The C++ library of a `torch.library.Library`, which may be older than the watch."""
        return self._modules.setdefault(id(library.m), _Module(library.ns, library.dispatch_key))

    def _layered(
        self, function: TorchLibraryFunction, original: Callable[..., Any], library: Any, *arguments: Any, **named: Any
    ) -> object:
        def run() -> object:
            return original(library, *arguments, **named)

        first = arguments[0] if arguments else named.get("schema", named.get("op_name"))
        if function is TorchLibraryFunction.DEFINE:
            return self._made(library, function, str(first).partition("(")[0], run)
        name = first if isinstance(first, str) else str(getattr(first, "_name", first))
        function, on = self._sites.function() or (function, ())
        return self._made(library, function, name, run, on)

    def _fake(
        self, original: Callable[..., Any], library: Any, name: str, fn: Any, level: int = 1, **named: Any
    ) -> object:
        level = named.pop("_stacklevel", level)
        return self._made(
            library, TorchLibraryFunction.REGISTER_FAKE, name, lambda: original(library, name, fn, level + 4, **named)
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
    ) -> object:
        known = self._known(library)
        if self._active is not None or known.custom_op is not None:
            return run()
        call = Call(self._sites.here(), known.namespace, function, name.rpartition("::")[2], on)
        with self._while(call):
            result = run()
        self._keep(known, call)
        return result

    def _custom_op(self, original: Callable[..., Any], namespace: str, name: str) -> object:
        library = original(namespace, name)
        module = self._modules[id(library.m)]
        module.custom_op = self._keep(module, Call(self._sites.here(), namespace, TorchLibraryFunction.CUSTOM_OP, name))
        return library

    def _part(
        self, function: TorchLibraryFunction, original: Callable[..., Any], opdef: Any, *arguments: Any, **named: Any
    ) -> object:
        result = original(opdef, *arguments, **named)
        known = self._modules.get(id(opdef._lib.m))
        call = known.custom_op if known is not None else None
        if call is None:
            return result
        on = _on(function, arguments, named)
        if function is TorchLibraryFunction.REGISTER_KERNEL and self._sites.is_inside("custom_op.<locals>.inner"):
            call.on = on
        elif not (
            function is TorchLibraryFunction.REGISTER_KERNEL and self._sites.is_inside("CustomOpDef.register_kernel")
        ):
            call.parts.append(Call(self._sites.here(), call.namespace, function, call.operator, on))
        return result

    def _keep(self, module: _Module, call: Call) -> Call:
        module.calls.append(call)
        self.calls.append(call)
        return call

    @contextlib.contextmanager
    def _while(self, call: Call) -> Iterator[None]:
        self._active = call
        try:
            yield
        finally:
            self._active = None


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
