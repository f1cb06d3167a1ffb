"""One fresh set of namespaces in the running PyTorch, as a sandbox that the explorer can drive.

Everything here runs in the process that has torch; `LocalEngine` hands out sandboxes there. Names and debug texts are
put back in whatever is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import numpy as np

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live import torch as live_torch
from dispatchlab.live.journal import Journal
from dispatchlab.live.memory import Fingerprints, SlotView, entry_address, memory_layout
from dispatchlab.live.naming import NOTHING, OWN, Naming
from dispatchlab.live.opening import Library, NativeKernels, Opener, Step
from dispatchlab.live.slots import KernelObjects, Template
from dispatchlab.live.texts import refusal, without_backtrace
from dispatchlab.live.world import world
from dispatchlab.model.keys import PARSED_BY_TORCH, RUNTIME_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.snapshot import Snapshot, Violation

STALE = "stale slot"
UPSTREAM = "PyTorch's own check"

_number = count(1)

# Note [Looking again]
# ~~~~~~~~~~~~~~~~~~~~
# The dump, the table and the slots are read after every step. The other observations cost more than all of these
# together: listing dangling impls walks over every operator of PyTorch, and a schema that is not found is an exception.
# So they are made once for each dump that a sandbox shows. PyTorch's own invariant check is run once for each pair of
# dump and table; it compares the slots with the table by function, and reading the slots, which is done every time,
# compares them by kernel.


class _Plan:
    """A registration of one sandbox: its calls, and what is in force of it."""

    __slots__ = ("bit", "index", "kernels", "live", "operators", "registration", "steps")

    def __init__(self, registration: Registration, steps: tuple[Step, ...], bit: int, index: int | None) -> None:
        self.registration, self.steps, self.bit, self.index = registration, steps, bit, index
        self.live: LiveHandle | None = None
        kernels = ((step.number, step.origin.kernel) for step in steps)
        self.kernels = [OWN + number for number, kernel in kernels if kernel is not None and not kernel.is_fallthrough]
        self.operators = tuple(step.operator for step in steps if step.operator is not None)


class LiveHandle:
    """A registration that is in force on the running PyTorch."""

    __slots__ = ("_libraries", "_plan", "_sandbox")

    def __init__(self, sandbox: LiveSandbox, plan: _Plan, libraries: tuple[Library, ...]) -> None:
        self._sandbox, self._plan, self._libraries = sandbox, plan, libraries

    def release(self) -> None:
        """Undo it, what was registered first first; a second release is harmless."""
        libraries = self._libraries
        if libraries:
            self._libraries = ()
            self._sandbox._release(self._plan, libraries)


class _Seen:
    """What was seen of one operator while PyTorch showed one dump and one table."""

    __slots__ = ("checked", "dump", "slots_of", "snapshot", "table", "template")

    def __init__(
        self, dump: str, table: str, snapshot: Snapshot, template: Template, slots_of: Mapping[int, list[int]]
    ) -> None:
        self.dump, self.table, self.snapshot = dump, table, snapshot
        self.template, self.slots_of = template, slots_of
        self.checked = False


class _Watched:
    """An operator that is looked at."""

    __slots__ = ("by_mask", "by_text", "last", "operator", "raw_name", "slots", "stale", "version")

    def __init__(self, operator: OperatorName, raw_name: str) -> None:
        self.operator, self.raw_name = operator, raw_name
        self.by_mask: dict[int, _Seen] = {}
        self.by_text: dict[tuple[str, str], _Seen] = {}
        self.slots: SlotView | None = None
        self.last: _Seen | None = None
        self.stale: tuple[Snapshot, Violation] | None = None
        self.version = -1


class LiveSandbox:
    """A fresh set of namespaces; see `LocalEngine`."""

    def __init__(
        self,
        *,
        indices: Mapping[int, int],
        journal: Journal | None,
        parse_keys: bool,
        native: NativeKernels | None,
        memory: bool,
    ) -> None:
        number = next(_number)
        self.prefix, mark = f"dlab{number}_", f"dlab{number}!"
        self._c = live_torch.bindings()
        self._dump, self._table = self._c._dispatch_dump, self._c._dispatch_dump_table
        world_now = world()
        self._opener = Opener(self.prefix, mark, parse_keys=parse_keys, native=native)
        self._naming = Naming(self.prefix, mark, world_now)
        self._layout = memory_layout() if memory else None
        self._objects = KernelObjects(world_now) if self._layout is not None else None
        self._indices, self._journal = indices, journal
        self._plans: dict[int, _Plan] = {}
        self._all_plans: list[_Plan] = []
        self._watched: dict[OperatorName, _Watched] = {}
        self._watched_by_id: dict[int, _Watched] = {}
        self._alive: dict[OperatorName, int] = {}
        self._left: list[Library] = []
        self._mask = self._version = 0
        if journal is not None:
            journal.restart()

    def register(self, registration: Registration, /) -> LiveHandle:
        """Register it on the running PyTorch.

        Raises:
            RegistrationError: PyTorch refused; its text, with the user's names in it, is the message.
            NotExpressibleError: the bindings have no call for it.
        """
        plan = self._plans.get(id(registration))
        if plan is None or plan.live is not None:
            plan = self._planned(registration)
        if self._journal is not None and plan.index is not None:
            self._journal.write(plan.index)
        objects = self._objects
        if objects is not None and objects.released:
            objects.forget(watched.slots for watched in self._watched.values() if watched.slots is not None)
        self._version += 1
        steps = plan.steps
        if len(steps) == 1:
            try:
                libraries: tuple[Library, ...] = (steps[0].open(),)
            except RuntimeError as error:
                raise self._refusal(error, steps[0]) from None
        else:
            libraries = self._open(steps)
        self._mask |= plan.bit
        alive = self._alive
        for operator in plan.operators:
            alive[operator] += 1
        if objects is not None:
            objects.pending += plan.kernels
        handle = plan.live = LiveHandle(self, plan, libraries)
        return handle

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """What PyTorch shows of the operator now, and what sits in its slots."""
        watched = self._watched_by_id.get(id(operator)) or self._watch(operator)
        raw = watched.raw_name
        dump, table = self._dump(raw), self._table(raw)
        seen = watched.by_mask.get(self._mask)
        if seen is None or seen.dump != dump or seen.table != table:
            seen = self._look(watched, dump, table)
        if self._agrees(watched, seen):
            watched.last, watched.stale, watched.version = seen, None, self._version
            return seen.snapshot
        watched.stale = self._stale(watched, seen)
        watched.last, watched.version = seen, self._version
        return watched.stale[0]

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Slots that do not hold what the table computes, and what PyTorch's own check finds."""
        watched = self._watched_by_id.get(id(operator)) or self._watch(operator)
        if watched.version != self._version:
            self.snapshot(operator)
        if watched.stale is not None:
            return (watched.stale[1],)
        seen = watched.last
        assert seen is not None
        if seen.checked and self._objects is not None:
            return ()
        said = self._upstream_check(watched.raw_name)
        if said is not None:
            return (Violation(operator, UPSTREAM, said),)
        seen.checked = True
        return ()

    def close(self) -> None:
        """Release whatever is still in force."""
        for plan in self._all_plans:
            if plan.live is not None:
                plan.live.release()
        for library in self._left:
            library.reset()

    def _planned(self, registration: Registration) -> _Plan:
        steps = self._opener.steps_of(registration)
        for step in steps:
            self._naming.origins[step.number] = step.origin
        plan = _Plan(registration, steps, 1 << len(self._naming.origins), self._indices.get(id(registration)))
        self._plans[id(registration)] = plan
        self._all_plans.append(plan)
        for operator in plan.operators:
            self._alive.setdefault(operator, 0)
        if self._objects is not None:
            for step in steps:
                if step.origin.kernel is not None:
                    self._objects.planned(OWN + step.number, falls_through=step.origin.kernel.is_fallthrough)
        return plan

    def _open(self, steps: tuple[Step, ...]) -> tuple[Library, ...]:
        done: list[tuple[Step, Library]] = []
        for step in steps:
            try:
                done.append((step, step.open()))
            except (RuntimeError, RegistrationError) as error:
                for before, library in done:
                    if before.number == step.leaves:
                        self._left.append(library)
                        if before.operator is not None:
                            self._alive[before.operator] += 1
                    else:
                        library.reset()
                if isinstance(error, RegistrationError):
                    raise
                raise self._refusal(error, step) from None
        return tuple(library for _, library in done)

    def _release(self, plan: _Plan, libraries: tuple[Library, ...]) -> None:
        if self._journal is not None and plan.index is not None:
            self._journal.write(~plan.index)
        self._version += 1
        for library in libraries:
            library.reset()
        plan.live = None
        self._mask &= ~plan.bit
        objects, alive = self._objects, self._alive
        if objects is not None:
            for kernel in plan.kernels:
                objects.gone(kernel)
        for operator in plan.operators:
            alive[operator] -= 1
            if not alive[operator] and operator in self._watched:
                self._watched[operator].slots = None

    def _refusal(self, error: RuntimeError, step: Step) -> RegistrationError:
        found = refusal(str(error))
        facts = {name: self._naming.shown(value) for name, value in found.facts.items()}
        operator = step.operator
        if found.kind is ErrorKind.DUPLICATE_DEF and operator is not None:
            facts |= {"operator": str(operator), "other_schema": self._schema(operator) or ""}
        return RegistrationError(found.kind, self._naming.shown(found.message), facts)

    def _watch(self, operator: OperatorName) -> _Watched:
        watched = self._watched.get(operator)
        if watched is None:
            watched = self._watched[operator] = _Watched(operator, str(self._opener.name_of(operator)))
            self._watched_by_id[id(watched.operator)] = watched
        return watched

    def _look(self, watched: _Watched, dump: str, table: str) -> _Seen:
        seen = watched.by_text.get((dump, table))
        if seen is None:
            rows = [self._naming.row(line) for line in table.splitlines()]
            template = np.full(len(RUNTIME_KEYS), NOTHING, dtype=np.intp)
            slots_of: dict[int, list[int]] = {}
            for row in rows:
                template[row.slot] = row.kernel
                slots_of.setdefault(row.kernel, []).append(row.slot)
            shown = "".join(f"{row.shown}\n" for row in rows)
            naming, schema = self._naming, self._schema(watched.operator) if dump else None
            snapshot = Snapshot(
                watched.operator,
                naming.shown(dump),
                shown,
                shown,
                schema,
                dangling=dump in self._c._dispatch_find_dangling_impls() if dump else False,
            )
            seen = watched.by_text[dump, table] = _Seen(dump, table, snapshot, template, slots_of)
        watched.by_mask[self._mask] = seen
        return seen

    def _schema(self, operator: OperatorName) -> str | None:
        name = self._opener.name_of(operator)
        try:
            return self._naming.shown(
                str(self._c._dispatch_find_schema_or_throw(name.qualified, name.overload).schema())
            )
        except RuntimeError:
            return None

    def _agrees(self, watched: _Watched, seen: _Seen) -> bool:
        objects = self._objects
        if objects is None:
            return not seen.dump or self._slots_by_bindings(watched, seen) == seen.snapshot.table
        found = self._found(watched, seen)
        if found is None:
            return True
        if objects.pending:
            objects.name_pending(seen.slots_of, found)
        if found.tobytes() != objects.by_number.take(seen.template).tobytes():
            return not self._differing(watched, seen, found)
        if objects.released and len(self._watched) == 1:
            objects.released.clear()
        return True

    def _found(self, watched: _Watched, seen: _Seen) -> Fingerprints | None:
        slots = watched.slots
        if slots is None:
            if not seen.dump:
                return None
            assert self._layout is not None
            name = self._opener.name_of(watched.operator)
            entry = entry_address(self._layout, name.qualified, name.overload)
            assert entry is not None, f"{name} is dumped and not in the list of operators"
            slots = SlotView(self._layout, entry)
            if self._alive.get(watched.operator):
                watched.slots = slots
        return slots.fingerprints()

    def _differing(self, watched: _Watched, seen: _Seen, found: Fingerprints) -> dict[int, str | None]:
        """What the slots hold that do not hold what the table says; None for nothing."""
        objects, naming = self._objects, self._naming
        assert objects is not None
        before = None if watched.last is None else watched.last.template
        differing: dict[int, str | None] = {}
        for slot in np.flatnonzero(found != objects.by_number[seen.template]).tolist():
            wanted = int(seen.template[slot])
            last = NOTHING if before is None else int(before[slot])
            number = objects.number_at(slot, int(found[slot]), wanted, last)
            held = "a kernel that no table has shown" if number is None else naming.held(slot, number)
            if held != naming.held(slot, wanted):
                differing[slot] = held
        return differing

    def _stale(self, watched: _Watched, seen: _Seen) -> tuple[Snapshot, Violation]:
        rows = {row.slot: row.shown for row in map(self._naming.row, seen.table.splitlines())}
        if self._objects is None:
            held = self._slots_by_bindings(watched, seen)
            kept = {line.partition(":")[0] for line in held.splitlines()}
            differing: dict[int, str | None] = {
                slot: None for slot, row in rows.items() if str(RUNTIME_KEYS[slot]) not in kept
            }
            for line in held.splitlines():
                key, _, text = line.partition(": ")
                if SLOT_OF_KEY[DispatchKey[key]] not in rows:
                    differing[SLOT_OF_KEY[DispatchKey[key]]] = text
        else:
            found = self._found(watched, seen)
            assert found is not None
            differing = self._differing(watched, seen, found)
        slots = {slot: row for slot, row in rows.items() if slot not in differing}
        slots |= {slot: f"{RUNTIME_KEYS[slot]}: {text}" for slot, text in differing.items() if text is not None}
        text = "".join(f"{slots[slot]}\n" for slot in sorted(slots))
        first = min(differing)
        keys = tuple(str(RUNTIME_KEYS[slot]) for slot in sorted(differing))
        wanted = rows[first].partition(": ")[2] if first in rows else "nothing"
        more = f", and {len(keys) - 1} more slots: {', '.join(keys[1:])}" if len(keys) > 1 else ""
        detail = f"the slot of {keys[0]} holds {differing[first] or 'nothing'} and should hold {wanted}{more}"
        return replace(seen.snapshot, slots=text), Violation(watched.operator, STALE, detail, keys)

    def _slots_by_bindings(self, watched: _Watched, seen: _Seen) -> str:
        rows = {row.slot: row.shown for row in map(self._naming.row, seen.table.splitlines())}
        for slot, key in enumerate(RUNTIME_KEYS):
            if key not in PARSED_BY_TORCH:
                continue
            filled = self._c._dispatch_has_computed_kernel_for_dispatch_key(watched.raw_name, str(key))
            if filled and slot not in rows:
                rows[slot] = f"{key}: a kernel that the table does not show"
            elif not filled:
                rows.pop(slot, None)
        return "".join(f"{rows[slot]}\n" for slot in sorted(rows))

    def _upstream_check(self, raw_name: str) -> str | None:
        try:
            self._c._dispatch_check_invariants(raw_name)
        except RuntimeError as error:
            return without_backtrace(str(error)).split(", please report", 1)[0]
        return None


class LocalEngine:
    """The running PyTorch of this process, as an engine.

    Args:
        registrations: the registrations whose places the journal writes.
        journal: where the word of the current sandbox is written.
        parse_keys: hand dispatch keys over as text, of which PyTorch refuses 42; else as numbers.
        native: C++ kernels of an extension.
        memory: read the slots from memory where that is possible. See Note [Reading the slots].
    """

    name = "torch"

    def __init__(
        self,
        registrations: Sequence[Registration] = (),
        *,
        journal: Journal | None = None,
        parse_keys: bool = True,
        native: NativeKernels | None = None,
        memory: bool = True,
    ) -> None:
        live_torch.bindings()
        self._indices = {id(registration): index for index, registration in enumerate(registrations)}
        self._kept = tuple(registrations)
        self._journal, self._parse_keys, self._native, self._memory = journal, parse_keys, native, memory

    @property
    def semantics(self) -> str:
        """`torch-2.13` and the like, after the PyTorch that is running."""
        return live_torch.semantics()

    @contextmanager
    def sandbox(self) -> Iterator[LiveSandbox]:
        """Fresh namespaces; what is still in force is released at the end."""
        sandbox = LiveSandbox(
            indices=self._indices,
            journal=self._journal,
            parse_keys=self._parse_keys,
            native=self._native,
            memory=self._memory,
        )
        try:
            yield sandbox
        finally:
            sandbox.close()
