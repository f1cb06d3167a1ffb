"""Whoever registers or releases while a trace is on: the slots that PyTorch writes then have no probes any more."""

from __future__ import annotations

import ctypes
import importlib.machinery
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from dispatchlab.live.bridge.native_libraries import knows_torch
from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.bridge.wrapped_functions import WrappedFunctions

# Note [Registrations during a trace]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registration writes the slots that it concerns, and with them goes the probe. From Python, all registrations go
# through the methods of one class, which are wrapped for as long as a trace lasts: after each, the operator that it
# names gets its probes back. A fallback and a release of a library whose registrations nobody saw concern every
# operator. C++ registers when a library is loaded; when one that has to do with PyTorch was, every operator is looked
# at. Only what is registered in another way, such as by a thread of C++ on its own, goes unseen.

_BY_NAME = ("impl", "define", "impl_t_t", "def_", "def_legacy", "def_name_t_t", "def_schema_t_t")
_BY_NAME_MORE = ("impl_with_aoti_compile", "register_ad_inplace_or_view_fallback")
_FOR_ALL = ("fallback", "fallback_fallthrough")
_NAME = re.compile(r"[\w:.]+")


class Attach(Protocol):
    """Gives operators their probes, all of them without names."""

    def __call__(self, names: Iterable[str] | None = None) -> None: ...


class RegistrationWatch:
    """Wraps what registers, between `start` and `stop`.

    Args:
        attach: what to do when somebody has registered.
        lock: is held meanwhile, and from before the registration on.
    """

    def __init__(self, attach: Attach, lock: AbstractContextManager[object]) -> None:
        self._attach = attach
        self._lock = lock
        self._wrapped = WrappedFunctions()
        self._namespaces: dict[int, str] = {}
        self._touched: dict[int, set[str]] = {}

    def start(self) -> None:
        """Begin to watch."""
        c = bindings()
        module = c._DispatchModule
        self._wrap(c, "_dispatch_library", self._made)
        for name in (*_BY_NAME, *_BY_NAME_MORE):
            self._wrap(module, name, self._named)
        for name in _FOR_ALL:
            self._wrap(module, name, self._all)
        self._wrap(module, "reset", self._released)
        self._wrap(ctypes.CDLL, "__init__", self._loaded, locked=False)
        self._wrap(importlib.machinery.ExtensionFileLoader, "create_module", self._imported, locked=False)

    def stop(self) -> None:
        """Stop watching; harmless when it has not begun."""
        self._wrapped.put_back()

    def _wrap(self, owner: Any, name: str, then: Callable[..., None], *, locked: bool = True) -> None:
        def around(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            with self._lock if locked else nullcontext():
                result = original(*arguments, **keywords)
                then(result, *arguments, **keywords)
            return result

        self._wrapped.wrap(owner, name, around)

    def _made(self, library: object, kind: str, namespace: str, *more: Any, **keywords: Any) -> None:
        self._namespaces[id(library)] = namespace

    def _named(self, result: object, library: object, text: object = "", *more: Any, **keywords: Any) -> None:
        found = _NAME.match(str(keywords.get("name", keywords.get("schema", text))).strip())
        namespace = self._namespaces.get(id(library), "")
        if found is None or (not namespace and "::" not in found[0]):
            self._attach()
            return
        name = found[0] if "::" in found[0] else f"{namespace}::{found[0]}"
        self._touched.setdefault(id(library), set()).add(name)
        self._attach((name,))

    def _all(self, *ignored: Any, **keywords: Any) -> None:
        self._attach()

    def _released(self, result: object, library: object) -> None:
        touched = self._touched.pop(id(library), None)
        self._attach(touched)  # every operator when nobody knows what it registered

    def _loaded(self, result: object, library: ctypes.CDLL, *more: Any, **keywords: Any) -> None:
        self._look_at(library._name)

    def _imported(self, result: object, loader: object, spec: importlib.machinery.ModuleSpec) -> None:
        self._look_at(spec.origin)

    def _look_at(self, path: object) -> None:
        if isinstance(path, str) and knows_torch(path):
            self._attach()
