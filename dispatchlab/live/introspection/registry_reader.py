"""Read the whole registry of the running PyTorch: every present operator, kernel and fallback.

Also read what PyTorch remembers about calls of `torch.library`.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from dispatchlab._gc_pause import collector_paused
from dispatchlab.live.bridge.reserved_namespaces import FALLBACK_ROWS, is_own
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.held_kernels import SlotReader
from dispatchlab.live.introspection.package_paths import package_roots, without_roots
from dispatchlab.live.introspection.python_registries import UNREADABLE, entries_of, read_whole_layer
from dispatchlab.live.introspection.queries import overload_order, privateuse1_name
from dispatchlab.live.introspection.site_log import import_logged, log_of_imports, placed_texts, site_text
from dispatchlab.model.dump_format import DumpError
from dispatchlab.model.names import overload_of, qualified
from dispatchlab.model.registration import TorchLibraryFunction
from dispatchlab.registries.model import (
    SLOTS_UNREADABLE,
    RecordedFallback,
    RecordedOperator,
    Registry,
    read_dump,
    read_fallbacks,
    registry_of,
)

# Note [What custom_op was given]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `custom_op` registers a Meta and an Autograd kernel whatever its author gives, so a dump does not tell an operator
# with a fake kernel from one whose fake kernel raises. The definition object knows, and it is among what Python
# registers, as fake kernels and rules of torch dispatch modes are.

_GIVEN: Mapping[tuple[str, str], TorchLibraryFunction] = {
    ("torch_library", "fake"): TorchLibraryFunction.REGISTER_FAKE,
    ("torch_library", "torch_dispatch"): TorchLibraryFunction.REGISTER_TORCH_DISPATCH,
    ("custom_ops", "custom_op"): TorchLibraryFunction.CUSTOM_OP,
    ("custom_ops", "fake"): TorchLibraryFunction.REGISTER_FAKE,
    ("custom_ops", "backward"): TorchLibraryFunction.REGISTER_AUTOGRAD,
}


def called_functions() -> dict[str, frozenset[TorchLibraryFunction]]:
    """Return the functions that were called for each operator, without operators that have none."""
    found: dict[str, set[TorchLibraryFunction]] = {}
    for registry in ("torch_library", "custom_ops"):
        with suppress(*UNREADABLE):
            for entry in entries_of(registry):
                function = _GIVEN.get((registry, entry.key.partition(" ")[0]))
                if function is TorchLibraryFunction.CUSTOM_OP:  # the fake kernel is one that it registers itself
                    found.get(entry.operator, set()).discard(TorchLibraryFunction.REGISTER_FAKE)
                if function is not None:
                    found.setdefault(entry.operator, set()).add(function)
    return {name: frozenset(functions) for name, functions in found.items()}


def record_registry(
    imports: Iterable[str] = (), *, only: Collection[str] | None = None, slots: bool = True
) -> Registry:
    """Record everything that is registered in this process.

    Args:
        imports: packages to import first, for what they register.
        only: record only these operators, and all fallbacks; default: every operator.
        slots: whether to read the content of slots, which takes most of the time.

    Returns:
        The registry, without the operators of dispatchlab itself. The debug texts of registrations that Python
        made while packages were imported name the registering lines; see Note [Call sites].

    Raises:
        TorchMissingError: PyTorch cannot be imported.
        ImportFailedError: one of `imports` cannot be imported.
        DumpError: the fallbacks cannot be read.
    """
    version, imported = str(torch().__version__), tuple(imports)
    import_logged(imported)
    roots = package_roots()
    with collector_paused():  # else it may release an operator without references while the reader reads it
        names = _names()
        if only is not None:
            names = [name for name in names if name in only]
        fallbacks = [_fallback(one, roots) for one in read_fallbacks(fallback_rows())]
        operators, unreadable = _readable(names, roots, slots=slots)
        found = registry_of(version, operators, fallbacks, imported)
        orders = _orders(found.names)
        return replace(found, privateuse1=privateuse1_name(), unreadable=tuple(unreadable), orders=orders)


def record_with_python(imports: Iterable[str] = ()) -> Registry:
    """Record all registrations of this process, then those of Python.

    Between the two, the parts of PyTorch that fill these registries are imported. Their registrations at the
    dispatcher are not in the result, which describes a process without these imports.

    Raises:
        DispatchLabError: as for `record_registry`.
    """
    registry = record_registry(imports)
    return replace(registry, python=read_whole_layer())


class RegistryReader:
    """A reader that reads all registrations of this process several times; it reads unchanged operators only once.

    Args:
        slots: whether the first read reads slots.
    """

    def __init__(self, *, slots: bool = True) -> None:
        self._slots = slots
        self._dumps: dict[str, str] = {}
        self._last: Registry | None = None

    def read(self, imports: Iterable[str] = ()) -> Registry:
        """Return all present registrations, as `record_registry` records them.

        Raises:
            DispatchLabError: as for `record_registry`.
        """
        last, had = self._last, self._dumps
        import_logged(imported := tuple(imports))
        self._dumps = all_dumps()
        if last is None:
            self._last = record_registry(imported, slots=self._slots)
            return self._last
        changed = {name for name, dump in self._dumps.items() if had.get(name) != dump}
        fresh = record_registry(imported, only=changed)
        kept = [one for one in last if (name := str(one.name)) in self._dumps and name not in changed]
        found = registry_of(fresh.torch, [*kept, *fresh], fresh.fallbacks, imported)
        unreadable = tuple(dict.fromkeys((*last.unreadable, *fresh.unreadable)))
        self._last = replace(found, privateuse1=fresh.privateuse1, unreadable=unreadable)
        return self._last


def _readable(names: Iterable[str], roots: tuple[str, ...], *, slots: bool) -> tuple[list[RecordedOperator], list[str]]:
    """Return the operators with readable dumps, and a sentence for each other operator."""
    operators: list[RecordedOperator] = []
    unreadable: list[str] = []
    reader = SlotReader()
    if not reader.can_read:
        unreadable.append(SLOTS_UNREADABLE)
    for name in names:
        try:
            operators.append(_operator(name, roots, reader if slots else None))
        except (DumpError, ValueError) as error:
            line = str(error).splitlines()[0]
            unreadable.append(f"{name} cannot be read and is left out: {line[:_LONG]}")
    return operators, unreadable


_LONG = 200


class RegistryMoments(NamedTuple):
    """A registry before and after the import of packages, and after garbage collection, with the registering calls."""

    before: Registry
    after: Registry
    kept: Registry
    functions: Mapping[str, frozenset[TorchLibraryFunction]]


def record_moments(imports: Iterable[str]) -> RegistryMoments:
    """Record the registry before packages are imported, after the imports, and after garbage collection.

    Raises:
        DispatchLabError: as for `record_registry`.
    """
    imported = tuple(imports)
    with collector_paused():  # else an operator without references may go unseen, or during the read
        reader = RegistryReader()
        before, after = reader.read(), reader.read(imported)
        gc.collect()
        kept = reader.read(imported)
        return RegistryMoments(before, after, kept, called_functions())


def record_operators(names: Collection[str]) -> Registry:
    """Record some operators of this process, with all fallbacks."""
    return record_registry(only=frozenset(names))


def all_dumps() -> dict[str, str]:
    """Return the dump of every operator, without operators of dispatchlab itself."""
    dump = bindings()._dispatch_dump
    return {name: dump(name) for name in _names()}


_untouched = count()


def fallback_rows() -> str:
    """Return the rows that the backend fallbacks fill, as printed for an operator without kernels."""
    name = f"untouched_{next(_untouched)}"
    library = bindings()._dispatch_library("FRAGMENT", FALLBACK_ROWS, "")
    library.define(f"{name}() -> ()", "")
    try:
        return str(bindings()._dispatch_dump_table(f"{FALLBACK_ROWS}::{name}"))
    finally:
        library.reset()


def _orders(operators: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return, for each name with several operators, the order in which a call tries them."""
    overloads: dict[str, set[str]] = {}
    for operator in operators:
        overloads.setdefault(qualified(operator), set()).add(overload_of(operator))
    several = {name: some for name, some in overloads.items() if len(some) > 1}
    return {name: tuple(one for one in overload_order(name) if one in some) for name, some in several.items()}


def _names() -> list[str]:
    return [name for name in bindings()._dispatch_get_all_op_names() if not is_own(name)]


def _operator(name: str, roots: tuple[str, ...], slots: SlotReader | None) -> RecordedOperator:
    dump = bindings()._dispatch_dump(name)
    read, log, held = read_dump(dump), log_of_imports(), None
    if slots is not None:
        table = bindings()._dispatch_dump_table(name)
        held = slots.text(name, read.kernels, table)
        if held == table:
            held = None
        elif held is not None and log is not None:
            dump, table = placed_texts(log, dump, table)
            held = slots.text(name, read_dump(dump).kernels, table)
    if log is not None:
        read = log.placed(read)
    kernels = tuple(
        one if (debug := without_roots(one.debug, roots)) == one.debug else replace(one, debug=debug)
        for one in read.kernels
    )
    debug, shown = without_roots(read.debug, roots), without_roots(held or "", roots)
    return replace(read, debug=debug, tags=tags_of(read), kernels=kernels, slots=shown)


def _fallback(fallback: RecordedFallback, roots: tuple[str, ...]) -> RecordedFallback:
    log = log_of_imports()
    site = None if log is None else log.sites("", fallback.key, [fallback.debug])[0]
    debug = fallback.debug if site is None else site_text(site, ())
    return replace(fallback, debug=without_roots(debug, roots))


def tags_of(operator: RecordedOperator) -> frozenset[str]:
    """Return the names of the tags of an operator; no dump shows them."""
    if operator.is_dangling:
        return frozenset()
    found = bindings()._get_operation_overload(operator.name.qualified, operator.name.overload)
    return frozenset() if found is None else frozenset(tag.name for tag in found[2])
