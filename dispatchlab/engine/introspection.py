"""Look at a state without changing it: dumps, snapshots and invariants.

Equal to upstream's to the character: aten/src/ATen/core/dispatch/OperatorEntry.cpp (`dumpState`,
`dumpComputedTable`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.invariants import violations
from dispatchlab.engine.kernel import TableEntry
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.precedence import AUTOGRAD_BIT, AUTOGRAD_SLOTS, Slots, computed_table
from dispatchlab.engine.python_state import PythonState
from dispatchlab.engine.semantics import Semantics, SlotOrder, in_order
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, PythonVariable, State
from dispatchlab.model.dump_format import KernelLine, OperatorDump, row_text
from dispatchlab.model.keys import SLOT_KEYS
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slot_set import KEY_OF_BIT, each_slot
from dispatchlab.model.snapshot import Snapshot, Violation

_KEPT_TABLES: Final = 256  # of about 10 KB: a walk comes to the same ones again and again


def schema_text(schema: FunctionSchema | None, semantics: Semantics) -> str | None:
    """A schema as these semantics print it."""
    if schema is None:
        return None
    return schema.text_2020() if semantics.schema_2020 else str(schema)


def dump(entry: OperatorEntry, semantics: Semantics) -> str:
    """What was registered for an operator, newest kernel of a key first; fallbacks are not part of it."""
    stored = entry.stored
    kernels = tuple(
        KernelLine(
            KEY_OF_BIT[bit], each.debug, schema_text(each.kernel.inferred, semantics), each.kernel.flags, at == 0
        )
        for bit in sorted(entry.kernels, key=semantics.dump_order.__getitem__)
        for at, each in enumerate(entry.kernels[bit])
    )
    if stored is None:
        return str(OperatorDump(str(entry.name), kernels=kernels))
    debug = None if semantics.schema_2020 else stored.debug
    return str(OperatorDump(str(entry.name), schema_text(stored.schema, semantics), debug, stored.alias, kernels))


def rows(slots: Slots, semantics: Semantics) -> dict[int, TableEntry]:
    """Slot -> what it holds, in the order of the table."""
    by_slot = {slot: held for held, bits in slots.items() for slot in each_slot(bits)}
    return {slot: by_slot[slot] for slot in semantics.in_order(by_slot)}


def slots_text(slots: Slots, semantics: Semantics) -> str:
    """A table as text, a line for each slot that holds a kernel."""
    return _lines(tuple([(held.text, bits) for held, bits in slots.items()]), semantics.slot_order)


@lru_cache(_KEPT_TABLES)
def _lines(entries: tuple[tuple[str, int], ...], order: SlotOrder | None) -> str:
    texts = {slot: text for text, bits in entries for slot in each_slot(bits)}
    return "".join([row_text(SLOT_KEYS[slot], texts[slot]) for slot in in_order(texts, order)])


def dump_table(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> str:
    """The computed table, made anew from what is registered: it cannot show a slot that went stale."""
    return slots_text(computed_table(semantics.precedence, entry.present, entry.kernels, fallbacks), semantics)


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
    entry, kept = operator_in(state, name), state.get(PythonVariable(str(name)))
    python = kept.text if isinstance(kept, PythonState) else ""
    if entry is None:
        return replace(Snapshot.of_no_operator(name), python=python) if python else Snapshot.of_no_operator(name)
    fallbacks = fallbacks_in(state)
    return Snapshot(
        name,
        dump(entry, semantics),
        dump_table(entry, fallbacks, semantics),
        slots_text(entry.slots, semantics),
        None if entry.stored is None else schema_text(entry.stored.schema, semantics),
        dangling=entry.stored is None,
        python=python,
    )


def violations_in(state: State, name: OperatorName, semantics: Semantics) -> tuple[Violation, ...]:
    """The invariants that do not hold for one operator; none for one that does not exist."""
    entry = operator_in(state, name)
    return () if entry is None else violations(entry, fallbacks_in(state), semantics)


def fallthroughs_without_row(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> int:
    """The slots that calls skip although they hold no fallthrough.

    Under `pr35061` a fallthrough fallback makes way for the catch-all in the table, and calls skip its key all the
    same, unless the operator has a kernel there.
    """
    if not semantics.catch_all:
        return 0
    own = entry.present | (AUTOGRAD_SLOTS if entry.present & AUTOGRAD_BIT else 0)
    return fallbacks.fallthrough_slots & ~own
