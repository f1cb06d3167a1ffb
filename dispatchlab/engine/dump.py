"""The texts that show an operator: what was registered, the computed table, and what the slots hold.

Equal to upstream's to the character: aten/src/ATen/core/dispatch/OperatorEntry.cpp (`dumpState`,
`dumpComputedTable`).
"""

from __future__ import annotations

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import Cell
from dispatchlab.engine.key_bits import DUMP_ORDER
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.precedence import Slots, computed_table
from dispatchlab.engine.primitives import place_name
from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.keys import RUNTIME_KEYS
from dispatchlab.model.registration import AliasKind
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slots import each_slot


def dump(entry: OperatorEntry, semantics: Semantics) -> str:
    """What was registered for an operator, newest kernel of a key first; fallbacks are not part of it."""

    def schema_text(schema: FunctionSchema | None) -> str:
        if schema is None:
            return "(none)"
        return schema.text_2020() if semantics.schema_2020 else str(schema)

    lines = [f"name: {entry.name}"]
    stored = entry.stored
    lines.append(f"schema: {schema_text(stored.schema if stored else None)}")
    if stored is not None:
        if not semantics.schema_2020:
            lines.append(f"debug: {stored.debug}")
        default = "" if stored.alias is not None else " (default)"
        lines.append(f"alias analysis kind: {stored.alias or AliasKind.CONSERVATIVE}{default}")
    for bit in sorted(entry.kernels, key=DUMP_ORDER.__getitem__):
        key = entry.kernels[bit][0].key
        alias = "[alias]" if key is not None and key.is_alias else ""
        for place, kernel in enumerate(entry.kernels[bit]):
            inactive = " (inactive)" if place else ""
            inferred = schema_text(kernel.kernel.inferred)
            lines.append(f"{place_name(bit)}{alias}{inactive}: {kernel.debug} :: {inferred} [ {kernel.kernel.flags}]")
    return "\n".join(lines) + "\n"


def rows(slots: Slots) -> dict[int, Cell]:
    """Slot -> what it holds, in the order of the table."""
    by_slot = {slot: cell for cell, bits in slots.items() for slot in each_slot(bits)}
    return dict(sorted(by_slot.items()))


def slots_text(slots: Slots) -> str:
    """A table as text, a line for each slot that holds a kernel."""
    return "".join(f"{RUNTIME_KEYS[slot]}: {cell.text}\n" for slot, cell in rows(slots).items())


def dump_table(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> str:
    """The computed table, made anew from what is registered: it cannot show a slot that went stale."""
    return slots_text(computed_table(semantics.precedence, entry.present, entry.kernels, fallbacks))
