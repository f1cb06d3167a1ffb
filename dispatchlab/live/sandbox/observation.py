"""Observe the operators of a sandbox: what PyTorch shows, what was shown before, and stale slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dispatchlab.live.bridge.registration_calls import Libraries
from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.introspection.kernel_identity import NOTHING, KernelObjects, Naming, Table, Template
from dispatchlab.live.introspection.queries import UPSTREAM, schema_text, upstream_check
from dispatchlab.live.introspection.slot_memory import Fingerprints, SlotView, entry_address, memory_layout
from dispatchlab.model.keys import PARSED_BY_TORCH, RUNTIME_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.snapshot import Snapshot, Violation


class Looked:
    """What was seen of an operator with one dump and one table, in any sandbox of an engine."""

    __slots__ = ("checked", "snapshot", "table")

    def __init__(self, snapshot: Snapshot, table: Table) -> None:
        self.snapshot, self.table = snapshot, table
        self.checked = False


class Known:
    """The dump and the table of an active set in this sandbox, and what was seen then."""

    __slots__ = ("dump", "looked", "snapshot", "table", "template", "visits")

    def __init__(self, dump: str, table: str, looked: Looked) -> None:
        self.dump, self.table, self.looked = dump, table, looked
        self.snapshot, self.template = looked.snapshot, looked.table.template
        self.visits = 0


class Watched:
    """An operator that is registered or looked at.

    Args:
        name: its name, as the user has it.
        raw: the name that it has in PyTorch.
    """

    __slots__ = ("alive", "known", "last", "name", "raw", "raw_text", "slots", "stale", "version")

    def __init__(self, name: OperatorName, raw: OperatorName) -> None:
        self.name, self.raw, self.raw_text = name, raw, str(raw)
        self.alive = 0
        self.known: dict[int, Known] = {}
        self.slots: SlotView | None = None
        self.last: Known | None = None
        self.stale: tuple[Snapshot, Violation] | None = None
        self.version = -1


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


_REMEMBERED = 256

# Note [Looking again]
# ~~~~~~~~~~~~~~~~~~~~
# The dump, the table and the slots are read after every step. The other observations cost more than all of these
# together: listing dangling impls walks over every operator of PyTorch, and a schema that is not found is an exception.
# So they are made once for each pair of dump and table that an engine shows, and PyTorch's own invariant check as well;
# it compares the slots with the table by function, and reading the slots, which is done every time, compares them by
# kernel.

# Note [When the table is read]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch computes the table of an operator when it is asked for it, from its lists of kernels and from the backend
# fallbacks, and from nothing else (`computeDispatchTableEntryWithDebug` in OperatorEntry.cpp). The dump prints every
# list, and since each call has a number, equal dumps are equal lists. So in a walk, a set that shows the dump that it
# showed before in this sandbox has the table that it had; computing it again is half of what a step costs. It is read
# all the same while the sandbox has ever registered a fallback, whenever the slots, which are read after every step,
# are not those of the table, and every few visits to hold PyTorch to this Note. Whoever wants it every time says so.
_VISITS_PER_TABLE = 8


class View:
    """The operators of one sandbox, looked at.

    Whoever registers and releases here says so: `version` changes with everything that is done, and `mask` has a bit
    for each registration that is in force.

    Args:
        libraries: how the sandbox spells the names of operators.
        naming: puts the user's names back.
        looked: what was seen with which dump and table, in any sandbox that shares the naming.
        memory: read the slots from memory where that is possible. See Note [Reading the slots].
        every_table: read the table after every step. See Note [When the table is read].
    """

    def __init__(
        self,
        libraries: Libraries,
        naming: Naming,
        looked: dict[tuple[str, str], Looked],
        *,
        memory: bool,
        every_table: bool,
    ) -> None:
        c = bindings()
        self._dump, self._table = c._dispatch_dump, c._dispatch_dump_table
        self._dangling = c._dispatch_find_dangling_impls
        self._libraries, self._naming, self._looked = libraries, naming, looked
        self._layout = memory_layout() if memory else None
        self.objects = KernelObjects(naming.world) if self._layout is not None else None
        self.every_table = every_table or self.objects is None
        self.mask = self.version = 0
        self._operators: dict[OperatorName, Watched] = {}
        self._by_id: dict[int, Watched] = {}
        self._asked: list[OperatorName] = []

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """What PyTorch shows of the operator now, and what sits in its slots."""
        watched = self._by_id.get(id(operator)) or self._watched(operator)
        raw = watched.raw_text
        dump = self._dump(raw)
        known = watched.known.get(self.mask)
        if known is not None and known.dump == dump and not self.every_table:
            known.visits += 1
            if known.visits % _VISITS_PER_TABLE and self._agrees(watched, known):
                watched.version, watched.last, watched.stale = self.version, known, None
                return known.snapshot
        table = self._table(raw)
        if known is None or known.dump != dump or known.table != table:
            known = self._look(watched, dump, table)
        watched.version = self.version
        if self._agrees(watched, known):
            watched.last, watched.stale = known, None
            return known.snapshot
        watched.stale = told(known.snapshot, known.looked.table, self._held(watched, known))
        watched.last = known
        return watched.stale[0]

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Slots that do not hold what the table computes, and what PyTorch's own check finds."""
        watched = self._by_id.get(id(operator)) or self._watched(operator)
        if watched.version != self.version:
            self.snapshot(operator)
        if watched.stale is not None:
            return (watched.stale[1],)
        assert watched.last is not None
        looked = watched.last.looked
        if looked.checked and self.objects is not None:
            return ()
        said = upstream_check(watched.raw_text)
        if said is not None:
            return (Violation(watched.name, UPSTREAM, said),)
        looked.checked = True
        return ()

    def operator(self, name: OperatorName) -> Watched:
        """What is remembered of an operator."""
        operator = self._operators.get(name)
        if operator is None:
            operator = self._operators[name] = Watched(name, self._libraries.name_of(name))
        return operator

    def schema_of(self, operator: Watched) -> str | None:
        """Its schema, with the user's names; None when it has none."""
        found = schema_text(operator.raw)
        return None if found is None else self.shown(found)

    def shown(self, text: str) -> str:
        """A text of PyTorch with the user's names and debug texts."""
        return self._naming.shown(text, self._libraries.prefix)

    def forget_released(self) -> None:
        """Forget the kernels that are gone and that no slot shows any more."""
        if self.objects is not None and self.objects.released:
            self.objects.forget(each.slots for each in self._operators.values() if each.slots is not None)

    def read_no_slots(self) -> None:
        """Believe the bindings from now on: there are kernels that slots are not told apart by."""
        self.objects, self.every_table = None, True

    def _watched(self, name: OperatorName) -> Watched:
        if len(self._asked) == _REMEMBERED:
            self._asked.clear()
            self._by_id.clear()
        operator = self._by_id[id(name)] = self.operator(name)
        self._asked.append(name)  # whose id stays its own for as long
        return operator

    def _look(self, watched: Watched, dump: str, table: str) -> Known:
        unprefixed = dump.replace(self._libraries.prefix, "")
        looked = self._looked.get((unprefixed, table))
        if looked is None:
            read = self._naming.table(table)
            snapshot = Snapshot(
                watched.name,
                self.shown(dump),
                read.shown,
                read.shown,
                self.schema_of(watched) if dump else None,
                dangling=dump in self._dangling() if dump else False,
            )
            looked = self._looked[unprefixed, table] = Looked(snapshot, read)
        if not dump and looked.snapshot.operator != watched.name:
            looked = Looked(replace(looked.snapshot, operator=watched.name), looked.table)
        known = watched.known[self.mask] = Known(dump, table, looked)
        return known

    def _agrees(self, watched: Watched, known: Known) -> bool:
        objects = self.objects
        if objects is None:
            return not known.dump or slots_by_bindings(watched.raw_text, known.looked.table) == known.snapshot.table
        slots = watched.slots
        if slots is None:
            if not known.dump:
                return True
            slots = self._slots(watched)
        found = slots.sum
        np.add(slots.functor, slots.boxed, found)
        if objects.pending:
            objects.name_pending(known.looked.table, found)
        if found.tobytes() != objects.by_number.take(known.template).tobytes():
            return not self._differing(watched, known, found, objects)
        if objects.released and len(self._operators) == 1:
            objects.released.clear()
        return True

    def _slots(self, watched: Watched) -> SlotView:
        assert self._layout is not None
        entry = entry_address(self._layout, watched.raw.qualified, watched.raw.overload)
        assert entry is not None, f"{watched.raw_text} is dumped and not in the list of operators"
        slots = SlotView(self._layout, entry)
        if watched.alive:
            watched.slots = slots
        return slots

    def _held(self, watched: Watched, known: Known) -> dict[int, str | None]:
        """What the slots hold that do not hold what the table says; None for nothing."""
        if self.objects is None:
            table = known.looked.table
            return differing_by_bindings(slots_by_bindings(watched.raw_text, table), table)
        slots = watched.slots or self._slots(watched)
        return self._differing(watched, known, slots.fingerprints(), self.objects)

    def _differing(
        self, watched: Watched, known: Known, found: Fingerprints, objects: KernelObjects
    ) -> dict[int, str | None]:
        last = None if watched.last is None else watched.last.template
        return differing(found, known.template, last, objects, self._naming)
