"""The Python-side registries as they lie in memory: `PythonTables` finds what changed since it last looked.

Reading a registry for people means naming every function in it, which takes a third of a second. Here the tables
themselves are copied, and compared by identity, which takes a millisecond or two. See Note [Tables of Python].
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import is_
from typing import Any, NamedTuple

from dispatchlab._gc_pause import collector_paused
from dispatchlab.live.bridge.reserved_namespaces import is_own
from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.introspection.python_registries import (
    MODE_TABLES,
    READERS,
    RULES,
    Entry,
    NotFoundHere,
    is_api_file,
    key_text,
    operator_text,
    overloads,
    rule_function,
)
from dispatchlab.live.introspection.python_sites import FunctionSites
from dispatchlab.model.python_layer import NOTHING, PythonRegistration

# Note [Tables of Python]
# ~~~~~~~~~~~~~~~~~~~~~~~
# A registry is one dictionary from operators to functions, or one of a few words for each operator. Nobody is called
# when one is written, and Python 3.11 has no watchers of dictionaries. So what a table had is kept as a copy, and two
# are the same when they have the same keys and the same values, by identity. Most tables of operators are empty, which
# is seen without a copy. The list of operators is kept, too; it is made anew when a namespace or a packet has grown.
#
# Left out is what PyTorch derives from other tables when it is asked (`export_decompositions`).


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


class Table(NamedTuple):
    """A table of a registry.

    Args:
        registry: the name of the registry.
        entries: what it has, by operator, by key, or by both.
        operator: the operator of all entries, which are kept by key then.
        key: the key of all entries, which are kept by operator then.
        of: gives the entries behind a key of the table and its value, where these are something else.
        part: which of several such tables it is.
    """

    registry: str
    entries: Mapping[Any, Any]
    operator: Any = None
    key: str = ""
    of: Callable[[Any, Any], Iterator[Entry]] | None = None
    part: str = ""

    @property
    def name(self) -> tuple[int, str, str]:
        """What distinguishes it from the other tables of its registry."""
        return id(self.operator), self.key, self.part

    def entry(self, at: Any, value: Any) -> Iterator[Entry]:
        """What one key of the table and its value stand for."""
        if self.of is not None:
            yield from self.of(at, value)
        elif self.operator is not None:
            yield Entry(operator_text(self.operator), key_text(at), value)
        else:
            yield Entry(operator_text(at), self.key, value)


class PythonTables:
    """Remembers what the registries have; `changes` gives what changed since it last looked, and remembers that."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[tuple[int, str, str], tuple[Table, dict[Any, Any]]]] = {}
        self._operators = _Operators()
        with collector_paused():
            for registry in _REGISTRIES:
                self._kept[registry] = {each.name: (each, dict(each.entries)) for each in self._tables(registry)}

    def copy(self) -> PythonTables:
        """Another one, which remembers the same."""
        made = PythonTables.__new__(PythonTables)
        made._kept = {registry: dict(tables) for registry, tables in self._kept.items()}
        made._operators = self._operators.copy()
        return made

    def changes(self, registries: Collection[str] = ()) -> list[TableChange]:
        """What is not as it was when this was last called; those of some registries alone, if they are named."""
        with collector_paused():
            return [change for registry in registries or _REGISTRIES for change in self._changes(registry)]

    def _changes(self, registry: str) -> Iterator[TableChange]:
        if registry in _OF_OVERLOADS and not self._operators.have_changed(registry):
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

    def _tables(self, registry: str) -> Iterator[Table]:
        if registry not in _OF_OVERLOADS:
            yield from _TABLES[registry](registry)
            return
        for operator, table in self._operators.tables(registry):
            if table:
                yield Table(registry, table, operator=operator)


def registration_of(registry: str, entry: Entry, sites: FunctionSites) -> PythonRegistration:
    """An entry with the name and the line of its function."""
    function, site = sites.of(entry.value)
    file, _, line = entry.source.rpartition(":")
    if line.isdecimal() and not is_api_file(file):
        site = sites.line(file, int(line)) or site
    return PythonRegistration(registry, entry.operator, entry.key, function, site, "", entry.active)


def _same(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    return len(one) == len(other) and all(map(is_, one.values(), other.values())) and list(one) == list(other)


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


_OF_OVERLOADS = {"py_kernels": ("py_kernels",), "mode_rules": MODE_TABLES}
"""The registries of which every overload has a table, and the names that versions give it."""


_known: list[PythonTables] = []


def tables_now() -> PythonTables:
    """What the registries have now; what was read once in this process is not read again."""
    if _known:
        _known[0].changes()
    else:
        _known.append(PythonTables())
    return _known[0].copy()


class _Operators:
    """The overloads that there are, which is a list that grows, and their tables."""

    def __init__(self) -> None:
        self._sizes = (-1, -1)
        self._packets: list[Any] = []
        self._tables: dict[str, list[tuple[Any, Mapping[Any, Any]]]] = {}
        self._seen: dict[str, tuple[list[int], list[Any]]] = {}

    def copy(self) -> _Operators:
        """Another one, which has seen the same."""
        made = _Operators()
        made._sizes, made._packets = self._sizes, self._packets
        made._tables, made._seen = dict(self._tables), dict(self._seen)
        return made

    def have_changed(self, registry: str) -> bool:
        """Whether any table has changed since the last call, or there are other tables."""
        tables = [table for _, table in self.tables(registry)]
        now = list(map(len, tables)), [value for table in tables if table for value in list(table.values())]
        had = self._seen.get(registry)
        self._seen[registry] = now
        return had is None or had[0] != now[0] or not all(map(is_, had[1], now[1]))

    def tables(self, registry: str) -> list[tuple[Any, Mapping[Any, Any]]]:
        """The table of each overload."""
        ops = sys.modules["torch._ops"]
        spaces = [vars(each) for each in list(vars(torch().ops).values()) if isinstance(each, ops._OpNamespace)]
        sizes = sum(map(len, spaces)), sum([len(vars(each)) for each in self._packets])
        if sizes != self._sizes:
            kind = ops.OpOverloadPacket
            self._packets = [each for space in spaces for each in list(space.values()) if isinstance(each, kind)]
            self._sizes = sizes[0], sum([len(vars(each)) for each in self._packets])
            self._tables.clear()
        found = self._tables.get(registry)
        if found is None:
            found = self._tables[registry] = list(self._read(_OF_OVERLOADS[registry]))
        return found

    def _read(self, names: Iterable[str]) -> Iterator[tuple[Any, Mapping[Any, Any]]]:
        overload = sys.modules["torch._ops"].OpOverload
        for packet in self._packets:
            for each in list(vars(packet).values()):
                if isinstance(each, overload):
                    has = vars(each)
                    table = next((has[name] for name in names if name in has), None)
                    if table is not None:
                        yield each, table


def _found(module: str, *names: str) -> Any:
    """What a module that is imported has under one of several names; None where there is none."""
    return next((value for name in names if (value := getattr(sys.modules.get(module), name, None)) is not None), None)


def _plain(module: str, *names: str) -> Callable[[str], Iterator[Table]]:
    def tables(registry: str) -> Iterator[Table]:
        table = _found(module, *names)
        if isinstance(table, Mapping):
            yield Table(registry, table)

    return tables


def _decompositions(registry: str) -> Iterator[Table]:
    found = _found("torch._decomp", "global_decomposition_table")
    for key, table in list(found.items()) if isinstance(found, Mapping) else ():
        if key != "meta":
            yield Table(registry, table, key=key)


def _meta_functions(registry: str) -> Iterator[Table]:
    found = _found("torch._decomp", "global_decomposition_table")
    if isinstance(found, Mapping) and "meta" in found:
        yield Table(registry, found["meta"])


def _fake_checks(registry: str) -> Iterator[Table]:
    """The rules for operators with a property, each by its check."""
    rules = _found("torch._subclasses.fake_impls", "op_implementations_checks")
    by_name = _found("torch._subclasses.fake_impls", "op_implementations_dict")

    def entries(at: Any, rule: Any) -> Iterator[Entry]:
        check, _ = at
        if getattr(check, "__self__", None) is by_name:
            return
        for overload in overloads():
            try:
                applies = bool(check(overload))
            except Exception:  # a property that this operator cannot be asked for
                continue
            if applies:
                yield Entry(operator_text(overload), getattr(rule, "__name__", type(rule).__name__), rule)

    if rules is not None:
        yield Table(registry, {tuple(each): each[1] for each in rules}, of=entries)


def _objects(registry: str) -> Iterator[Table]:
    """The table of a registry that keeps an object of its own for each operator."""
    found: dict[tuple[str, str, int], Entry] = {}
    with suppress(NotFoundHere, AttributeError, KeyError, TypeError, ValueError):
        for entry in READERS[registry]():
            if entry.key != NOTHING:
                found[entry.operator, entry.key, id(entry.value)] = entry

    def of(at: tuple[str, str, int], value: object) -> Iterator[Entry]:
        yield found[at]

    yield Table(registry, {at: entry.value for at, entry in found.items()}, of=of)


def _higher_order(registry: str) -> Iterator[Table]:
    """The operators, and the tables of each."""
    made = _found("torch._ops", "_higher_order_ops")
    if not isinstance(made, Mapping):
        return

    def definition(at: Any, operator: Any) -> Iterator[Entry]:
        yield Entry(operator_text(operator), "", type(operator))

    yield Table(registry, made, of=definition)
    for operator in list(made.values()):
        for name in ("py_kernels", *MODE_TABLES, "functorch_table"):
            table = getattr(operator, name, None)
            if table:
                yield Table(registry, table, operator=operator, part=name)


def _sharding(registry: str) -> Iterator[Table]:
    dispatcher = getattr(_found("torch.distributed.tensor", "DTensor"), "_op_dispatcher", None)
    propagator = getattr(dispatcher, "sharding_propagator", None)

    if registry == "dtensor_handlers":
        table = getattr(dispatcher, "_custom_op_handlers", None)
        if table is not None:
            yield Table(registry, table)
        return
    for attribute, key in RULES.items():
        table = getattr(propagator, attribute, None)
        if table is not None:
            yield Table(registry, table, part=key, of=partial(_rule, key))


def _rule(key: str, operator: Any, rule: Any) -> Iterator[Entry]:
    yield Entry(operator_text(operator), key, rule_function(rule))


def _inductor_fallbacks(registry: str) -> Iterator[Table]:
    """The operators in a set; what runs for one is its lowering."""
    fallbacks = _found("torch._inductor.lowering", "fallbacks")
    lowerings = _found("torch._inductor.lowering", "lowerings")
    if fallbacks is not None and lowerings is not None:
        yield Table(registry, {each: each for each in list(fallbacks)}, of=partial(_fallback, lowerings))


def _fallback(lowerings: Mapping[Any, Any], operator: Any, value: Any) -> Iterator[Entry]:
    yield Entry(operator_text(operator), "", lowerings.get(operator, operator))


_LOWERING = "torch._inductor.lowering"
_TABLES: dict[str, Callable[[str], Iterator[Table]]] = {
    "decompositions": _decompositions,
    "meta_functions": _meta_functions,
    "jvp_decompositions": _plain("torch._decomp.decompositions_for_jvp", "decomposition_table_for_jvp"),
    "aot_decompositions": _plain("torch._functorch.aot_autograd", "aot_autograd_decompositions"),
    "fake_rules": _plain("torch._subclasses.fake_impls", "op_implementations_dict"),
    "fake_checks": _fake_checks,
    "fast_fake_rules": _plain("torch._subclasses.fake_impls", "FAST_OP_IMPLEMENTATIONS"),
    "torch_library": _objects,
    "custom_ops": _objects,
    "higher_order": _higher_order,
    "higher_order_fakes": _plain("torch._higher_order_ops.utils", "registered_hop_fake_fns"),
    "dtensor_rules": _sharding,
    "dtensor_handlers": _sharding,
    "jagged": _plain("torch.nested._internal.ops", "JAGGED_OPS_TABLE"),
    "inductor_decompositions": _plain("torch._inductor.decomposition", "decompositions"),
    "inductor_lowerings": _plain(_LOWERING, "lowerings"),
    "inductor_fallbacks": _inductor_fallbacks,
    "inductor_constraints": _plain(_LOWERING, "_maybe_layout_constraints", "layout_constraints"),
    "inductor_user_lowerings": _plain(_LOWERING, "user_lowerings"),
}
"""The tables of each registry, but for those that every overload has of its own."""
DERIVED = ("export_decompositions",)
"""What PyTorch computes from other registries when it is asked."""

_TABLES |= {name: _objects for name in READERS if name not in (*_TABLES, *_OF_OVERLOADS, *DERIVED)}
_REGISTRIES = (*_OF_OVERLOADS, *_TABLES)
