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
from dispatchlab.engine.kernel import RegisteredKernel, TableEntry
from dispatchlab.engine.operator_entry import Definition, OperatorEntry
from dispatchlab.engine.precedence import AUTOGRAD_BIT, AUTOGRAD_SLOTS, Slots, computed_table
from dispatchlab.engine.semantics import Semantics, SlotOrder, in_order
from dispatchlab.engine.state import FALLBACKS, PythonState, PythonVariable, State
from dispatchlab.model.dump_format import KernelLine, OperatorDump, row_text
from dispatchlab.model.keys import SLOT_KEYS
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slot_set import KEY_OF_BIT, set_bits
from dispatchlab.model.snapshot import Snapshot, Violation

_KEPT_LAYOUTS: Final = 256  # of about 5 KB: a walk comes to the same ones again and again
_KEPT_TEXTS: Final = 1 << 14


def schema_text(schema: FunctionSchema | None, semantics: Semantics) -> str | None:
    """Return a schema as these semantics print it."""
    return _schema_text(schema, schema_2020=semantics.schema_2020)


def _schema_text(schema: FunctionSchema | None, *, schema_2020: bool) -> str | None:
    if schema is None:
        return None
    return schema.text_2020() if schema_2020 else str(schema)


def dump(entry: OperatorEntry, semantics: Semantics) -> str:
    """Return the registrations of an operator, the newest kernel of a key first, without fallbacks."""
    kernels = [
        _kernel_line(bit, kernel, semantics.schema_2020, at == 0)
        for bit in sorted(entry.kernels, key=semantics.dump_order.__getitem__)
        for at, kernel in enumerate(entry.kernels[bit])
    ]
    stored = entry.stored
    if stored is None:
        return "".join([str(OperatorDump(str(entry.name))), *kernels])
    debug = None if semantics.schema_2020 else stored.debug
    head = OperatorDump(str(entry.name), _stored_text(entry, semantics), debug, stored.alias)
    return "".join([str(head), *kernels])


@lru_cache(_KEPT_TEXTS)
def _kernel_line(bit: int, kernel: RegisteredKernel, schema_2020: bool, active: bool) -> str:  # noqa: FBT001
    inferred = _schema_text(kernel.kernel.inferred, schema_2020=schema_2020)
    return f"{KernelLine(KEY_OF_BIT[bit], kernel.debug, inferred, kernel.kernel.flags, active)}\n"


def _stored_text(entry: OperatorEntry, semantics: Semantics) -> str | None:
    """Return the schema of an operator as these semantics print it."""
    stored, defs = entry.stored, entry.defs
    if stored is None or not defs or defs[0].schema is not stored.schema:
        return schema_text(stored and stored.schema, semantics)
    return _definition_text(defs[0], semantics.schema_2020)


@lru_cache(_KEPT_TEXTS)
def _definition_text(definition: Definition, schema_2020: bool) -> str | None:  # noqa: FBT001 - a cache likes it so
    return _schema_text(definition.schema, schema_2020=schema_2020)


def rows(slots: Slots, semantics: Semantics) -> dict[int, TableEntry]:
    """Return slot -> its content, in the order of the table."""
    by_slot = {slot: held for held, bits in slots.items() for slot in set_bits(bits)}
    return {slot: by_slot[slot] for slot in semantics.in_order(by_slot)}


def slots_text(slots: Slots, semantics: Semantics) -> str:
    """Return a table as text, with a line for each slot that has a kernel."""
    template, entries = _layout(tuple(slots.values()), semantics.slot_order)
    texts = [held.text for held in slots]
    return template % tuple([texts[at] for at in entries])


_ROWS: Final = [row_text(key, "%s") for key in SLOT_KEYS]


@lru_cache(_KEPT_LAYOUTS)
def _layout(held: tuple[int, ...], order: SlotOrder | None) -> tuple[str, list[int]]:
    """Return the rows of a table with gaps for texts, and the entry that fills each gap."""
    entries = {slot: at for at, bits in enumerate(held) for slot in set_bits(bits)}
    slots = in_order(entries, order)
    return "".join([_ROWS[slot] for slot in slots]), [entries[slot] for slot in slots]


def dump_table(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> str:
    """Return the table, computed again from the registrations: it cannot show a stale slot."""
    return slots_text(computed_table(semantics.precedence, entry.present, entry.kernels, fallbacks), semantics)


def fallbacks_in(state: State) -> Fallbacks:
    """Return the backend fallbacks of a state."""
    found = state.get(FALLBACKS)
    return found if isinstance(found, Fallbacks) else NO_FALLBACKS


def operator_in(state: State, name: OperatorName | str) -> OperatorEntry | None:
    """Return the entry of an operator, if there is one."""
    found = state.get(str(name))
    return found if isinstance(found, OperatorEntry) else None


def operators_in(state: State) -> Iterator[OperatorEntry]:
    """Return every operator of a state, by name."""
    for variable in sorted(variable for variable in state if isinstance(variable, str)):
        entry = operator_in(state, variable)
        if entry is not None:
            yield entry


def snapshot(state: State, name: OperatorName, semantics: Semantics) -> Snapshot:
    """Return the observable state of one operator."""
    entry, kept = operator_in(state, name), state.get(PythonVariable(str(name)))
    python = kept.text if isinstance(kept, PythonState) else ""
    if entry is None:
        return replace(Snapshot.of_no_operator(name), python=python) if python else Snapshot.of_no_operator(name)
    slots = slots_text(entry.slots, semantics)
    computed = computed_table(semantics.precedence, entry.present, entry.kernels, fallbacks_in(state))
    return Snapshot(
        name,
        dump(entry, semantics),
        slots if computed == entry.slots else slots_text(computed, semantics),
        slots,
        _stored_text(entry, semantics),
        dangling=entry.stored is None,
        python=python,
    )


def violations_in(state: State, name: OperatorName, semantics: Semantics) -> tuple[Violation, ...]:
    """Return the invariants that do not hold for one operator; none for one that does not exist."""
    entry = operator_in(state, name)
    return () if entry is None else violations_of(name, entry, fallbacks_in(state), semantics)


def violations_of(
    name: OperatorName, entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics
) -> tuple[Violation, ...]:
    """Return the invariants that do not hold for an operator's entry in a state."""
    found = violations(entry, fallbacks, semantics)
    if entry.name is not name and entry.name != name:
        found += (Violation(name, "name of the entry", f"it is that of {entry.name}"),)
    if entry.is_unused and not semantics.refusal_leaves_traces:
        found += (Violation(name, "entry of nothing", "nothing is registered, and the entry stays"),)
    return found


def fallthroughs_without_row(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> int:
    """Return the slots without a fallthrough that calls skip.

    Under `pr35061` a fallthrough fallback makes way for the catch-all in the table, and calls skip its key all the
    same, unless the operator has a kernel there.
    """
    if not semantics.catch_all:
        return 0
    own = entry.present | (AUTOGRAD_SLOTS if entry.present & AUTOGRAD_BIT else 0)
    return fallbacks.fallthrough_slots & ~own
