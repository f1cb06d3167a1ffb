"""Which slots of an operator do not hold what its table says, and how that is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dispatchlab.live.memory import Fingerprints
from dispatchlab.live.naming import NOTHING, Naming, Table, Template
from dispatchlab.live.slots import KernelObjects
from dispatchlab.live.torch import bindings
from dispatchlab.model.keys import PARSED_BY_TORCH, RUNTIME_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.snapshot import Snapshot, Violation

STALE = "stale slot"


def differing(
    found: Fingerprints, wanted: Template, last: Template | None, objects: KernelObjects, naming: Naming
) -> dict[int, str | None]:
    """What the slots hold that do not hold what the table says; None for nothing.

    Args:
        found: what the slots show.
        wanted: the kernels that the table says.
        last: those that it said when the operator was looked at last; None for never.
        objects: the kernels that are known by what slots show.
        naming: what their lines say.
    """
    held: dict[int, str | None] = {}
    for slot in np.flatnonzero(found != objects.by_number[wanted]).tolist():
        should = int(wanted[slot])
        before = NOTHING if last is None else int(last[slot])
        number = objects.number_at(slot, int(found[slot]), should, before)
        text = "a kernel that no table has shown" if number is None else naming.held(slot, number)
        if text != naming.held(slot, should):
            held[slot] = text
    return held


def slots_by_bindings(raw_name: str, table: Table) -> str:
    """The slots as far as the bindings tell, which is whether they are filled, as the lines of a table."""
    is_filled = bindings()._dispatch_has_computed_kernel_for_dispatch_key
    rows = _rows(table)
    for slot, key in enumerate(RUNTIME_KEYS):
        if key not in PARSED_BY_TORCH:
            continue
        filled = is_filled(raw_name, str(key))
        if filled and slot not in rows:
            rows[slot] = f"{key}: a kernel that the table does not show"
        elif not filled:
            rows.pop(slot, None)
    return "".join(f"{rows[slot]}\n" for slot in sorted(rows))


def differing_by_bindings(held: str, table: Table) -> dict[int, str | None]:
    """The same as `differing`, of what `slots_by_bindings` gives."""
    rows = _rows(table)
    lines = {
        SLOT_OF_KEY[DispatchKey[key]]: text for key, _, text in (line.partition(": ") for line in held.splitlines())
    }
    found: dict[int, str | None] = {slot: None for slot in rows if slot not in lines}
    found |= {slot: text for slot, text in lines.items() if slot not in rows}
    return found


def told(snapshot: Snapshot, table: Table, held: Mapping[int, str | None]) -> tuple[Snapshot, Violation]:
    """The snapshot with what the slots hold, and the violation that this is.

    Args:
        snapshot: what is shown of the operator, with the slots that it should have.
        table: its table.
        held: what the slots hold that do not hold what the table says, at least one; None for nothing.
    """
    rows = _rows(table)
    lines = {slot: row for slot, row in rows.items() if slot not in held}
    lines |= {slot: f"{RUNTIME_KEYS[slot]}: {text}" for slot, text in held.items() if text is not None}
    slots = "".join(f"{lines[slot]}\n" for slot in sorted(lines))
    first = min(held)
    keys = tuple(str(RUNTIME_KEYS[slot]) for slot in sorted(held))
    wanted = rows[first].partition(": ")[2] if first in rows else "nothing"
    more = f", and {len(keys) - 1} more slots: {', '.join(keys[1:])}" if len(keys) > 1 else ""
    detail = f"the slot of {keys[0]} holds {held[first] or 'nothing'} and should hold {wanted}{more}"
    return replace(snapshot, slots=slots), Violation(snapshot.operator, STALE, detail, keys)


def _rows(table: Table) -> dict[int, str]:
    return {slot: shown for slot, _, shown in table.rows}
