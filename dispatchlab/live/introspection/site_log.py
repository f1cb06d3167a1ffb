"""Log who registers: the call site of each registration that Python makes while the log is on.

PyTorch's dumps name the line that made a library. `SiteLog` remembers the lines that registered on it, and puts them
into what was read from dumps, so that `ownership` and people learn who asked for a registration.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.call_mark import debug_text, file_of_libraries
from dispatchlab.live.bridge.call_sites import CallSite, CallSites, torch_folder
from dispatchlab.live.bridge.torch import bindings, import_packages, torch
from dispatchlab.live.bridge.wrapped_functions import WrappedFunctions
from dispatchlab.live.introspection.package_paths import site_chain
from dispatchlab.model.dump_format import Provenance, aliases_of, parse_table, row_text
from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import RecordedKernel, RecordedOperator, dump_text, read_dump
from dispatchlab.registries.ownership import Ownership, build_folder

# Note [Matching sites with dumps]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The kernels of an operator at one key are listed newest first, each with the line that made its library. The log has
# the registrations on each library that are in force, and knows that line too, unless the library is older than the
# log. So the entries for one operator and key are matched with the kernels from the newest on, those of one line with
# those of that line; kernels of C++ lie between them with texts of their own. Where the log has more entries than the
# dump has kernels, something went that the log has not seen go; then nothing is known, and the text stays as it is.
#
# A table names the kernel in each slot by the same text. Its provenance says at which key that kernel is registered.


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRegistration:
    """A registration that the log has seen.

    Args:
        operator: the full name of the operator; empty for a backend fallback.
        key: the name of the key of a kernel or fallback; empty for a def.
        site: who made it.
        shown: the debug text that PyTorch shows for it; None when its library is older than the log.
    """

    operator: str
    key: str
    site: CallSite
    shown: str | None


@dataclass(slots=True)
class _LoggedLibrary:
    """A library of the bindings."""

    namespace: str
    key: str
    shown: str | None
    made: list[LoggedRegistration]


class SiteLog:
    """Logs registrations between `open` and `pause`; what it wraps for that is as it was before afterwards."""

    def __init__(self) -> None:
        self._sites = CallSites()
        self._libraries: dict[int, _LoggedLibrary] = {}
        self._made: dict[tuple[str, str], list[LoggedRegistration]] = {}
        self._wrapped, self._releases = WrappedFunctions(), WrappedFunctions()

    def open(self) -> None:
        """Begin, or go on after a pause; a second time is harmless."""
        if self._wrapped:
            return
        c = bindings()
        file_of_libraries()  # which makes a library to find out, so it does before that is logged
        if not self._releases:
            self._releases.wrap(c._DispatchModule, "reset", self._reset)
        self._wrapped.wrap(c, "_dispatch_library", self._library)
        for name, reader in _READERS.items():
            self._wrapped.wrap(c._DispatchModule, name, functools.partial(self._registration, reader))

    def pause(self) -> None:
        """Log nothing more, but take note of what goes; a second time is harmless."""
        self._wrapped.put_back()

    def sites(self, operator: str, key: DispatchKey | None, shown: Sequence[str]) -> tuple[CallSite | None, ...]:
        """The site of each kernel of an operator at one key; None where it is not known.

        Args:
            operator: its full name; empty for backend fallbacks.
            key: the key; None for the def.
            shown: the debug texts of the kernels, newest first. See Note [Matching sites with dumps].
        """
        made = self._made.get((operator, "" if key is None else str(key)), [])
        if len(made) > len(shown):
            return (None,) * len(shown)
        left = list(made)
        return tuple(_matching(left, text) for text in shown)

    @property
    def modules(self) -> frozenset[str]:
        """The modules, but for those of PyTorch, whose lines made the registrations that are in force."""
        sites = (each.site for made in self._made.values() for each in made)
        return frozenset(site.module for site in sites if not site.by_torch)

    def placed(self, operator: RecordedOperator) -> RecordedOperator:
        """An operator whose debug texts name the call sites that are known.

        Args:
            operator: as its dump has it, with paths as PyTorch shows them.
        """
        name = str(operator.name)
        debug = operator.debug
        if operator.schema is not None:
            debug = _placed_text(self.sites(name, None, [operator.debug])[0], debug)
        kernels: list[RecordedKernel] = []
        for key in dict.fromkeys(kernel.key for kernel in operator.kernels):
            found = operator.kernels_at(key)
            sites = self.sites(name, key, [kernel.debug for kernel in found])
            kernels += [
                replace(kernel, debug=_placed_text(site, kernel.debug))
                for kernel, site in zip(found, sites, strict=True)
            ]
        return replace(operator, debug=debug, kernels=tuple(kernels))

    def _library(
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
        library = original(kind, name, dispatch, file, linenum, *more, **named)
        self._libraries[id(library)] = _LoggedLibrary(name, dispatch, debug_text(file, linenum), [])
        return library

    def _registration(
        self,
        reader: Callable[..., tuple[str, Any]],
        original: Callable[..., Any],
        module: Any,
        *args: Any,
        **named: Any,
    ) -> object:
        result = original(module, *args, **named)
        known = self._libraries.get(id(module)) or self._older(module)
        if known is None:
            return result
        operator, key = reader(*args, **named)
        if operator:
            operator = f"{known.namespace}::{operator.rpartition('::')[2]}"
        name = "" if key is None else _key_name(key) or known.key or "CompositeImplicitAutograd"
        made = LoggedRegistration(operator, name, self._sites.here(), known.shown)
        known.made.append(made)
        self._made.setdefault((made.operator, made.key), []).append(made)
        return result

    def _reset(self, original: Callable[..., Any], module: Any) -> object:
        result = original(module)
        known = self._libraries.pop(id(module), None)
        if known is not None:
            for each in known.made:
                self._made[each.operator, each.key].remove(each)
        return result

    def _older(self, module: Any) -> _LoggedLibrary | None:
        """The library of a module that is older than the log: a caller is a method of its `torch.library.Library`."""
        kind = torch().library.Library
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self._sites.is_user(frame):
            library = frame.f_locals.get("self")
            if isinstance(library, kind) and library.m is module:
                known = _LoggedLibrary(library.ns, library.dispatch_key, None, [])
                self._libraries[id(module)] = known
                return known
            frame = frame.f_back
        return None


def _matching(left: list[LoggedRegistration], text: str) -> CallSite | None:
    """The site of the newest of the entries that are left, if it can be the one with this debug text; it is taken."""
    for at in range(len(left) - 1, -1, -1):
        if left[at].shown == text:
            return left.pop(at).site
    if left and left[-1].shown is None:
        return left.pop().site
    return None


def _placed_text(site: CallSite | None, debug: str) -> str:
    return debug if site is None else site_text(site, ())


def site_text(site: CallSite, roots: tuple[str, ...]) -> str:
    """A call site as a debug text: `registered at my/ops.py:12 via my/utils.py:250`."""
    return f"registered at {site_chain(site, roots)}"


def placed_texts(log: SiteLog, dump: str, table: str) -> tuple[str, str]:
    """A dump and a table that name the call sites that are known; as they are when they cannot be read.

    Args:
        log: the log.
        dump: the dump of an operator, not empty.
        table: its computed table, or an empty text.
    """
    try:
        operator, rows = read_dump(dump), parse_table(table)
    except (DispatchLabError, ValueError):
        return dump, table
    placed = log.placed(operator)
    if placed == operator:
        return dump, table
    shown = {
        (kernel.key, kernel.debug): at.debug
        for kernel, at in zip(operator.kernels, placed.kernels, strict=True)
        if kernel.active
    }
    lines = []
    for key, entry in rows.items():
        sources = (key,) if entry.provenance is Provenance.KERNEL else aliases_of(entry.provenance)
        found = next((shown[at, entry.debug] for at in sources if (at, entry.debug) in shown), entry.debug)
        lines.append(row_text(key, str(entry._replace(debug=found))))
    return dump_text(placed), "".join(lines)


_of_imports: list[SiteLog] = []


def log_of_imports() -> SiteLog | None:
    """The log of all imports of this process that were logged; None when there were none."""
    return _of_imports[0] if _of_imports else None


def import_logged(packages: Iterable[str]) -> None:
    """Import packages of the user, and log who registers meanwhile.

    Raises:
        ImportFailedError: one cannot be imported.
        ImportEndedError: one calls `sys.exit`, or raises what no `except Exception` catches.
    """
    names = tuple(packages)
    if not names:
        return
    if not _of_imports:
        _of_imports.append(SiteLog())
    (log,) = _of_imports
    log.open()
    try:
        import_packages(names)
    finally:
        log.pause()


def running_ownership() -> Ownership:
    """What is PyTorch's own in this process."""
    folder = os.path.dirname(os.path.dirname(torch_folder()))
    known = bindings()._dispatch_dump("aten::relu")
    installed = dict.fromkeys(os.path.join(path, "") for path in (folder, os.path.realpath(folder)))
    return Ownership(build_folder(read_dump(known).debug), tuple(installed))


# What each method of the bindings registers: the operator as it was named, and the key as it was given; None for a def.


def _schema(schema: str, *more: Any, **named: Any) -> tuple[str, Any]:
    return schema.partition("(")[0], None


def _kernel(name: str, dispatch: object = "", *more: Any, **named: Any) -> tuple[str, Any]:
    return name, dispatch


def _fallback(dispatch: object = "", *more: Any, **named: Any) -> tuple[str, Any]:
    return "", dispatch


def _view(name: str) -> tuple[str, Any]:
    return name, DispatchKey.ADInplaceOrView


def _aoti(ns: str, op_name_with_overload: str, dispatch: object) -> tuple[str, Any]:
    return op_name_with_overload, dispatch


_READERS: dict[str, Callable[..., tuple[str, Any]]] = {
    "define": _schema,
    "def_": _schema,
    "def_legacy": _schema,
    "impl": _kernel,
    "impl_t_t": _kernel,
    "fallback": _fallback,
    "fallback_fallthrough": _fallback,
    "register_ad_inplace_or_view_fallback": _view,
    "impl_with_aoti_compile": _aoti,
}


def _key_name(given: object) -> str:
    return given if isinstance(given, str) else str(getattr(given, "name", given))
