"""Observe the operators of a sandbox: their snapshots, an observation cache, and stale slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from dispatchlab.live.bridge.registration_calls import Libraries
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.introspection.kernel_identity import (
    NO_KERNEL,
    KernelNames,
    KernelNumbers,
    KernelObjects,
    ParsedTable,
)
from dispatchlab.live.introspection.queries import UPSTREAM, schema_text, upstream_check
from dispatchlab.live.introspection.slot_memory import Fingerprints, SlotView, entry_address, memory_layout
from dispatchlab.live.sandbox.kept_in_python import kept_in_python
from dispatchlab.model.names import OperatorName
from dispatchlab.model.snapshot import Snapshot, Violation, stale_slots_text

# Note [The observation cache]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
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
# are not those of the table, and every few visits to hold PyTorch to this Note.
_VISITS_PER_TABLE = 8

_REMEMBERED = 256
"""How many names are looked up by identity before the memory starts anew."""

STALE = "stale slot"
"""The rule that a slot breaks which does not hold what the table computes."""


class HeldKernel(NamedTuple):
    """The content of a stale slot: the number of a kernel (None if unknown), and its row (None for an empty slot)."""

    number: int | None
    text: str | None


class Observation:
    """The observation of an operator with one dump and one table. See Note [The observation cache].

    Args:
        snapshot: the snapshot.
        table: the table, by kernels.
    """

    __slots__ = ("checked", "snapshot", "table")

    def __init__(self, snapshot: Snapshot, table: ParsedTable) -> None:
        self.snapshot, self.table = snapshot, table
        self.checked = False


ObservationCache: TypeAlias = dict[tuple[str, str], Observation]
"""Observations by dump and table; sandboxes that share the names of kernels share it."""


class ObservedSet:
    """The observation of an active set of this sandbox for one operator.

    Args:
        dump: the dump that PyTorch printed.
        table: the table that PyTorch printed.
        observation: the observation.
    """

    __slots__ = ("dump", "kernels", "observation", "snapshot", "table", "visits")

    def __init__(self, dump: str, table: str, observation: Observation) -> None:
        self.dump, self.table, self.observation = dump, table, observation
        self.snapshot, self.kernels = observation.snapshot, observation.table.kernels
        self.visits = 0


class ObservedOperator:
    """An operator that is registered or observed.

    Args:
        name: the user's name of the operator.
        raw: its name in PyTorch.
    """

    __slots__ = ("active", "held", "last", "name", "raw", "raw_text", "sets", "slots", "stale", "version")

    def __init__(self, name: OperatorName, raw: OperatorName) -> None:
        self.name, self.raw, self.raw_text = name, raw, str(raw)
        self.active = 0  # how many registrations of it are in force
        self.sets: dict[int, ObservedSet] = {}
        self.slots: SlotView | None = None
        self.last: ObservedSet | None = None
        self.held: dict[int, int] = {}  # the kernels in the slots that were stale when it was looked at last
        self.stale: tuple[Snapshot, Violation] | None = None
        self.version = -1


class Observer:
    """Observes the operators of one sandbox.

    The code that registers and releases updates two values: `version` changes with every step,
    and `active_set` has a bit for each active registration.

    Args:
        libraries: the libraries of the sandbox, which translate names of operators.
        names: restores the user's names.
        cache: the observation for each dump and table, from all sandboxes that share the names.
    """

    def __init__(self, libraries: Libraries, names: KernelNames, cache: ObservationCache) -> None:
        c = bindings()
        self._dump, self._table = c._dispatch_dump, c._dispatch_dump_table
        self._dangling = c._dispatch_find_dangling_impls
        self._libraries, self._names, self._cache = libraries, names, cache
        self._layout = memory_layout()
        self.objects = KernelObjects(names.builtin) if self._layout is not None else None
        self.every_table = self.objects is None
        self.active_set = self.version = 0
        self.reads_python = False
        self._operators: dict[OperatorName, ObservedOperator] = {}
        self._by_id: dict[int, ObservedOperator] = {}
        self._remembered: list[OperatorName] = []

    def snapshot(self, name: OperatorName, /) -> Snapshot:
        """Return PyTorch's present output about the operator, the content of its slots, and perhaps Python entries."""
        found = self._snapshot(name)
        if not self.reads_python:
            return found
        raw = kept_in_python(str(self._libraries.name_of(name)), self._names.mark)
        text = self.shown(raw).replace(": \n", ": (no debug text)\n")
        return replace(found, python=text) if text else found

    def _snapshot(self, name: OperatorName) -> Snapshot:
        operator = self._by_id.get(id(name)) or self._remember(name)
        raw = operator.raw_text
        dump = self._dump(raw)
        known = operator.sets.get(self.active_set)
        if known is not None and known.dump == dump and not self.every_table:
            known.visits += 1
            if known.visits % _VISITS_PER_TABLE and self._agrees(operator, known):
                operator.version, operator.last, operator.stale = self.version, known, None
                operator.held.clear()
                return known.snapshot
        table = self._table(raw)
        if known is None or known.dump != dump or known.table != table:
            known = self._observe(operator, dump, table)
        operator.version = self.version
        if self._agrees(operator, known):
            operator.last, operator.stale = known, None
            operator.held.clear()
            return known.snapshot
        held = self._stale(operator, known)
        operator.stale = _with_stale_slots(known.snapshot, known.observation.table, held)
        operator.last = known
        operator.held = {slot: each.number for slot, each in held.items() if each.number is not None}
        return operator.stale[0]

    def violations(self, name: OperatorName, /) -> tuple[Violation, ...]:
        """Return the slots that differ from the computed table, and the results of PyTorch's own check."""
        operator = self._by_id.get(id(name)) or self._remember(name)
        if operator.version != self.version:
            self.snapshot(name)
        if operator.stale is not None:
            return (operator.stale[1],)
        assert operator.last is not None
        observation = operator.last.observation
        if observation.checked and self.objects is not None:
            return ()
        found = upstream_check(operator.raw_text)
        if found is not None:
            return (Violation(operator.name, UPSTREAM, found),)
        observation.checked = True
        return ()

    def operator(self, name: OperatorName) -> ObservedOperator:
        """Return the remembered state of an operator."""
        operator = self._operators.get(name)
        if operator is None:
            operator = self._operators[name] = ObservedOperator(name, self._libraries.name_of(name))
        return operator

    def schema_of(self, operator: ObservedOperator) -> str | None:
        """Return the schema of an operator with the user's names; None without a schema."""
        found = schema_text(operator.raw)
        return None if found is None else self.shown(found)

    def shown(self, text: str) -> str:
        """Return a text of PyTorch with the user's names and debug texts."""
        return self._names.shown(text, self._libraries.prefix)

    def forget_released(self) -> None:
        """Forget the released kernels that no slot holds any more."""
        if self.objects is not None and self.objects.released:
            self.objects.forget_released(each.slots for each in self._operators.values() if each.slots is not None)

    def stop_reading_slots(self) -> None:
        """Use only the bindings from now on, because slots cannot distinguish some kernels."""
        self.objects, self.every_table = None, True

    def read_python(self) -> None:
        """Also observe Python's entries of operators from now on."""
        self.reads_python = True

    def _remember(self, name: OperatorName) -> ObservedOperator:
        if len(self._remembered) == _REMEMBERED:
            self._remembered.clear()
            self._by_id.clear()
        operator = self._by_id[id(name)] = self.operator(name)
        self._remembered.append(name)  # whose id stays its own for as long
        return operator

    def _observe(self, operator: ObservedOperator, dump: str, table: str) -> ObservedSet:
        unprefixed = dump.replace(self._libraries.prefix, "")
        observation = self._cache.get((unprefixed, table))
        if observation is None:
            parsed = self._names.table(table)
            snapshot = Snapshot(
                operator.name,
                self.shown(dump),
                parsed.shown,
                parsed.shown,
                self.schema_of(operator) if dump else None,
                dangling=dump in self._dangling() if dump else False,
            )
            observation = self._cache[unprefixed, table] = Observation(snapshot, parsed)
        if not dump and observation.snapshot.operator != operator.name:
            observation = Observation(replace(observation.snapshot, operator=operator.name), observation.table)
        found = operator.sets[self.active_set] = ObservedSet(dump, table, observation)
        return found

    def _agrees(self, operator: ObservedOperator, known: ObservedSet) -> bool:
        """Return whether the slots agree with the table."""
        objects = self.objects
        if objects is None:
            table = known.observation.table
            return not known.dump or _slots_by_bindings(operator.raw_text, table) == known.snapshot.table
        slots = operator.slots
        if slots is None:
            if not known.dump:
                return True
            slots = self._slots(operator)
        found = slots.fingerprints()
        if objects.pending:
            objects.name_pending(known.observation.table, found)
        if found.tobytes() != objects.by_number.take(known.kernels).tobytes():
            return not self._stale_in_memory(operator, known, found, objects)
        if objects.released and len(self._operators) == 1:
            objects.released.clear()
        return True

    def _slots(self, operator: ObservedOperator) -> SlotView:
        assert self._layout is not None
        entry = entry_address(self._layout, operator.raw.qualified, operator.raw.overload)
        assert entry is not None, f"{operator.raw_text} is dumped and not in the list of operators"
        slots = SlotView(self._layout, entry)
        if operator.active:
            operator.slots = slots
        return slots

    def _stale(self, operator: ObservedOperator, known: ObservedSet) -> dict[int, HeldKernel]:
        """Return the stale slots with their content."""
        if self.objects is None:
            table = known.observation.table
            return _stale_by_bindings(_slots_by_bindings(operator.raw_text, table), table)
        slots = operator.slots or self._slots(operator)
        return self._stale_in_memory(operator, known, slots.fingerprints(), self.objects)

    def _stale_in_memory(
        self, operator: ObservedOperator, known: ObservedSet, found: Fingerprints, objects: KernelObjects
    ) -> dict[int, HeldKernel]:
        last = None if operator.last is None else operator.last.kernels
        return _stale_slots(found, known.kernels, last, operator.held, objects, self._names)


def _stale_slots(
    found: Fingerprints,
    wanted: KernelNumbers,
    last: KernelNumbers | None,
    held_last: Mapping[int, int],
    objects: KernelObjects,
    names: KernelNames,
) -> dict[int, HeldKernel]:
    """Return the slots whose content differs from the table, with this content.

    Args:
        found: the present content of the slots.
        wanted: the kernels that the table shows.
        last: the kernels of the table at the last observation; None before the first one.
        held_last: the kernels in the stale slots at the last observation.
        objects: the kernels whose fingerprints are known.
        names: the texts of the rows.
    """
    held: dict[int, HeldKernel] = {}
    for slot in np.flatnonzero(found != objects.by_number[wanted]).tolist():
        should = int(wanted[slot])
        before = held_last.get(slot, NO_KERNEL if last is None else int(last[slot]))
        number = objects.number_at(slot, int(found[slot]), should, before)
        text = "a kernel that no table has shown" if number is None else names.slot_text(slot, number)
        if text != names.slot_text(slot, should):
            held[slot] = HeldKernel(number, text)
    return held


def _slots_by_bindings(raw_name: str, table: ParsedTable) -> str:
    """Return the slots as lines of a table; the bindings only show whether a slot is filled."""
    is_filled = bindings()._dispatch_has_computed_kernel_for_dispatch_key
    rows, keys = _rows(table), running_keys()
    for slot, key in enumerate(keys.runtime):
        if key not in keys.parsed:
            continue
        filled = is_filled(raw_name, key)
        if filled and slot not in rows:
            rows[slot] = f"{key}: a kernel that the table does not show"
        elif not filled:
            rows.pop(slot, None)
    return "".join(f"{rows[slot]}\n" for slot in sorted(rows))


def _stale_by_bindings(held: str, table: ParsedTable) -> dict[int, HeldKernel]:
    """Return the stale slots by `_slots_by_bindings`."""
    rows, slot_of = _rows(table), running_keys().slot_of
    lines = {slot_of[key]: text for key, _, text in (line.partition(": ") for line in held.splitlines())}
    found = {slot: HeldKernel(None, None) for slot in rows if slot not in lines}
    found |= {slot: HeldKernel(None, text) for slot, text in lines.items() if slot not in rows}
    return found


def _with_stale_slots(
    snapshot: Snapshot, table: ParsedTable, held: Mapping[int, HeldKernel]
) -> tuple[Snapshot, Violation]:
    """Return the snapshot with the content of the slots, and the violation.

    Args:
        snapshot: the snapshot of the operator, with the slots that the table shows.
        table: the table of the operator.
        held: the content of the stale slots, at least one.
    """
    rows, runtime = _rows(table), running_keys().runtime
    lines = {slot: row for slot, row in rows.items() if slot not in held}
    lines |= {slot: f"{runtime[slot]}: {each.text}" for slot, each in held.items() if each.text is not None}
    slots = "".join(f"{lines[slot]}\n" for slot in sorted(lines))
    slot_of = {runtime[slot]: slot for slot in sorted(held)}
    keys = tuple(slot_of)
    detail = stale_slots_text(
        keys, lambda key: held[slot_of[key]].text or "", lambda key: rows.get(slot_of[key], "").partition(": ")[2]
    )
    return replace(snapshot, slots=slots), Violation(snapshot.operator, STALE, detail, keys)


def _rows(table: ParsedTable) -> dict[int, str]:
    return {slot: shown for slot, _, shown in table.rows}
