"""Read what Python registers in the running PyTorch, by the tables of `pytorch/bridge/registry_tables.py`.

Nothing is imported that was not asked for. Where a version keeps a registry elsewhere, or keeps something else in it,
the registry is reported as not found.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FrameType
from typing import NamedTuple

from dispatchlab._gc_pause import collector_paused
from dispatchlab.model.python_layer import IMPORTS, PYTHON_REGISTRIES, PythonRegistration
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory, python_layer
from dispatchlab.pytorch.bridge.call_sites import is_api_file
from dispatchlab.pytorch.bridge.registry_tables import UNREADABLE, Entry, entries_of
from dispatchlab.pytorch.bridge.reserved_namespaces import is_own
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.introspection.package_paths import package_roots
from dispatchlab.pytorch.introspection.python_sites import FunctionSites

# Note [The line of a lowering that a factory made]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The lowering of an elementwise operator is `make_pointwise.<locals>.inner`, and a fallback is
# `fallback_handler.<locals>.handler`: one line for hundreds of operators. The line that says something is that of the
# call in the module, `register_pointwise(aten.exp, ...)`, and nothing keeps it. So the interpreter's profiler watches
# the calls of `_register_lowering` while a module is imported, which costs 0.8 s of CPU time once, and only for a
# recording of everything. What was imported before keeps the line of its factory.

_REGISTERS = "_register_lowering"
"""The function of Inductor that every registration of a lowering goes through."""

_DEEP = 6
"""How many calls there may be between the line of a module and the function that registers."""


class _Call(NamedTuple):
    lowering: object
    function: object
    code: CodeType | None
    file: str
    line: int


class LoweringCalls:
    """The calls that registered lowerings.

    Args:
        sites: finds the function behind a lowering.
    """

    def __init__(self, sites: FunctionSites) -> None:
        self._sites = sites
        self._calls: dict[int, _Call] = {}
        self._functions: Counter[CodeType | None] = Counter()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the calls that are made inside, unless a profiler is on that is somebody else's."""
        if sys.getprofile() is not None:
            yield
            return
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(None)
            each = {id(call.function): call.code for call in self._calls.values()}
            self._functions = Counter(each.values())

    def site(self, lowering: object) -> str:
        """The line of the call that registered a lowering; empty where its function has a line of its own."""
        call = self._calls.get(id(lowering))
        if call is None or call.code is None or self._functions[call.code] < 2:
            return ""
        return self._sites.line(call.file, call.line)

    def _seen(self, frame: FrameType, event: str, result: object) -> None:
        if event != "return" or frame.f_code.co_name != _REGISTERS or result is None:
            return
        caller = frame.f_back
        for _ in range(_DEEP):
            if caller is None:
                return
            if caller.f_code.co_name == "<module>":
                function = self._sites.unwrapped(result)
                code = getattr(function, "__code__", None)
                self._calls[id(result)] = _Call(result, function, code, caller.f_code.co_filename, caller.f_lineno)
                return
            caller = caller.f_back


def read_whole_layer() -> PythonLayerInMemory:
    """Everything that the Python-side registries have after every module of `IMPORTS` is imported.

    Returns:
        The layer. A registry that is not found is named in `missing`; a module that nobody imported, and one that
        cannot be imported here, in `not_imported`.
    """
    sites = FunctionSites(package_roots())
    calls = LoweringCalls(sites)  # See Note [The line of a lowering that a factory made]
    found, missing = _read_all(sites)
    kept = {_slot(one): one for one in found}
    failed: list[str] = []
    for module in IMPORTS:
        if module in sys.modules:
            continue
        try:
            with calls.watched():
                import_module(module)
        except Exception as error:  # a build of PyTorch without this part
            first = (str(error).splitlines() or [type(error).__name__])[0]
            failed.append(f"{module} cannot be imported: {first[:_LONG]}")
            continue
        found, missing = _read_all(sites, calls=calls)
        for one in found:
            known = kept.get(_slot(one))
            needs = module if known is None else known.needs
            kept[_slot(one)] = one._replace(needs=needs)
        gone = kept.keys() - {_slot(one) for one in found}
        for slot in gone:
            del kept[slot]
    not_imported = [module for module in IMPORTS if module not in sys.modules]
    return python_layer(str(torch().__version__), kept.values(), sorted(missing), not_imported, failed)


_LONG = 200


def read_operators(operators: Iterable[str]) -> PythonLayerInMemory:
    """What the registries that are imported have for some operators alone."""
    found, missing = _read_all(FunctionSites(package_roots()), frozenset(operators))
    not_imported = [module for module in IMPORTS if module not in sys.modules]
    return python_layer(str(torch().__version__), found, sorted(missing), not_imported)


def read_now() -> tuple[PythonRegistration, ...]:
    """What the registries that are imported have now."""
    return tuple(_read_all(FunctionSites(package_roots()))[0])


def _slot(one: PythonRegistration) -> tuple[object, ...]:
    """What distinguishes one registration from another, whenever it is read."""
    return one.registry, one.operator, one.key, one.function, one.site, one.active


def _read_all(
    sites: FunctionSites, only: frozenset[str] | None = None, calls: LoweringCalls | None = None
) -> tuple[list[PythonRegistration], set[str]]:
    """What all registries have now, and the names of those that are not found."""
    found: list[PythonRegistration] = []
    missing: set[str] = set()
    with collector_paused():
        for registry in PYTHON_REGISTRIES:
            if registry.needs and registry.needs not in sys.modules:
                continue
            try:
                found += [
                    registration_of(registry.name, entry, sites, calls)
                    for entry in entries_of(registry.name)
                    if not is_own(entry.operator) and (only is None or entry.operator in only)
                ]
            except UNREADABLE:
                missing.add(registry.name)
    return found, missing


def registration_of(
    registry: str, entry: Entry, sites: FunctionSites, calls: LoweringCalls | None = None
) -> PythonRegistration:
    """An entry with the name of its function, and the line of that or of the call that registered it."""
    function, site = sites.of(entry.value)
    file, _, line = entry.source.rpartition(":")
    if line.isdecimal() and not is_api_file(file):
        site = sites.line(file, int(line)) or site
    if calls is not None:
        site = calls.site(entry.value) or site
    return PythonRegistration(registry, entry.operator, entry.key, function, site, "", entry.active)
