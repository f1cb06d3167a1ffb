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
from dispatchlab.live.libraries import Libraries
from dispatchlab.live.memory import Fingerprints, SlotView, entry_address, memory_layout
from dispatchlab.live.naming import NOTHING, OWN, Naming, Table
from dispatchlab.live.opening import NativeKernels, Opener
from dispatchlab.live.slots import KernelObjects
from dispatchlab.live.step import Library, Step
from dispatchlab.live.texts import refusal, without_backtrace
from dispatchlab.live.world import world
from dispatchlab.model.keys import PARSED_BY_TORCH, RUNTIME_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Fallback, Registration
from dispatchlab.model.snapshot import Snapshot, Violation

STALE = "stale slot"
UPSTREAM = "PyTorch's own check"

_REMEMBERED = 256
_number = count(1)

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


class _Looked:
    """What was seen of an operator with one dump and one table, in any sandbox of an engine."""

    __slots__ = ("checked", "snapshot", "table")

    def __init__(self, snapshot: Snapshot, table: Table) -> None:
        self.snapshot, self.table = snapshot, table
        self.checked = False


class _Known:
    """The dump and the table of an active set in this sandbox, and what was seen then."""

    __slots__ = ("dump", "looked", "snapshot", "table", "template", "visits")

    def __init__(self, dump: str, table: str, looked: _Looked) -> None:
        self.dump, self.table, self.looked = dump, table, looked
        self.snapshot, self.template = looked.snapshot, looked.table.template
        self.visits = 0


class _Operator:
    """An operator that is registered or looked at."""

    __slots__ = ("alive", "known", "last", "name", "raw", "raw_text", "slots", "stale", "version")

    def __init__(self, name: OperatorName, raw: OperatorName) -> None:
        self.name, self.raw, self.raw_text = name, raw, str(raw)
        self.alive = 0
        self.known: dict[int, _Known] = {}
        self.slots: SlotView | None = None
        self.last: _Known | None = None
        self.stale: tuple[Snapshot, Violation] | None = None
        self.version = -1


class _Plan:
    """A registration of one sandbox: its calls, and what is in force of it."""

    __slots__ = ("bit", "index", "kernels", "live", "open", "operators", "skips", "source", "steps")

    def __init__(
        self,
        source: Registration,
        steps: tuple[Step, ...],
        operators: list[_Operator],
        bit: int,
        index: int | None,
    ) -> None:
        self.source = source
        self.steps, self.operators, self.bit, self.index = steps, operators, bit, index
        self.live: LiveHandle | None = None
        kernels = ((step.number, step.origin.kernel) for step in steps)
        self.kernels: list[int] = []
        self.skips: list[int] = []
        for number, kernel in kernels:
            if kernel is not None:
                (self.skips if kernel.is_fallthrough else self.kernels).append(OWN + number)
        self.open = steps[0].open if len(steps) == 1 else None


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


class LiveSandbox:
    """A fresh set of namespaces; see `LocalEngine`."""

    def __init__(
        self,
        naming: Naming,
        looked: dict[tuple[str, str], _Looked],
        *,
        indices: Mapping[int, int],
        journal: Journal | None,
        parse_keys: bool,
        native: NativeKernels | None,
        memory: bool,
        every_table: bool,
    ) -> None:
        self.prefix = f"dlab{next(_number)}_"
        self._c = live_torch.bindings()
        self._dump, self._table = self._c._dispatch_dump, self._c._dispatch_dump_table
        self._naming, self._looked = naming, looked
        self._libraries = Libraries(self.prefix, naming.mark, parse_keys=parse_keys)
        self._opener = Opener(self._libraries, native=native)
        self._layout = memory_layout() if memory else None
        self._objects = KernelObjects(naming.world) if self._layout is not None else None
        self._indices, self._journal = indices, journal
        self._plans: dict[int, _Plan] = {}
        self._all_plans: list[_Plan] = []
        self._operators: dict[OperatorName, _Operator] = {}
        self._by_id: dict[int, _Operator] = {}
        self._asked: list[OperatorName] = []
        self._left: list[Library] = []
        self._unnamed: list[_Operator] = []
        self._mask = self._version = 0
        self._every_table = every_table or self._objects is None
        if journal is not None:
            journal.restart()

    def register(self, registration: Registration, /) -> LiveHandle:
        """Register it on the running PyTorch.

        Raises:
            RegistrationError: PyTorch refused; its text, with the user's names in it, is the message.
            NotExpressibleError: the bindings have no call for it.
        """
        plan = self._plans.get(id(registration))
        if self._journal is not None:
            index = self._indices.get(id(registration))
            if index is not None:
                self._journal.write(index)
        if plan is None or plan.live is not None:
            plan = self._planned(registration)
        objects = self._objects
        if objects is not None:
            if objects.pending and self._unnamed:
                self._name_kernels()
            if objects.released:
                objects.forget(operator.slots for operator in self._operators.values() if operator.slots is not None)
        self._version += 1
        if plan.open is not None:
            try:
                libraries: tuple[Library, ...] = (plan.open(),)
            except RuntimeError as error:
                self._refused(plan)
                raise self._refusal(error, plan.steps[0]) from None
        else:
            libraries = self._open(plan)
        self._mask |= plan.bit
        for operator in plan.operators:
            operator.alive += 1
        if objects is not None:
            if plan.open is not None:
                objects.pending += plan.kernels
            if plan.skips:
                objects.fallthroughs += plan.skips
            self._unnamed = plan.operators
        handle = plan.live = LiveHandle(self, plan, libraries)
        return handle

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """What PyTorch shows of the operator now, and what sits in its slots."""
        watched = self._by_id.get(id(operator)) or self._watched(operator)
        raw = watched.raw_text
        dump = self._dump(raw)
        known = watched.known.get(self._mask)
        if known is not None and known.dump == dump and not self._every_table:
            known.visits += 1
            if known.visits % _VISITS_PER_TABLE and self._agrees(watched, known):
                watched.version, watched.last, watched.stale = self._version, known, None
                return known.snapshot
        table = self._table(raw)
        if known is None or known.dump != dump or known.table != table:
            known = self._look(watched, dump, table)
        watched.version = self._version
        if self._agrees(watched, known):
            watched.last, watched.stale = known, None
            return known.snapshot
        watched.stale = self._stale(watched, known)
        watched.last = known
        return watched.stale[0]

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Slots that do not hold what the table computes, and what PyTorch's own check finds."""
        watched = self._by_id.get(id(operator)) or self._watched(operator)
        if watched.version != self._version:
            self.snapshot(operator)
        if watched.stale is not None:
            return (watched.stale[1],)
        assert watched.last is not None
        looked = watched.last.looked
        if looked.checked and self._objects is not None:
            return ()
        said = self._upstream_check(watched.raw_text)
        if said is not None:
            return (Violation(watched.name, UPSTREAM, said),)
        looked.checked = True
        return ()

    def close(self) -> None:
        """Release whatever is still in force."""
        for plan in self._all_plans:
            if plan.live is not None:
                plan.live.release()
        for library in self._left:
            library.reset()
        self._libraries.reset()

    def _planned(self, registration: Registration) -> _Plan:
        copy = sum(plan.source is registration for plan in self._all_plans)
        steps = self._naming.planned(registration, copy, self._opener)
        operators = [self._operator(step.operator) for step in steps if step.operator is not None]
        plan = _Plan(registration, steps, operators, 1 << len(self._all_plans), self._indices.get(id(registration)))
        self._plans[id(registration)] = plan
        self._all_plans.append(plan)
        if any(step.is_layered for step in steps):
            # NB: it makes several kernels under one number, which slots are not told apart by.
            self._objects, self._every_table = None, True
        if self._objects is not None:
            for step in steps:
                kernel = step.origin.kernel
                self._every_table |= isinstance(step.origin.registration, Fallback)
                if kernel is not None:
                    number, size = OWN + step.number, self._naming.size
                    self._objects.planned(number, size, falls_through=kernel.is_fallthrough)
        return plan

    def _name_kernels(self) -> None:
        """Look at what was registered last, if nobody did, before there are more new objects to tell apart."""
        unnamed, self._unnamed = self._unnamed, []
        for operator in unnamed:
            if operator.version != self._version:
                self.snapshot(operator.name)

    def _open(self, plan: _Plan) -> tuple[Library, ...]:
        objects = self._objects
        done: list[tuple[Step, Library]] = []
        for step in plan.steps:
            try:
                done.append((step, step.open()))
                if objects is not None and OWN + step.number in plan.kernels:
                    objects.pending.append(OWN + step.number)
                    self._version += 1
                    if step.operator is not None:
                        self.snapshot(step.operator)
            except (RuntimeError, RegistrationError) as error:
                for before, library in done:
                    if before.number == step.leaves and before.operator is not None:
                        self._left.append(library)
                        self._operator(before.operator).alive += 1
                        self._plans.pop(id(plan.source), None)  # whose library is not its own any more
                    else:
                        library.reset()
                        if objects is not None and OWN + before.number in plan.kernels:
                            objects.gone(OWN + before.number)
                self._version += 1
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
        self._mask ^= plan.bit
        objects = self._objects
        if objects is not None:
            for kernel in plan.kernels:
                objects.gone(kernel)
            for kernel in plan.skips:
                objects.fallthroughs.remove(kernel)
        for operator in plan.operators:
            operator.alive -= 1
            if not operator.alive:
                operator.slots = None

    def _refused(self, plan: _Plan) -> None:
        """Expect what a refused fallback at an alias key leaves: upstream keeps it at the keys before the taken one."""
        registration = plan.steps[0].origin.registration
        if isinstance(registration, Fallback) and registration.key is not None and registration.key.is_alias:
            self._plans.pop(id(plan.source), None)  # whose library holds what is left
            if self._objects is not None:
                self._objects.pending += plan.kernels
                self._objects.fallthroughs += plan.skips

    def _refusal(self, error: RuntimeError, step: Step) -> RegistrationError:
        found = refusal(str(error))
        facts = {name: self._shown(value) for name, value in found.facts.items()}
        operator = step.operator
        if found.kind is ErrorKind.DUPLICATE_DEF and operator is not None:
            facts |= {"operator": str(operator), "other_schema": self._schema(self._operator(operator)) or ""}
        return RegistrationError(found.kind, self._shown(found.message), facts)

    def _shown(self, text: str) -> str:
        return self._naming.shown(text, self.prefix)

    def _operator(self, name: OperatorName) -> _Operator:
        operator = self._operators.get(name)
        if operator is None:
            operator = self._operators[name] = _Operator(name, self._libraries.name_of(name))
        return operator

    def _watched(self, name: OperatorName) -> _Operator:
        if len(self._asked) == _REMEMBERED:
            self._asked.clear()
            self._by_id.clear()
        operator = self._by_id[id(name)] = self._operator(name)
        self._asked.append(name)  # whose id stays its own for as long
        return operator

    def _look(self, watched: _Operator, dump: str, table: str) -> _Known:
        unprefixed = dump.replace(self.prefix, "")
        looked = self._looked.get((unprefixed, table))
        if looked is None:
            read = self._naming.table(table)
            snapshot = Snapshot(
                watched.name,
                self._shown(dump),
                read.shown,
                read.shown,
                self._schema(watched) if dump else None,
                dangling=dump in self._c._dispatch_find_dangling_impls() if dump else False,
            )
            looked = self._looked[unprefixed, table] = _Looked(snapshot, read)
        if not dump and looked.snapshot.operator != watched.name:
            looked = _Looked(replace(looked.snapshot, operator=watched.name), looked.table)
        known = watched.known[self._mask] = _Known(dump, table, looked)
        return known

    def _schema(self, operator: _Operator) -> str | None:
        raw = operator.raw
        try:
            return self._shown(str(self._c._dispatch_find_schema_or_throw(raw.qualified, raw.overload).schema()))
        except RuntimeError:
            return None

    def _agrees(self, watched: _Operator, known: _Known) -> bool:
        objects = self._objects
        if objects is None:
            return not known.dump or self._slots_by_bindings(watched, known) == known.snapshot.table
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
            return not self._differing(watched, known, found)
        if objects.released and len(self._operators) == 1:
            objects.released.clear()
        return True

    def _slots(self, watched: _Operator) -> SlotView:
        assert self._layout is not None
        entry = entry_address(self._layout, watched.raw.qualified, watched.raw.overload)
        assert entry is not None, f"{watched.raw_text} is dumped and not in the list of operators"
        slots = SlotView(self._layout, entry)
        if watched.alive:
            watched.slots = slots
        return slots

    def _differing(self, watched: _Operator, known: _Known, found: Fingerprints) -> dict[int, str | None]:
        """What the slots hold that do not hold what the table says; None for nothing."""
        objects, naming = self._objects, self._naming
        assert objects is not None
        before = None if watched.last is None else watched.last.template
        differing: dict[int, str | None] = {}
        for slot in np.flatnonzero(found != objects.by_number[known.template]).tolist():
            wanted = int(known.template[slot])
            last = NOTHING if before is None else int(before[slot])
            number = objects.number_at(slot, int(found[slot]), wanted, last)
            held = "a kernel that no table has shown" if number is None else naming.held(slot, number)
            if held != naming.held(slot, wanted):
                differing[slot] = held
        return differing

    def _stale(self, watched: _Operator, known: _Known) -> tuple[Snapshot, Violation]:
        rows = {slot: shown for slot, _, shown in known.looked.table.rows}
        if self._objects is None:
            held = self._slots_by_bindings(watched, known)
            kept = {line.partition(":")[0] for line in held.splitlines()}
            differing: dict[int, str | None] = {slot: None for slot in rows if str(RUNTIME_KEYS[slot]) not in kept}
            for line in held.splitlines():
                key, _, text = line.partition(": ")
                if SLOT_OF_KEY[DispatchKey[key]] not in rows:
                    differing[SLOT_OF_KEY[DispatchKey[key]]] = text
        else:
            slots = watched.slots or self._slots(watched)
            differing = self._differing(watched, known, slots.fingerprints())
        lines = {slot: row for slot, row in rows.items() if slot not in differing}
        lines |= {slot: f"{RUNTIME_KEYS[slot]}: {text}" for slot, text in differing.items() if text is not None}
        text = "".join(f"{lines[slot]}\n" for slot in sorted(lines))
        first = min(differing)
        keys = tuple(str(RUNTIME_KEYS[slot]) for slot in sorted(differing))
        wanted = rows[first].partition(": ")[2] if first in rows else "nothing"
        more = f", and {len(keys) - 1} more slots: {', '.join(keys[1:])}" if len(keys) > 1 else ""
        detail = f"the slot of {keys[0]} holds {differing[first] or 'nothing'} and should hold {wanted}{more}"
        return replace(known.snapshot, slots=text), Violation(watched.name, STALE, detail, keys)

    def _slots_by_bindings(self, watched: _Operator, known: _Known) -> str:
        rows = {slot: shown for slot, _, shown in known.looked.table.rows}
        for slot, key in enumerate(RUNTIME_KEYS):
            if key not in PARSED_BY_TORCH:
                continue
            filled = self._c._dispatch_has_computed_kernel_for_dispatch_key(watched.raw_text, str(key))
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
        every_table: read the table after every step. See Note [When the table is read].
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
        every_table: bool = True,
    ) -> None:
        live_torch.bindings()
        self._indices = {id(registration): index for index, registration in enumerate(registrations)}
        self._kept = tuple(registrations)
        self._journal, self._parse_keys, self._native, self._memory = journal, parse_keys, native, memory
        self._every_table = every_table
        self._naming: Naming | None = None
        self._looked: dict[tuple[str, str], _Looked] = {}

    @property
    def semantics(self) -> str:
        """`torch-2.13` and the like, after the PyTorch that is running."""
        return live_torch.semantics()

    @contextmanager
    def sandbox(self) -> Iterator[LiveSandbox]:
        """Fresh namespaces; what is still in force is released at the end."""
        sandbox = LiveSandbox(
            *self._shared(),
            indices=self._indices,
            journal=self._journal,
            parse_keys=self._parse_keys,
            native=self._native,
            memory=self._memory,
            every_table=self._every_table,
        )
        try:
            yield sandbox
        finally:
            sandbox.close()

    def _shared(self) -> tuple[Naming, dict[tuple[str, str], _Looked]]:
        """What sandboxes share: everything when the registrations are known beforehand, else nothing."""
        now = world()
        if not self._kept:
            return Naming(now), {}
        if self._naming is None or self._naming.world is not now:
            self._naming, self._looked = Naming(now), {}
        return self._naming, self._looked
