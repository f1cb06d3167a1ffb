"""Look at a state without changing it: dumps, snapshots, invariants, and the reasons behind each row.

Equal to upstream's to the character: aten/src/ATen/core/dispatch/OperatorEntry.cpp (`dumpState`,
`dumpComputedTable`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.invariants import expected_slots, stale_keys, violations
from dispatchlab.engine.kernel import RegisteredKernel, TableEntry
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.precedence import Slots, computed_table
from dispatchlab.engine.reference_precedence import Candidate
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, State
from dispatchlab.model.dump_format import KernelLine, OperatorDump, Provenance, alias_text, key_text, row_text
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import NEWER, NO_KERNEL, OUTRANKED, Beaten, KernelRow, OperatorView, TableRow
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slot_set import CATCH_ALL_BIT, DUMP_ORDER, KEY_BIT, KEY_OF_BIT, each_slot, keys_of
from dispatchlab.model.snapshot import Snapshot, Violation


def dump(entry: OperatorEntry, semantics: Semantics) -> str:
    """What was registered for an operator, newest kernel of a key first; fallbacks are not part of it."""

    def schema_text(schema: FunctionSchema | None) -> str | None:
        if schema is None:
            return None
        return schema.text_2020() if semantics.schema_2020 else str(schema)

    stored = entry.stored
    kernels = tuple(
        KernelLine(KEY_OF_BIT[bit], each.debug, schema_text(each.kernel.inferred), each.kernel.flags, at == 0)
        for bit in sorted(entry.kernels, key=DUMP_ORDER.__getitem__)
        for at, each in enumerate(entry.kernels[bit])
    )
    if stored is None:
        return str(OperatorDump(str(entry.name), kernels=kernels))
    debug = None if semantics.schema_2020 else stored.debug
    return str(OperatorDump(str(entry.name), schema_text(stored.schema), debug, stored.alias, kernels))


def rows(slots: Slots) -> dict[int, TableEntry]:
    """Slot -> what it holds, in the order of the table."""
    by_slot = {slot: held for held, bits in slots.items() for slot in each_slot(bits)}
    return dict(sorted(by_slot.items()))


def slots_text(slots: Slots) -> str:
    """A table as text, a line for each slot that holds a kernel."""
    return "".join(row_text(RUNTIME_KEYS[slot], held.text) for slot, held in rows(slots).items())


def dump_table(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> str:
    """The computed table, made anew from what is registered: it cannot show a slot that went stale."""
    return slots_text(computed_table(semantics.precedence, entry.present, entry.kernels, fallbacks))


def fallbacks_in(state: State) -> Fallbacks:
    """The backend fallbacks of a state."""
    found = state.get(FALLBACKS)
    return found if isinstance(found, Fallbacks) else NO_FALLBACKS


def operator_in(state: State, name: OperatorName | str) -> OperatorEntry | None:
    """The entry of an operator, if there is one."""
    found = state.get(str(name))
    return found if isinstance(found, OperatorEntry) else None


def operators_in(state: State) -> Iterator[OperatorEntry]:
    """Every operator of a state, by name."""
    for variable in sorted(variable for variable in state if isinstance(variable, str)):
        entry = operator_in(state, variable)
        if entry is not None:
            yield entry


def namespaces_in(state: State) -> tuple[str, ...]:
    """The namespaces that a DEF library claims."""
    return tuple(sorted(variable.namespace for variable in state if isinstance(variable, NamespaceVariable)))


def snapshot(state: State, name: OperatorName, semantics: Semantics) -> Snapshot:
    """What can be seen of one operator."""
    entry = operator_in(state, name)
    if entry is None:
        return Snapshot.of_no_operator(name)
    fallbacks = fallbacks_in(state)
    return Snapshot(
        name,
        dump(entry, semantics),
        dump_table(entry, fallbacks, semantics),
        slots_text(entry.slots),
        None if entry.stored is None else str(entry.stored.schema),
        dangling=entry.stored is None,
    )


def violations_in(state: State, name: OperatorName, semantics: Semantics) -> tuple[Violation, ...]:
    """The invariants that do not hold for one operator; none for one that does not exist."""
    entry = operator_in(state, name)
    return () if entry is None else violations(entry, fallbacks_in(state), semantics)


def operator_view(state: State, name: OperatorName, semantics: Semantics) -> OperatorView | None:
    """Everything about an operator with the reason of each row and what it beat; None when there is none."""
    entry = operator_in(state, name)
    if entry is None:
        return None
    fallbacks = fallbacks_in(state)
    kernels = tuple(
        KernelRow(
            key=key_text(kernel.key),
            is_alias=kernel.key is not None and kernel.key.is_alias,
            active=at == 0,
            debug=kernel.debug,
            inferred=None if kernel.kernel.inferred is None else str(kernel.kernel.inferred),
            flags=tuple(kernel.kernel.flags.split()),
            location=kernel.location,
        )
        for bit in KEY_OF_BIT
        for at, kernel in enumerate(entry.kernels.get(bit, ()))
    )
    computed = rows(computed_table(semantics.precedence, entry.present, entry.kernels, fallbacks))
    stale = stale_keys(entry.slots, expected_slots(entry, fallbacks, semantics))
    actual = rows(entry.slots)
    table = tuple(
        TableRow(
            key=str(RUNTIME_KEYS[slot]),
            text=computed[slot].text if slot in computed else "",
            debug=computed[slot].registered.debug if slot in computed else "",
            reason=computed[slot].reason if slot in computed else None,
            fallthrough=slot in computed and computed[slot].registered.kernel.is_fallthrough,
            source=_source(computed[slot].registered, computed[slot].reason) if slot in computed else "",
            beaten=tuple(_beaten(entry, fallbacks, semantics, RUNTIME_KEYS[slot])),
            stale=(actual[slot].text if slot in actual else NO_KERNEL) if stale >> slot & 1 else None,
        )
        for slot in sorted({*computed, *actual})
    )
    stored = entry.stored
    return OperatorView(
        name=str(name),
        schema=None if stored is None else str(stored.schema),
        debug=None if stored is None else stored.debug,
        alias_kind=None if stored is None else alias_text(stored.alias),
        tags=tuple(sorted(entry.tags)),
        kernels=kernels,
        table=table,
        violations=violations(entry, fallbacks, semantics),
        skipped=tuple(map(str, keys_of(fallthroughs_without_row(entry, fallbacks, semantics)))),
    )


def fallthroughs_without_row(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> int:
    """The slots that calls skip although they hold no fallthrough.

    Under `pr35061` a fallthrough fallback makes way for the catch-all in the table, and calls skip its key all the
    same, unless the operator has a kernel there.
    """
    return fallbacks.fallthrough_slots & ~entry.present if semantics.catch_all else 0


def _source(entry: RegisteredKernel, reason: Provenance) -> str:
    if reason is Provenance.AMBIGUOUS:
        return ""
    return key_text(entry.key)


@dataclass(frozen=True, slots=True)
class _Registered:
    direct: frozenset[DispatchKey | None]
    fallback: frozenset[DispatchKey]
    fallthrough: frozenset[DispatchKey]


def _registered(entry: OperatorEntry, fallbacks: Fallbacks) -> _Registered:
    return _Registered(
        frozenset(KEY_OF_BIT[bit] for bit in entry.kernels),
        _keys_in(fallbacks.slots),
        _keys_in(fallbacks.fallthrough_slots),
    )


@lru_cache(maxsize=256)
def _keys_in(slots: int) -> frozenset[DispatchKey]:
    return frozenset(keys_of(slots))


def candidates(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics, key: DispatchKey) -> list[Candidate]:
    """What could fill a slot, in the order of the precedence."""
    found = _registered(entry, fallbacks)
    return list(semantics.precedence.plain(key, found.direct, found.fallback, found.fallthrough))


def _beaten(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics, key: DispatchKey) -> Iterator[Beaten]:
    winner_seen = False
    for candidate in candidates(entry, fallbacks, semantics, key):
        if not candidate.held_back and not winner_seen:
            winner_seen = True
            bit = CATCH_ALL_BIT if candidate.source is None else KEY_BIT[candidate.source]
            if candidate.reason not in (Provenance.FALLBACK, Provenance.AMBIGUOUS):
                for shadowed in entry.kernels[bit][1:]:
                    yield Beaten(str(shadowed.key), shadowed.debug, candidate.reason, NEWER)
            continue
        yield _lost(entry, fallbacks, candidate)


def _lost(entry: OperatorEntry, fallbacks: Fallbacks, candidate: Candidate) -> Beaten:
    if candidate.reason is Provenance.FALLBACK:
        assert candidate.source is not None
        debug = fallbacks.by_slot[KEY_BIT[candidate.source]].debug
    else:
        bit = CATCH_ALL_BIT if candidate.source is None else KEY_BIT[candidate.source]
        debug = entry.kernels[bit][0].debug
    return Beaten(key_text(candidate.source), debug, candidate.reason, candidate.held_back or OUTRANKED)
