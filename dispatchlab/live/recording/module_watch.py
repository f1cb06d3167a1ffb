"""Watch module bodies while packages are imported: their registrations and imports, in program order."""

from __future__ import annotations

import builtins
import ctypes
import functools
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ExtensionFileLoader
from importlib.util import resolve_name
from itertools import pairwise
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from dispatchlab.live.bridge.native_libraries import knows_torch
from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.bridge.wrapped_functions import WrappedFunctions
from dispatchlab.live.introspection.package_paths import without_roots
from dispatchlab.live.introspection.registry_reader import all_dumps, fallback_rows
from dispatchlab.live.recording.module_blocks import Blocks, blocks_of
from dispatchlab.registries.model import RecordedFallback, read_dump, read_fallbacks

# Note [Whose registration it is]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registration belongs to the innermost module body that is running, whatever function it calls: `<module>` frames
# are on the stack, and the frame of the importing module lies below that of the imported one. An import of what is
# loaded already runs nothing and leaves no frame, yet it says that the importing module needs the other one. So
# `__import__` and `import_module` are wrapped, and every import by a module body counts. A thread has a stack of its
# own: what it registers belongs to the body that the main thread is in, which is the one that waits for it.
#
# C++ registers while a shared library is loaded. Whatever is new in the dumps after a library that knows PyTorch was
# loaded belongs to the module body that loaded it. A library that needs PyTorch has the name of its core in it.
# Backend fallbacks are in no dump: they are read right before and right after.

Native: TypeAlias = tuple[str, str, str]
"""A registration by C++, as dumps show it: operator, key, debug text without folders.

The key of a def is empty, and so is the operator of a backend fallback.
"""

PYTHON_LINE = re.compile(r"\.py:\d+$")
"""What the debug texts of Python's registrations end with."""


class ModuleWatch:
    """A watch over module bodies, which begins when its `with` block begins.

    Args:
        packages: the imported packages; a registration that no module body made belongs to the first package.
        roots: the folders that are removed from debug texts.
        dumps: the dumps of all operators; default: read them.
    """

    def __init__(self, packages: Sequence[str], roots: tuple[str, ...], dumps: Mapping[str, str] | None = None) -> None:
        self._bodies: dict[str, list[object]] = {}
        self._packages, self._roots = tuple(packages), roots
        self._before = frozenset(sys.modules)
        self._torch = os.path.join(os.path.dirname(torch().__file__), "")
        self._own = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        self._dumps = all_dumps() if dumps is None else dumps
        self.fallbacks: list[RecordedFallback] = []
        """The backend fallbacks that shared libraries registered while they were loaded, in order."""
        self._wrapped = WrappedFunctions()

    def __enter__(self) -> ModuleWatch:
        self._wrapped.wrap(builtins, "__import__", self._import)
        self._wrapped.wrap(importlib, "import_module", self._import_module)
        self._wrapped.wrap(ExtensionFileLoader, "create_module", self._create_module)
        self._wrapped.wrap(ctypes.CDLL, "__init__", self._dlopen)
        return self

    def __exit__(self, *error: object) -> None:
        self._wrapped.put_back()

    def registered(self, what: object) -> None:
        """Note that the running body has just made this registration."""
        self._add(what)

    def owners(self) -> dict[object, str]:
        """Return the module of each registration: those given to `registered`, and those by C++."""
        return {
            event: name
            for name, body in self._bodies.items()
            for item in body
            if not isinstance(item, str)
            for event in (item if isinstance(item, frozenset) else (item,))
        }

    def modules(self, numbers: Mapping[object, Sequence[int]]) -> Blocks:
        """Return the modules that register, and the chains of modules that their imports need.

        Args:
            numbers: the number of each registration, given to `registered` or made by C++; others are ignored.
        """
        owners = self.owners()
        found = {
            name: list[int | str](one for one in body if isinstance(one, str)) for name, body in self._bodies.items()
        }
        for event, own in numbers.items():
            found.setdefault(owners.get(event, self._packages[0]), []).extend(own)
        return blocks_of(found)

    def _import(
        self,
        original: Callable[..., Any],
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        importer = next(self._running(), None)
        try:
            return original(name, globals, locals, fromlist, level)
        finally:
            if importer is not None:
                base = name
                if level:
                    with suppress(ImportError, ValueError, TypeError):
                        base = resolve_name("." * level + name, str((globals or {}).get("__package__") or ""))
                self._imported(importer, [base, *(f"{base}.{each}" for each in fromlist or ())])

    def _import_module(self, original: Callable[..., Any], name: str, package: str | None = None) -> object:
        importer = next(self._running(), None)
        try:
            return original(name, package)
        finally:
            if importer is not None:
                with suppress(ImportError, ValueError, TypeError):
                    self._imported(importer, [resolve_name(name, package)])

    def _imported(self, importer: str, names: Iterable[str]) -> None:
        body = self._bodies.setdefault(importer, [])
        body += [each for each in names if each not in self._before and isinstance(sys.modules.get(each), ModuleType)]

    def _create_module(self, original: Callable[..., Any], loader: Any, spec: Any) -> object:
        with self._loading(getattr(spec, "origin", None)):
            return original(loader, spec)

    def _dlopen(self, original: Callable[..., Any], library: Any, name: Any = None, *more: Any, **named: Any) -> None:
        with self._loading(name):
            original(library, name, *more, **named)

    @contextmanager
    def _loading(self, path: object) -> Iterator[None]:
        """Load a shared library; it makes the new registrations, except those that Python made before."""
        if not isinstance(path, str | os.PathLike) or not knows_torch(path):
            yield
            return
        fallbacks = read_fallbacks(fallback_rows())
        yield
        before, self._dumps = self._dumps, all_dumps()
        came = [one for one in read_fallbacks(fallback_rows()) if one not in fallbacks]
        self.fallbacks += came
        new = {native("", one.key, without_roots(one.debug, self._roots)) for one in came}
        for operator, text in self._dumps.items():
            had = before.get(operator, "")
            if text != had:
                new |= _registrations_of(operator, text, self._roots) - _registrations_of(operator, had, self._roots)
        self._add(frozenset(new))

    def _add(self, what: object) -> None:
        running = list(self._running())
        if not running:
            running = [next(reversed(self._bodies), self._packages[0])]
        for inner, outer in pairwise(running):
            self._bodies.setdefault(outer, []).append(inner)
        self._bodies.setdefault(running[0], []).append(what)

    def _running(self) -> Iterator[str]:
        """Return the running module bodies, the innermost first, without PyTorch's and dispatchlab's.

        For a thread, the bodies that the main thread is running come last: one of them started the thread.
        """
        yield from self._bodies_on(sys._getframe(1))
        if threading.current_thread() is not threading.main_thread():
            yield from self._bodies_on(sys._current_frames().get(threading.main_thread().ident or 0))

    def _bodies_on(self, frame: FrameType | None) -> Iterator[str]:
        """Return the module bodies on one stack."""
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and not code.co_filename.startswith((self._torch, self._own, "<")):
                name = frame.f_globals.get("__name__")
                if isinstance(name, str) and name != "__main__" and not name.startswith("<"):  # as runpy has it
                    yield name
            frame = frame.f_back


def native(operator: object, key: object, debug: str) -> Native:
    """Return the stand-in for a C++ registration; the key of a def is None."""
    return str(operator), "" if key is None else str(key), debug


@functools.cache
def _registrations_of(name: str, text: str, roots: tuple[str, ...]) -> frozenset[Native]:
    with suppress(Exception):  # the recording code reports what cannot be read
        read = read_dump(text)
        found = {native(name, kernel.key, without_roots(kernel.debug, roots)) for kernel in read.kernels}
        if read.schema is not None:
            found.add(native(name, None, without_roots(read.debug, roots)))
        return frozenset(found)
    return frozenset()
