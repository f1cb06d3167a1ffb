"""The Python-side registries as they lie in memory: `PythonTables` finds what changed since it last looked.

Reading a registry for people means naming every function in it, which takes a third of a second. Here the tables
themselves are copied, and compared by identity, which takes a millisecond or two. See Note [Tables of Python].
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, ValuesView
from ctypes import c_void_p, sizeof, string_at
from itertools import chain
from operator import is_
from typing import Any, Final, NamedTuple

from dispatchlab._gc_pause import collector_paused
from dispatchlab.model.python_layer import EVERY_REGISTRY
from dispatchlab.pytorch.bridge.registry_tables import (
    UNREADABLE,
    Entry,
    Table,
    attributes,
    is_loaded,
    live_contents,
    roots_of,
    tables_of,
)
from dispatchlab.pytorch.bridge.reserved_namespaces import is_own
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.introspection.shared_state import DictVersions, versions_of

# Note [Tables of Python]
# ~~~~~~~~~~~~~~~~~~~~~~~
# A registry is one dictionary from operators to functions, or one of a few words for each operator. Nobody is called
# when one is written, and Python 3.11 has no watchers of dictionaries. So what a table had is kept as a copy, and two
# are the same when they have the same keys and the same values, by identity. Most tables of operators are empty, which
# is seen without a copy. The list of operators is kept, too; it is made anew when a namespace or a packet has grown.
# Where Python keeps a version of each dictionary, only those are compared that have another one by now.
#
# Left out is what PyTorch derives from other tables when it is asked, such as `export_decompositions`.


class TableChange(NamedTuple):
    """One entry of a table that is not as it was.

    Args:
        registry: the name of the registry.
        operator: the operator.
        key: what it is kept by besides.
        before: what was there; None when nothing was.
        after: what is there now; None when nothing is.
    """

    registry: str
    operator: str
    key: str
    before: Entry | None
    after: Entry | None


class PythonTables:
    """Remembers what the registries have; `changes` gives what changed since it last looked, and remembers that."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[tuple[int, str, str], tuple[Table, dict[Any, Any]]]] = {}
        self._contents: dict[str, _Contents] = {}
        self._operators = _Operators()
        with collector_paused():
            self._operators.look()
            for registry in _REGISTRIES:
                self._kept[registry] = {each.name: (each, dict(each.entries)) for each in self._tables(registry)}

    def copy(self) -> PythonTables:
        """Another one, which remembers the same."""
        made = PythonTables.__new__(PythonTables)
        made._kept = {registry: dict(tables) for registry, tables in self._kept.items()}
        made._contents = dict(self._contents)
        made._operators = self._operators.copy()
        return made

    def changes(self, registries: Collection[str] = ()) -> list[TableChange]:
        """What is not as it was when this was last called; those of some registries alone, if they are named."""
        with collector_paused():
            self._operators.look()
            return [change for registry in registries or _REGISTRIES for change in self._changes(registry)]

    def _changes(self, registry: str) -> Iterator[TableChange]:
        if registry in _OF_OVERLOADS:
            if not self._operators.have_changed(registry):
                return
        elif self._is_as_it_was(registry) or not (self._kept[registry] or is_loaded(registry)):
            return
        kept = self._kept[registry]
        gone = dict(kept)
        changed = []
        for table in self._tables(registry):
            name = table.name
            gone.pop(name, None)
            had = kept.get(name)
            if had is None or not _same(had[1], table.entries):
                has = dict(table.entries)  # in one go: another thread may be writing it
                changed.append((table._replace(entries=has), had or (table, {})))
                kept[name] = table, has
        for name, had in gone.items():
            del kept[name]
            changed.append((had[0]._replace(entries={}), had))
        for table, (older, entries) in changed:
            yield from _differences(table, older, entries)

    def _is_as_it_was(self, registry: str) -> bool:
        """Whether everything of a registry is made of the same objects as when this was last asked."""
        had = self._contents.get(registry)
        try:
            roots = roots_of(registry)
            if had is not None and had.is_same_as(roots):
                return True
            views, versions = _without_dicts(live_contents(roots))
        except UNREADABLE:  # of another version, or not imported
            self._contents.pop(registry, None)
            return False
        self._contents[registry] = _Contents(roots, views, _contents(views), versions)
        return False

    def _tables(self, registry: str) -> list[Table]:
        if registry in _OF_OVERLOADS:
            tables = self._operators.tables(registry)
            return [Table(registry, table, operator=operator) for operator, table in tables if table]
        try:
            return list(tables_of(registry))
        except UNREADABLE:  # it is not imported, or not found in this version
            return []


def _same(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    if len(one) != len(other) or not all(map(is_, one.values(), other.values())):
        return False
    return all(map(is_, one, other)) or list(one) == list(other)


def _are_same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Whether two tuples have the same objects, by identity: what they have in memory is compared."""
    return len(some) == len(others) and (some is others or _addresses(some) == _addresses(others))


def _contents(views: Iterable[Iterable[object]]) -> tuple[object, ...]:
    """What some views have now, in one go: another thread may be writing."""
    return tuple(chain.from_iterable(views))


def _without_dicts(views: Sequence[Iterable[object]]) -> tuple[list[Iterable[object]], DictVersions | None]:
    """The views that are none of a dictionary which has a version, and the versions of these."""
    dicts, others = dict[int, Mapping[Any, Any]](), []
    for view in views:
        of = gc.get_referents(view)[0] if type(view) is _VALUES else view[0] if type(view) is tuple else view
        if isinstance(of, dict) and (type(of).__iter__, type(of).values) == (dict.__iter__, dict.values):
            dicts[id(of)] = of
        else:
            others.append(view)
    versions = versions_of([*dicts.values()])
    return (list(views), None) if versions is None else (others, versions)


_VALUES: Final[type[object]] = type({}.values())


def _addresses(some: tuple[Any, ...]) -> bytes:
    return string_at(id(some) + tuple.__basicsize__, len(some) * _POINTER)


_POINTER: Final = sizeof(c_void_p)


def _differences(table: Table, older: Table, had: Mapping[Any, Any]) -> Iterator[TableChange]:
    now = table.entries
    for at in [*had, *(each for each in now if each not in had)]:
        old, new = had.get(at, _NO_ENTRY), now.get(at, _NO_ENTRY)
        if old is new:
            continue
        before = [] if old is _NO_ENTRY else list(older.entry(at, old))
        after = [] if new is _NO_ENTRY else list(table.entry(at, new))
        olds, news = ({(one.operator, one.key): one for one in some} for some in (before, after))
        for slot in dict.fromkeys((*olds, *news)):
            if not is_own(slot[0]):
                yield TableChange(table.registry, *slot, olds.get(slot), news.get(slot))


_NO_ENTRY = object()


_OF_OVERLOADS = {name: attributes(name) for name in ("py_kernels", "mode_rules")}
"""The registries of which every overload has a table, and the names that versions give it."""

_REGISTRIES = (
    *_OF_OVERLOADS,
    *(one.name for one in EVERY_REGISTRY if not (one.is_derived or one.name in _OF_OVERLOADS)),
)

_known: list[PythonTables] = []


def tables_now() -> PythonTables:
    """What the registries have now; what was read once in this process is not read again."""
    if not _known:
        _known.append(PythonTables())
    _known[0].changes()
    return _known[0].copy()


class _Contents(NamedTuple):
    """What a registry is made of: where it begins, what is inside, and what that had."""

    roots: tuple[object, ...]
    views: list[Iterable[object]]
    values: tuple[object, ...]
    versions: DictVersions | None

    def is_same_as(self, roots: tuple[object, ...]) -> bool:
        """Whether it begins at these roots, and nothing inside has changed."""
        is_old = self.versions is None or self.versions.are_same()
        return is_old and _are_same(self.roots, roots) and _are_same(self.values, _contents(self.views))


class _Seen(NamedTuple):
    """The tables of a registry that have something, how many there are in all, and what these have."""

    number: int
    tables: tuple[Mapping[Any, Any], ...]
    sizes: list[int]
    views: list[ValuesView[Any]]
    values: tuple[Any, ...]


class _Operators:
    """The overloads that there are, which is a list that grows, and their tables."""

    def __init__(self) -> None:
        self._sizes = (-1, -1)
        self._packets: list[Mapping[str, Any]] = []
        self._known: dict[int, tuple[int, list[Any]]] = {}  # the overloads of each packet
        self._tables: dict[str, list[tuple[Any, Mapping[Any, Any]]]] = {}
        self._mappings: dict[str, list[Mapping[Any, Any]]] = {}
        self._seen: dict[str, _Seen] = {}
        self._versions: dict[str, DictVersions | None] = {}

    def copy(self) -> _Operators:
        """Another one, which has seen the same."""
        made = _Operators()
        made._sizes, made._packets, made._known = self._sizes, self._packets, dict(self._known)
        made._tables, made._mappings, made._seen = dict(self._tables), dict(self._mappings), dict(self._seen)
        made._versions = dict(self._versions)
        return made

    def have_changed(self, registry: str) -> bool:
        """Whether any table has changed since the last call, or there are other tables."""
        all_tables = self._mappings.get(registry)
        if all_tables is None:
            all_tables = self._mappings[registry] = [table for _, table in self.tables(registry)]
        versions = self._versions.get(registry)
        if versions is not None and versions.dicts is all_tables and versions.are_same():
            return False
        self._versions[registry] = versions_of(all_tables)
        had = self._seen.get(registry)
        tables = tuple(filter(None, all_tables))
        is_known = had is not None and _are_same(had.tables, tables)
        views = had.views if had is not None and is_known else [table.values() for table in tables]
        now = _Seen(len(all_tables), tables, list(map(len, tables)), views, _contents(views))
        self._seen[registry] = now
        if had is None or not is_known or (had.number, had.sizes) != (now.number, now.sizes):
            return True
        return not _are_same(had.values, now.values)

    def look(self) -> None:
        """Look whether there are other operators."""
        ops = sys.modules["torch._ops"]
        spaces = [vars(each) for each in list(vars(torch().ops).values()) if isinstance(each, ops._OpNamespace)]
        sizes = sum(map(len, spaces)), sum(map(len, self._packets))
        if sizes == self._sizes:
            return
        kind, overload = ops.OpOverloadPacket, ops.OpOverload
        packets = [vars(each) for space in spaces for each in list(space.values()) if isinstance(each, kind)]
        known, self._known = self._known, {}
        for packet in packets:
            at, size = id(packet), len(packet)
            had = known.get(at)
            if had is None or had[0] != size:
                had = size, [each for each in list(packet.values()) if isinstance(each, overload)]
            self._known[at] = had
        self._packets, self._sizes = packets, (sizes[0], sum(map(len, packets)))
        self._tables.clear()
        self._mappings.clear()

    def tables(self, registry: str) -> list[tuple[Any, Mapping[Any, Any]]]:
        """The table of each overload, as it was when this last looked."""
        found = self._tables.get(registry)
        if found is None:
            found = self._tables[registry] = list(self._read(_OF_OVERLOADS[registry]))
        return found

    def _read(self, names: Iterable[str]) -> Iterator[tuple[Any, Mapping[Any, Any]]]:
        for _, overloads in self._known.values():
            for overload in overloads:
                has = vars(overload)
                for name in names:
                    if name in has:
                        yield overload, has[name]
                        break
