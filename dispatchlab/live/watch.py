"""Watches registrations while packages are imported: which call of `torch.library` or of the bindings, from where.

`Watch` puts itself in front of the functions that register, in a process that is there for nothing else, and writes
down every call with what it made. It changes nothing of what they do.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.binding_calls import READERS, Made
from dispatchlab.live.call_sites import CallSites
from dispatchlab.live.torch import bindings, torch
from dispatchlab.live.watched_call import Call
from dispatchlab.model.registration import Fallback, LayerFunction

_PARTS = (
    LayerFunction.REGISTER_KERNEL,
    LayerFunction.REGISTER_FAKE,
    LayerFunction.REGISTER_AUTOGRAD,
    LayerFunction.REGISTER_VMAP,
    LayerFunction.REGISTER_AUTOCAST,
    LayerFunction.REGISTER_TORCH_DISPATCH,
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
        self._wrap(library, "define", functools.partial(self._layered, LayerFunction.DEFINE))
        self._wrap(library, "impl", functools.partial(self._layered, LayerFunction.IMPL))
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
        self, function: LayerFunction, original: Callable[..., Any], library: Any, *arguments: Any, **named: Any
    ) -> object:
        def run() -> object:
            return original(library, *arguments, **named)

        first = arguments[0] if arguments else named.get("schema", named.get("op_name"))
        if function is LayerFunction.DEFINE:
            return self._made(library, function, str(first).partition("(")[0], run)
        name = first if isinstance(first, str) else str(getattr(first, "_name", first))
        function, on = self._sites.function() or (function, ())
        return self._made(library, function, name, run, on)

    def _fake(
        self, original: Callable[..., Any], library: Any, name: str, fn: Any, level: int = 1, **named: Any
    ) -> object:
        level = named.pop("_stacklevel", level)
        return self._made(
            library, LayerFunction.REGISTER_FAKE, name, lambda: original(library, name, fn, level + 4, **named)
        )

    def _rule(self, original: Callable[..., Any], library: Any, name: str, kind: type, fn: Any) -> object:
        return self._made(
            library,
            LayerFunction.REGISTER_TORCH_DISPATCH,
            name,
            lambda: original(library, name, kind, fn),
            (f"{kind.__module__}:{kind.__qualname__}",),
        )

    def _made(
        self, library: Any, function: LayerFunction, name: str, run: Callable[[], object], on: tuple[str, ...] = ()
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
        module.custom_op = self._keep(module, Call(self._sites.here(), namespace, LayerFunction.CUSTOM_OP, name))
        return library

    def _part(
        self, function: LayerFunction, original: Callable[..., Any], opdef: Any, *arguments: Any, **named: Any
    ) -> object:
        result = original(opdef, *arguments, **named)
        known = self._modules.get(id(opdef._lib.m))
        call = known.custom_op if known is not None else None
        if call is None:
            return result
        on = _on(function, arguments, named)
        if function is LayerFunction.REGISTER_KERNEL and self._sites.is_inside("custom_op.<locals>.inner"):
            call.on = on
        elif not (function is LayerFunction.REGISTER_KERNEL and self._sites.is_inside("CustomOpDef.register_kernel")):
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


def _on(function: LayerFunction, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, ...]:
    given = arguments[0] if arguments else next(iter(named.values()), None)
    match function:
        case LayerFunction.REGISTER_KERNEL:
            given = named.get("device_types", arguments[0] if arguments else None)
            return () if given is None else (given,) if isinstance(given, str) else tuple(map(str, given))
        case LayerFunction.REGISTER_AUTOCAST:
            return (str(named.get("device_type", given)),)
        case LayerFunction.REGISTER_TORCH_DISPATCH:
            return (f"{given.__module__}:{given.__qualname__}",) if isinstance(given, type) else (str(given),)
        case _:
            return ()
