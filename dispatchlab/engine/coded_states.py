"""States as integers, and transitions that are computed once for all states that agree on what they read.

`CodedSpace` has the states, transitions and observations of a `LabSpace`. It is made for long walks: see Note [States
as integers] and Note [What a transition reads].
"""

# Note [States as integers]
# ~~~~~~~~~~~~~~~~~~~~~~~~~
# A state is divided into parts: every field of an operator's entry, its kernels at each key, its slots by the windows
# that cover the same of them, all fallbacks, each claim. The values that a part has had are numbered, and a state is
# the integer with the numbers of its parts side by side. It leaves nothing of a state out and adds nothing but
# `kinds`, which is counted from the kernels. So two integers are equal where the states are, and a state can be read
# back from its integer. Number 0 is the value of a part before anything was written to it. So a part gets its bits
# when it gets its second value, and more bits when those are full, and earlier integers stay valid. Only masks change
# then: everything that was made with masks is thrown away.
#
# Note [What a transition reads]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registration or release is run by the code that a dispatcher runs, on an entry that notes which of its parts are
# looked at, and remembers what is written as steps: parts that get a value, and windows that are computed anew. A
# transition is deterministic and sees the state through this entry alone. So where two states agree on all that it
# read in one of them, it reads the same and writes the same in the other. The steps are kept under the values of every
# part that any run of this registration has read: a run that reads one more part throws away what was kept without.
# A window that is computed anew reads kernels and fallbacks. It has a memo of its own, of the same kind, so that
# a kernel at an alias key, whose window is wide, costs no more than its window does.
# Code that reads an entry in any other way than by its narrow methods ends the run, and this registration is computed
# from the whole state from then on. So is a registration with very many different readings, and every `_EVERY`th
# transition, whatever it is: if a memo were wrong, such an edge would lead to another state than its neighbours.
# A library that registers at several operators reads a part of each, and what was read grows as their product: so its
# primitives are then taken one after the other, each with its own readings, as long as none is refused.
# What steps and windows come to together is kept once more, by all that they read, where that is not too much: then a
# transition is one look-up and two operations on integers.
#
# Note [What an invariant reads]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Every invariant of `violations_in` is about one thing: the slots of an atom, which are held against the kernels at the
# keys that are relevant to them (`Plain.relevant`, by which the reference table goes as well) and the fallbacks; the
# kernels at one key and the signatures held; the fields, how many kernels there are of each kind, and the strange
# slots. That the operator exists is a field, and is read by all. So there is no violation in a state that agrees, thing
# by thing, with states in which there was none, not always the same one; no state in which there is one is remembered.
# Every `_EVERY`th look is at the whole state, whatever is known.
#
# Note [What is observed]
# ~~~~~~~~~~~~~~~~~~~~~~~
# A snapshot is made from an entry that notes which of its fields are read, and from the fallbacks. It is kept by the
# values of all fields that any snapshot of this operator has read: where they agree, it is the same. So the states of
# one set that differ in what is never shown, such as who brought a signature that is held, are seen once.

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Never, TypeAlias

from dispatchlab.engine import lowering
from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.introspection import snapshot
from dispatchlab.engine.kernel import RegisteredKernel, TableEntry
from dispatchlab.engine.lab_space import LabSpace, LabState
from dispatchlab.engine.lowering import LoweredRegistration
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.precedence import Fill, Slots
from dispatchlab.engine.primitives import RegisterFallback, RegisterImpl
from dispatchlab.engine.python_state import NOTHING_IN_PYTHON, PythonState
from dispatchlab.engine.semantics import Semantics, SignatureLife
from dispatchlab.engine.state import FALLBACKS, PythonVariable, StateVariable, Transaction
from dispatchlab.errors import RegistrationError
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.lifetimes import Lifetimes
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.slot_set import each_slot
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation

_WIDTH: Final = 4
_ONES: Final = (1 << _WIDTH) - 1
_EVERY: Final = 251  # no multiple of how many registrations there are, so that each has its turn
_MOST_READINGS: Final = 1 << 13
_MOST_WINDOWS: Final = 1 << 17
_MOST_KNOWN: Final = 1 << 10
_MOST_GOOD: Final = 1 << 14
_MOST_SNAPSHOTS: Final = 1 << 10
_MOST_TOGETHER: Final = 1 << 7
_KEYS_AT_ONCE: Final = 6
_MANY: Final = 6
_MANY_WITH_HISTORIES: Final = 5  # where an operator keeps who brought a signature: few registrations have many states
_MOST: Final = 32  # more are never walked state by state, and masks would be made anew for each operator
_FIELDS: Final = ("name", "stored", "defs", "signatures", "tags", "names", "earlier")
_NOTHING: Final = OperatorEntry(OperatorName("", ""))

_Kernels: TypeAlias = tuple[RegisteredKernel, ...]


class _MasksChanged(Exception):
    """A part got more bits: everything that was made with masks is to be made again."""


class _ReadsTheWhole(Exception):
    """Something looked at a state in a way that cannot be noted part by part."""


class _Part:
    """A part of a state, and the values that it has had."""

    __slots__ = ("_codes", "_shifts", "mask", "values")

    def __init__(self, before: object) -> None:
        self._codes: dict[object, int] = {before: 0}
        self._shifts: list[int] = []
        self.values: dict[int, Any] = {0: before}  # by code: the bits of the part
        self.mask = 0

    def __repr__(self) -> str:
        return f"<part with {len(self.values)} values>"

    def of(self, state: int) -> Any:
        """Its value in a state."""
        return self.values[state & self.mask]

    def code(self, value: object, layout: _Layout) -> int:
        """The bits of a value."""
        code = self._codes.get(value)
        if code is None:
            number, code = len(self._codes), 0
            for at in range((number.bit_length() + _WIDTH - 1) // _WIDTH):
                if at == len(self._shifts):
                    shift = layout.more_bits()
                    self._shifts.append(shift)
                    self.mask |= _ONES << shift
                code |= (number >> at * _WIDTH & _ONES) << self._shifts[at]
            self._codes[value] = code
            self.values[code] = value
        return code


_NO_ATOM: Final = 0, _Part(None)


class _Layout:
    """Which bits are taken; `generation` changes with every mask."""

    def __init__(self) -> None:
        self.generation = 0

    def more_bits(self) -> int:
        """The lowest of a few more bits."""
        self.generation += 1
        return (self.generation - 1) * _WIDTH


class _Operator:
    """The parts of an operator's entry."""

    def __init__(self, variable: str, atoms: Sequence[int]) -> None:
        self.variable = variable
        values = (None, *(getattr(_NOTHING, field) for field in _FIELDS[1:]))
        self.fields = tuple(_Part(value) for value in values)
        self.field = dict(zip(_FIELDS, self.fields, strict=True))
        self.kinds = _Part(())  # how many kernels there are of each kind, see `_Kinds`
        self.kernels: dict[
            int, _Part
        ] = {}  # by the bit of a key; the value is (kernels, whether `present` has the bit)
        self.bits = 0  # of those keys
        self.atoms = tuple((slots, _Part(frozenset())) for slots in atoms)
        self.strange = _Part(frozenset())  # slots that no window covers, and entries with no slot
        self._atom_of_slot = {1 << slot: atom for atom in self.atoms for slot in each_slot(atom[0])}
        self._pieces: dict[tuple[TableEntry, int], _Pieces] = {}
        self.mask = self.fields_mask = 0

    def masks(self) -> None:
        """Compute the masks of several parts anew."""
        self.fields_mask = 0
        for part in self.fields:
            self.fields_mask |= part.mask
        self.mask = self.fields_mask | self.kinds.mask | self.strange.mask
        for part in (*self.kernels.values(), *(part for _, part in self.atoms)):
            self.mask |= part.mask
        self._heads: dict[int, tuple[Any, ...]] = {}
        keys = [(bit, part) for bit, part in self.kernels.items() if part.mask]
        self._some_keys = [_SomeKeys(keys[at : at + _KEYS_AT_ONCE]) for at in range(0, len(keys), _KEYS_AT_ONCE)]

    def at(self, bit: int) -> _Part:
        """The part of the kernels at a key."""
        part = self.kernels.get(bit)
        if part is None:
            part = self.kernels[bit] = _Part((None, False))
            self.bits |= bit
        return part

    def mask_of(self, field: str) -> int:
        """The mask of a field of the entry, by its name."""
        if field in self.field:
            return self.field[field].mask
        if field in ("kernels", "present"):
            return self.mask_at(self.bits)
        if field == "slots":
            mask = self.strange.mask
            for _, part in self.atoms:
                mask |= part.mask
            return mask
        return self.mask

    def mask_at(self, bits: int) -> int:
        """The mask of the kernels at some keys."""
        mask = 0
        for bit, part in self.kernels.items():
            if bit & bits:
                mask |= part.mask
        return mask

    def kernels_in(self, state: int) -> tuple[dict[int, _Kernels], int]:
        """The kernels of a state, and the keys that it says have some."""
        kernels: dict[int, _Kernels] = {}
        present = 0
        for some in self._some_keys:
            known = some.known.get(state & some.mask)
            held, bits = some.kernels_in(state) if known is None else known
            kernels.update(held)
            present |= bits
        return kernels, present

    def entry(self, state: int) -> OperatorEntry | None:
        """The entry in a state."""
        head = self._heads.get(state & self.fields_mask)
        if head is None:
            head = self._heads[state & self.fields_mask] = tuple(part.of(state) for part in self.fields)
        name, stored, defs, signatures, tags, names, earlier = head
        if name is None:
            return None
        kernels, present = self.kernels_in(state)
        slots: Slots = {}
        for _, part in self.atoms:
            for held, bits in part.values[state & part.mask]:
                slots[held] = slots.get(held, 0) | bits
        for held, bits in self.strange.of(state):
            slots[held] = slots.get(held, 0) | bits
        return OperatorEntry(name, stored, defs, kernels, present, slots, signatures, tags, names, earlier)

    def code(self, entry: OperatorEntry, kinds: _Kinds, layout: _Layout) -> int:
        """The bits of an entry."""
        code = self.table_code(entry.slots, layout)
        for field, part in self.field.items():
            code |= part.code(getattr(entry, field), layout)
        bits = entry.present
        for bit in entry.kernels:
            bits |= bit
        while bits:
            bit = bits & -bits
            bits ^= bit
            code |= self.at(bit).code((entry.kernels.get(bit), bool(entry.present & bit)), layout)
        return code | self.kinds.code(kinds.counts(entry.kernels), layout)

    def table_code(self, slots: Slots, layout: _Layout) -> int:
        """The bits of what slots hold."""
        code = covered = 0
        shared: dict[_Part, list[tuple[TableEntry, int]]] = {}
        for item in slots.items():
            pieces = self._pieces.get(item)
            if pieces is None:
                pieces = self._pieces_of(*item, layout)
            bits = item[1]
            if bits & covered or not bits:
                return self._odd_table_code(slots, layout)
            covered |= bits
            code |= pieces.code
            for part, piece in pieces.shared:
                shared.setdefault(part, []).append(piece)
        for part, held in shared.items():
            code |= part.code(frozenset(held), layout)
        return code

    def _pieces_of(self, held: TableEntry, bits: int, layout: _Layout) -> _Pieces:
        code, left = 0, bits
        shared: list[tuple[_Part, tuple[TableEntry, int]]] = []
        while left:
            covered, part = self._atom_of_slot.get(left & -left, (left, self.strange))
            if not covered & ~bits and part is not self.strange:
                code |= part.code(frozenset({(held, covered)}), layout)
            else:
                shared.append((part, (held, left & covered)))
            left &= ~covered
        if len(self._pieces) >= _MOST_READINGS:
            self._pieces.clear()
        pieces = self._pieces[held, bits] = _Pieces(code, tuple(shared))
        return pieces

    def _odd_table_code(self, slots: Slots, layout: _Layout) -> int:
        """The bits of a table in which several entries have the same slot, or one has none."""
        found: dict[_Part, list[tuple[object, int]]] = {}
        for held, bits in slots.items():
            left = bits
            while left:
                covered, part = self._atom_of_slot.get(left & -left, _NO_ATOM)
                if not covered:
                    break
                found.setdefault(part, []).append((held, left & covered))
                left &= ~covered
            if left or not bits:
                found.setdefault(self.strange, []).append((held, left))
        code = 0
        for part, items in found.items():
            code |= part.code(frozenset(items), layout)
        return code


class _Pieces(NamedTuple):
    """What the slots of one entry come to: the bits of all atoms that are full of it, and its share of the others."""

    code: int
    shared: tuple[tuple[_Part, tuple[TableEntry, int]], ...]


class _SomeKeys:
    """The kernels at a few keys, by the bits of their parts."""

    __slots__ = ("_keys", "known", "mask")

    def __init__(self, keys: Sequence[tuple[int, _Part]]) -> None:
        self._keys = keys
        self.mask = 0
        for _, part in keys:
            self.mask |= part.mask
        self.known: dict[int, tuple[dict[int, _Kernels], int]] = {}

    def kernels_in(self, state: int) -> tuple[dict[int, _Kernels], int]:
        """The kernels of a state, and the keys that it says have some."""
        kernels: dict[int, _Kernels] = {}
        present = 0
        for bit, part in self._keys:
            held, is_present = part.of(state)
            if held is not None:
                kernels[bit] = held
            if is_present:
                present |= bit
        if len(self.known) >= _MOST_READINGS:
            self.known.clear()
        self.known[state & self.mask] = kernels, present
        return kernels, present


class _Kinds:
    """Numbers the kinds of kernels: what a def or another kernel compares them by."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._of: dict[RegisteredKernel, int] = {}
        self.examples: list[RegisteredKernel] = []

    def of(self, kernel: RegisteredKernel) -> int:
        """The number of a kernel's kind."""
        number = self._of.get(kernel)
        if number is None:
            facts = kernel.kernel.signature, kernel.kernel.symint, kernel.kernel.inferred
            number = self._numbers.setdefault(facts, len(self._numbers))
            if number == len(self.examples):
                self.examples.append(kernel)
            self._of[kernel] = number
        return number

    def counts(self, kernels: Mapping[int, _Kernels]) -> tuple[tuple[int, int], ...]:
        """How many kernels there are of each kind."""
        return self.changed((), [kernel for at_key in kernels.values() for kernel in at_key], ())

    def changed(
        self, counts: tuple[tuple[int, int], ...], more: Sequence[RegisteredKernel], fewer: Sequence[RegisteredKernel]
    ) -> tuple[tuple[int, int], ...]:
        """The counts with some kernels more and some fewer."""
        found = dict(counts)
        for kernels, by in ((more, 1), (fewer, -1)):
            for kernel in kernels:
                kind = self.of(kernel)
                found[kind] = found.get(kind, 0) + by
        return tuple(sorted((kind, count) for kind, count in found.items() if count))


class _Window:
    """A window of an operator, computed anew: what it read by what it came to."""

    def __init__(self, operator: _Operator, wanted: int, fallbacks: _Part) -> None:
        self.operator = operator
        self.wanted = wanted
        self._fallbacks = fallbacks
        self.parts = [part for slots, part in operator.atoms if slots & wanted]
        self.fits = not any(slots & wanted and slots & ~wanted for slots, _ in operator.atoms)
        self.forget()

    def forget(self, reads: int = 0) -> None:
        """Begin anew, with the bits of the keys that are known to be read."""
        self.reads = reads
        self.mask = self._fallbacks.mask
        for bit, part in self.operator.kernels.items():
            if bit & reads:
                self.mask |= part.mask
        self.keep = -1
        for part in self.parts:
            self.keep &= ~part.mask
        self.table: dict[int, int] = {}


class _Step(NamedTuple):
    """Keep some bits, put others, then compute a window anew."""

    keep: int
    put: int
    window: _Window | None


class _Kept(NamedTuple):
    """What a transition does: its steps, and the refusal."""

    steps: tuple[_Step, ...]
    refusal: Refusal | None


class _Transition:
    """A registration or a release: `table` has what it does by what it read.

    `known` has the same with its windows computed, by all that they read besides: the bits to keep and those to put.
    """

    __slots__ = ("is_split", "is_whole", "is_wide", "known", "lowered", "mask", "parts", "reads", "table")

    def __init__(self, lowered: LoweredRegistration) -> None:
        self.lowered = lowered
        self.parts: tuple[_Transition, ...] = ()  # its primitives one after the other
        if len(lowered.primitives) > 1:
            self.parts = tuple(_Transition(LoweredRegistration([primitive])) for primitive in lowered.primitives)
        self.is_split = False  # whether it is taken part by part
        self.is_whole = False  # whether it is computed from the whole state
        self.is_wide = False  # whether one of its windows reads too much for `known`
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.mask = self.reads = 0
        self.table: dict[int, _Kept] = {}
        self.known: dict[int, tuple[int, int]] = {}
        for part in self.parts:
            part.forget()

    def learn(self, state: int, kept: _Kept) -> None:
        """Keep what its steps come to in a state, after they were taken there."""
        keep, put, reads = -1, 0, self.mask
        for step in kept.steps:
            keep, put = keep & step.keep, put & step.keep | step.put
            if step.window is not None:
                reads |= step.window.mask
                code = step.window.table.get((state & keep | put) & step.window.mask)
                if code is None:  # the same window came twice, and read more the second time
                    return
                keep, put = keep & step.window.keep, put & step.window.keep | code
                self.is_wide |= len(step.window.table) > _MOST_KNOWN
        if reads & ~self.reads:
            self.reads |= reads
            self.known.clear()
        self.is_wide |= len(self.known) >= _MOST_READINGS
        if self.is_wide:
            self.known.clear()
        else:
            self.known[state & self.reads] = keep, put


class CodedSpace:
    """The states that registrations can reach under one semantics, as integers.

    Args:
        registrations: what a sequence's numbers mean.
        operators: what is observed.
        semantics: which dispatcher.

    Attributes:
        plain: the same states as values.
    """

    def __init__(
        self, registrations: Sequence[Registration], operators: Sequence[OperatorName], semantics: Semantics
    ) -> None:
        self._begin(LabSpace(registrations, operators, semantics))

    @classmethod
    def of(cls, plain: LabSpace) -> CodedSpace:
        """The states of a space as integers."""
        space = cls.__new__(cls)
        space._begin(plain)
        return space

    def _begin(self, plain: LabSpace) -> None:
        self.plain = plain
        self._semantics = plain.semantics
        self._lowered = self.plain.lowered
        self._touched = plain.recorded()
        self._layout = _Layout()
        self._generation = 0
        self._atoms = tuple(_atoms(self._windows_wanted()))
        self._kinds = _Kinds()
        self._operators: dict[str, _Operator] = {}
        self._others: dict[StateVariable, _Part] = {FALLBACKS: _Part(None)}
        self._windows: dict[tuple[str, int], _Window] = {}
        self._registers = [_Transition(lowered) for lowered in self._lowered]
        self._releases = [_Transition(lowered) for lowered in self._lowered]
        self._calls = 0
        self._looks = self._observations = 0
        self._observed: tuple[StateVariable, ...] = self.plain.observed_variables()
        self._snapshots: dict[OperatorName, _Snapshots] = {}
        self._looked_at: list[tuple[int, set[int]]] | None = None
        self._decoded: tuple[int, LabState] = (-1, self.plain.empty())
        self._is_whole = False  # whether everything is computed from whole states
        self._empty = self._code(self.plain.empty())
        self._renew()

    def __repr__(self) -> str:
        return f"<CodedSpace {self._semantics.name} of {len(self._lowered)} registrations>"

    def empty(self) -> int:
        """The state in which nothing is registered but what the semantics brings along."""
        return self._empty

    def register(self, state: int, index: int, /) -> tuple[int, Refusal | None]:
        """The state after registering `index`, and how it was refused if it was."""
        self._calls = calls = self._calls + 1
        if not calls % _EVERY:
            return self._from_whole(state, index, is_release=False)
        transition = self._registers[index]
        known = transition.known.get(state & transition.reads)
        if known is not None:
            return state & known[0] | known[1], None
        return self._computed(state, index, transition, is_release=False)

    def release(self, state: int, index: int, /) -> int:
        """The state after releasing `index`."""
        self._calls = calls = self._calls + 1
        if not calls % _EVERY:
            return self._from_whole(state, index, is_release=True)[0]
        transition = self._releases[index]
        known = transition.known.get(state & transition.reads)
        if known is not None:
            return state & known[0] | known[1]
        return self._computed(state, index, transition, is_release=True)[0]

    def observe(self, state: int, /) -> tuple[Snapshot, ...]:
        """What can be seen of the observed operators."""
        self._observations = calls = self._observations + 1
        if not calls % _EVERY or self._is_whole:
            return self.plain.observe(self.decoded(state))
        self._touched.update(self._observed)
        try:
            return tuple([self._snapshot(state, name) for name in self.plain.operators])
        except _ReadsTheWhole:
            return self.plain.observe(self.decoded(state))

    def violations(self, state: int, /) -> tuple[Violation, ...]:
        """The invariants that do not hold for the observed operators."""
        self._looks = looks = self._looks + 1
        looked_at = self._looked_at
        if looked_at is None:
            looked_at = self._looked_at = [(mask, set()) for mask in self._looked_at_masks()]
        if looks % _EVERY and looked_at and not self._is_whole:
            for mask, good in looked_at:
                if state & mask not in good:
                    break
            else:
                return ()
        found = self.plain.violations(self.decoded(state))
        if not found:
            for mask, good in looked_at:
                if len(good) < _MOST_GOOD:
                    good.add(state & mask)
        return found

    def why(self, expected: int, actual: int, /) -> tuple[str, ...]:
        """Why two states of the same registrations differ."""
        return self.plain.why(self.decoded(expected), self.decoded(actual))

    def written_variables(self, index: int, /) -> frozenset[StateVariable]:
        """The variables that registration `index` writes by name."""
        return self.plain.written_variables(index)

    def is_broadcast(self, index: int, /) -> bool:
        """Whether it is a fallback, which reaches every operator."""
        return self.plain.is_broadcast(index)

    def lifetimes(self) -> Lifetimes:
        """Which registrations no step releases, and with what they end."""
        return self.plain.lifetimes()

    def shared_variables(self) -> frozenset[StateVariable]:
        """The variable of the fallbacks, which every operator reads."""
        return self.plain.shared_variables()

    def touched(self) -> frozenset[StateVariable]:
        """Every variable that was read or written so far."""
        return self.plain.touched()

    def remember(self, touched: frozenset[StateVariable], /) -> None:
        """Count variables as touched, as an earlier run of the same walk has found them."""
        self.plain.remember(touched)

    def pattern(self, indices: Sequence[int], /) -> Hashable:
        """The registrations with operators, libraries and debug texts renamed in order of appearance."""
        return self.plain.pattern(indices)

    def dependences(self) -> Mapping[Hashable, Dependence] | str:
        """What each variable of an operator depends on, by the tables of the semantics; or why that is not known."""
        return self.plain.dependences()

    def values(self, state: int, /) -> Mapping[Hashable, Hashable]:
        """The variables of every operator, of fallbacks and of claims."""
        return self.plain.values(self.decoded(state))

    def deciders(self) -> Sequence[int]:
        """For each registration those that can make it be refused."""
        return self.plain.deciders()

    def restricted(self, indices: Sequence[int], operators: Sequence[OperatorName], /) -> CodedSpace | LabSpace:
        """The states that some of the registrations can reach, as integers where a walk through them is long."""
        return suited_to_a_walk(self.plain.restricted(indices, operators))

    def decoded(self, state: int) -> LabState:
        """A state as the dispatcher knows it."""
        known, decoded = self._decoded
        if known != state:
            variables: dict[StateVariable, object] = {}
            for variable, part in self._others.items():
                value = part.of(state)
                if value is not None:
                    variables[variable] = value
            for name, operator in self._operators.items():
                entry = operator.entry(state)
                if entry is not None:
                    variables[name] = entry
            decoded = LabState(variables)
            self._decoded = state, decoded
        return decoded

    # --- transitions

    def _computed(
        self, state: int, index: int, transition: _Transition, *, is_release: bool
    ) -> tuple[int, Refusal | None]:
        """A transition by what is kept of it; else it is run, and kept."""
        while not (self._is_whole or transition.is_whole):
            try:
                if transition.parts and len(transition.table) >= _MOST_TOGETHER:
                    transition.is_split = True
                    transition.forget()
                if not transition.is_split:
                    return self._taken(state, transition, is_release=is_release)
                after, refusal = state, None
                for part in transition.parts:
                    known = part.known.get(after & part.reads)
                    if known is not None:
                        after = after & known[0] | known[1]
                        continue
                    after, refusal = self._taken(after, part, is_release=is_release)
                    if refusal is not None:  # then the parts before it are not what is left
                        break
                else:
                    return after, None
                break
            except _MasksChanged:
                self._renew()
            except _ReadsTheWhole:
                transition.is_whole = True
                transition.forget()
        return self._from_whole(state, index, is_release=is_release)

    def _taken(self, state: int, transition: _Transition, *, is_release: bool) -> tuple[int, Refusal | None]:
        """A transition by its table, which it is added to when it is run.

        Raises:
            _MasksChanged: nothing is done yet.
            _ReadsTheWhole: it cannot be kept.
        """
        kept = transition.table.get(state & transition.mask)
        if kept is None:
            kept = self._run(state, transition, is_release=is_release)
        after = state
        for keep, put, window in kept.steps:
            after = after & keep | put
            if window is not None:
                code = window.table.get(after & window.mask)
                if code is None:
                    code = self._filled(after, window)
                after = after & window.keep | code
        if not transition.is_wide and kept.refusal is None:
            transition.learn(state, kept)
        return after, kept.refusal

    def _from_whole(self, state: int, index: int, *, is_release: bool) -> tuple[int, Refusal | None]:
        before = self.decoded(state)
        refusal = None
        if is_release:
            after = self.plain.release(before, index)
        else:
            after, refusal = self.plain.register(before, index)
        code = state if after is before else self._code(after)
        if self._layout.generation != self._generation:
            self._renew()
        return code, refusal

    def _run(self, state: int, transition: _Transition, *, is_release: bool) -> _Kept:
        """Run a transition on a state that notes what is read, and keep what it did."""
        watched = _WatchedTransaction(self, state)
        refusal = None
        if is_release:
            lowering.release(self._semantics, watched, transition.lowered)
        else:
            try:
                lowering.register(self._semantics, watched, transition.lowered)
            except RegistrationError as error:
                refusal = Refusal.of(error)
                if not self._semantics.refusal_leaves_traces:
                    watched.steps.clear()
        if self._layout.generation != self._generation:
            raise _MasksChanged
        kept = _Kept(tuple(watched.steps), refusal)
        mask = transition.mask
        for part in watched.read:
            mask |= part.mask
        if mask != transition.mask:
            transition.forget()
            transition.mask = mask
        if len(transition.table) >= _MOST_READINGS:
            raise _ReadsTheWhole
        transition.table[state & mask] = kept
        return kept

    def _filled(self, state: int, window: _Window) -> int:
        """The bits of what a window holds, computed from the kernels and fallbacks of a state."""
        operator, fill, reads = window.operator, self._semantics.precedence.fill, window.reads
        kernels, present = operator.kernels_in(state)
        fallbacks = self._others[FALLBACKS].of(state) or NO_FALLBACKS
        if operator.bits & ~reads:
            notes: list[int] = []
            filled = fill(
                window.wanted,
                _WatchedBits(present, notes),  # type: ignore[arg-type]  # which acts as the integer
                _WatchedKernels(kernels, notes),
                fallbacks,
            )
            for note in notes:
                reads |= note
        else:
            filled = fill(window.wanted, present, kernels, fallbacks)
        code = operator.table_code(filled, self._layout)
        if self._layout.generation != self._generation:
            raise _MasksChanged
        if code & window.keep:  # it wrote slots that it was not asked for
            self._is_whole = True
            raise _ReadsTheWhole
        if reads != window.reads:
            window.forget(reads)
        if len(window.table) >= _MOST_WINDOWS:
            window.table.clear()
        window.table[state & window.mask] = code
        return code

    # --- codes

    def _code(self, state: LabState) -> int:
        code = 0
        for variable, value in state.variables.items():
            if isinstance(variable, str):
                assert isinstance(value, OperatorEntry)
                code |= self.operator(variable).code(value, self._kinds, self._layout)
            else:
                code |= self.other(variable).code(value, self._layout)
        return code

    def _renew(self) -> None:
        """Throw away everything that was made with masks."""
        self._generation = self._layout.generation
        for operator in self._operators.values():
            operator.masks()
        for window in self._windows.values():
            window.forget()
        for transition in (*self._registers, *self._releases):
            transition.forget()
        self._looked_at = None
        self._snapshots.clear()

    def _snapshot(self, state: int, name: OperatorName) -> Snapshot:
        """What can be seen of one operator; see Note [What is observed]."""
        kept = self._snapshots.get(name)
        if kept is not None:
            seen = kept.seen.get(state & kept.mask)
            if seen is not None:
                return seen
        operator, fallbacks = self.operator(str(name)), self.other(FALLBACKS)
        in_python = PythonVariable(str(name))
        python = self.other(in_python)
        if self._layout.generation != self._generation:
            self._renew()
        read: set[str] = set()
        entry = operator.entry(state)
        noted = None if entry is None else _NotedEntry.of(entry, read)
        variables: dict[StateVariable, Any] = {
            FALLBACKS: fallbacks.of(state),
            in_python: python.of(state),
            str(name): noted,
        }
        seen = snapshot(_OnlyThese(variables), name, self._semantics)
        mask = fallbacks.mask | python.mask
        for field in ("name", *read):
            mask |= operator.mask_of(field)
        if kept is None or mask & ~kept.mask:
            kept = self._snapshots[name] = _Snapshots(mask | (0 if kept is None else kept.mask), {})
        if len(kept.seen) >= _MOST_SNAPSHOTS:
            kept.seen.clear()
        kept.seen[state & kept.mask] = seen
        return seen

    def _looked_at_masks(self) -> list[int]:
        """What the invariants look at, one by one; see Note [What an invariant reads]."""
        masks: list[int] = []
        fallbacks, relevant = self.other(FALLBACKS).mask, self._semantics.precedence.plain.relevant
        for name in self.plain.operators:
            operator = self._operators.get(str(name))
            if operator is None:
                continue
            fields, keys = operator.fields_mask, operator.bits
            masks += {
                fields | operator.kinds.mask | operator.strange.mask,
                *(fields | operator.mask_at(1 << bit) for bit in each_slot(keys)),
                *(
                    fields | fallbacks | part.mask | operator.mask_at(bits)
                    for slots, part in operator.atoms
                    for bits in {relevant[slot] & keys for slot in each_slot(slots)}
                ),
            }
        largest: list[int] = []
        for mask in sorted(masks, key=int.bit_count, reverse=True):
            if all(mask & ~other for other in largest):
                largest.append(mask)
        return largest

    def _windows_wanted(self) -> Iterator[int]:
        yield self._semantics.precedence.slots
        for lowered in self._lowered:
            for primitive in lowered.plain():
                if isinstance(primitive, RegisterImpl):
                    yield primitive.refreshed_on_register
                    yield primitive.refreshed_on_release
                elif isinstance(primitive, RegisterFallback):
                    yield primitive.refreshed

    # --- for a watched transaction

    @property
    def semantics(self) -> Semantics:
        """Which dispatcher."""
        return self._semantics

    @property
    def layout(self) -> _Layout:
        """Where the bits of parts are."""
        return self._layout

    @property
    def kinds(self) -> _Kinds:
        """The kinds of kernels."""
        return self._kinds

    @property
    def operators_known(self) -> tuple[str, ...]:
        """Every operator that some state has."""
        return tuple(self._operators)

    def recorded(self) -> set[StateVariable]:
        """Collects what is read and written."""
        return self._touched

    def operator(self, variable: str) -> _Operator:
        """The parts of an operator."""
        operator = self._operators.get(variable)
        if operator is None:
            operator = self._operators[variable] = _Operator(variable, self._atoms)
            operator.masks()
        return operator

    def other(self, variable: StateVariable) -> _Part:
        """The part that is a variable which is no operator."""
        part = self._others.get(variable)
        if part is None:
            part = self._others[variable] = _Part(None)
        return part

    def window(self, operator: _Operator, wanted: int) -> _Window:
        """The memo of a window."""
        window = self._windows.get((operator.variable, wanted))
        if window is None:
            window = self._windows[operator.variable, wanted] = _Window(operator, wanted, self.other(FALLBACKS))
        if not window.fits:
            raise _ReadsTheWhole
        return window


class _Snapshots(NamedTuple):
    """What was seen of an operator, by the bits that were read for it."""

    mask: int
    seen: dict[int, Snapshot]


class _OnlyThese(Mapping[StateVariable, Any]):
    """The variables that are read for an operator's snapshot; to read others is to read everything."""

    def __init__(self, variables: Mapping[StateVariable, Any]) -> None:
        self._variables = variables

    def __getitem__(self, variable: StateVariable) -> Any:
        if variable not in self._variables:
            raise _ReadsTheWhole
        return self._variables[variable]

    def __iter__(self) -> Never:
        raise _ReadsTheWhole

    def __len__(self) -> Never:
        raise _ReadsTheWhole


class _NotedEntry(OperatorEntry):
    """An entry that notes which of its fields are read; what is no field counts as all of them."""

    _read: set[str]

    @classmethod
    def of(cls, entry: OperatorEntry, read: set[str]) -> _NotedEntry:
        """An entry that notes in `read`."""
        noted = cls(*entry)
        noted._read = read
        return noted

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            object.__getattribute__(self, "_read").add(name)
        return object.__getattribute__(self, name)

    def _whole(self, *_: object, **__: object) -> Never:
        raise _ReadsTheWhole

    __iter__ = __len__ = __getitem__ = __contains__ = __eq__ = __ne__ = __hash__ = __repr__ = __add__ = _whole
    _replace = _asdict = _whole


def suited_to_a_walk(plain: LabSpace) -> CodedSpace | LabSpace:
    """A space with its states as integers where a walk takes every state and is long; elsewhere memos do not pay."""
    has_histories = plain.semantics.signature_life is SignatureLife.OPERATOR
    least = _MANY_WITH_HISTORIES if has_histories else _MANY
    return CodedSpace.of(plain) if least <= len(plain.lowered) <= _MOST else plain


def _atoms(windows: Iterator[int]) -> list[int]:
    """The coarsest sets of slots of which every window is made."""
    atoms: list[int] = []
    for wanted in set(windows):
        split: list[int] = []
        for atom in atoms:
            split += filter(None, (atom & wanted, atom & ~wanted))
            wanted &= ~atom
        atoms = [*split, wanted] if wanted else split
    return sorted(atoms)


# --- what is watched


class _WatchedTransaction(Transaction):
    """A transaction on a coded state: notes the parts that are read, and writes steps."""

    __slots__ = ("_emitted", "_overlay", "read", "space", "state", "steps")

    def __init__(self, space: CodedSpace, state: int) -> None:
        self.space = space
        self.state = state
        self.touched = space.recorded()
        self.read: set[_Part] = set()
        self.steps: list[_Step] = []
        self._overlay: dict[StateVariable, object] = {}
        self._emitted: dict[str, tuple[object, ...]] = {}

    @property
    def base(self) -> Never:  # type: ignore[override]  # nothing here may read it as a whole
        """Reads everything."""
        raise _ReadsTheWhole

    @property
    def changes(self) -> Never:  # type: ignore[override]  # likewise
        """Reads everything."""
        raise _ReadsTheWhole

    def value(self, part: _Part) -> Any:
        """Read a part."""
        self.read.add(part)
        return part.of(self.state)

    def get(self, variable: StateVariable) -> object | None:
        """The value of a variable with the changes so far; None when it is empty."""
        self.touched.add(variable)
        if variable in self._overlay:
            return self._overlay[variable]
        if not isinstance(variable, str):
            value: object | None = self.value(self.space.other(variable))
            return value
        operator = self.space.operator(variable)
        return None if self.value(operator.field["name"]) is None else _WatchedEntry(self, operator, {}, ())

    def put(self, variable: StateVariable, value: object | None) -> None:
        """Change a variable; None empties it."""
        self.touched.add(variable)
        self._overlay[variable] = value
        space = self.space
        if not isinstance(variable, str):
            part = space.other(variable)
            self._write(part.mask, part.code(value, space.layout))
            return
        operator = space.operator(variable)
        if isinstance(value, _WatchedEntry):
            done = self._emitted.get(variable, ())
            if value.writes[: len(done)] != done:
                raise _ReadsTheWhole
            for write in value.writes[len(done) :]:
                write.into(self, operator)
            self._emitted[variable] = value.writes
            return
        if isinstance(value, OperatorEntry):
            self._write(operator.mask, operator.code(value, space.kinds, space.layout))
        elif value is None:
            self._write(operator.mask, 0)
        else:
            raise _ReadsTheWhole
        self._emitted.pop(variable, None)

    def python(self, operator: str) -> PythonState:
        """What Python keeps for an operator."""
        self.touched.add(operator)
        variable = PythonVariable(operator)
        if variable not in self._overlay:
            return self.value(self.space.other(variable)) or NOTHING_IN_PYTHON
        kept = self._overlay[variable]
        return kept if isinstance(kept, PythonState) else NOTHING_IN_PYTHON

    def put_python(self, operator: str, kept: PythonState) -> None:
        """Change what Python keeps for an operator."""
        self.touched.add(operator)
        variable, value = PythonVariable(operator), kept if kept.entries else None
        self._overlay[variable] = value
        self.write_part(self.space.other(variable), value)

    def operators(self) -> Iterator[OperatorEntry]:
        """Every operator there is, in no promised order; all of them count as read."""
        for variable in dict.fromkeys([*self.space.operators_known, *self._overlay]):
            entry = self.operator(variable) if isinstance(variable, str) else None
            if entry is not None:
                yield entry

    def applied(self) -> Never:
        """Reads everything."""
        raise _ReadsTheWhole

    def write_part(self, part: _Part, value: object) -> None:
        """One part gets a value."""
        self._write(part.mask, part.code(value, self.space.layout))

    def fill(self, operator: _Operator, wanted: int, fallbacks: Fallbacks) -> None:
        """A window is computed anew from what was written until now."""
        if fallbacks != self.fallbacks():
            raise _ReadsTheWhole
        window = self.space.window(operator, wanted)
        last = self.steps.pop() if self.steps and self.steps[-1].window is None else _Step(-1, 0, None)
        self.steps.append(last._replace(window=window))

    def _write(self, mask: int, code: int) -> None:
        # NB: a code with bits outside of the mask has changed the masks, and the run is made again
        last = self.steps.pop() if self.steps and self.steps[-1].window is None else _Step(-1, 0, None)
        self.steps.append(_Step(last.keep & ~mask, last.put & ~mask | code, None))


class _WritePart(NamedTuple):
    part: _Part
    value: object

    def into(self, transaction: _WatchedTransaction, operator: _Operator) -> None:
        """Write it."""
        transaction.write_part(self.part, self.value)


class _FillWindow(NamedTuple):
    wanted: int
    fallbacks: Fallbacks

    def into(self, transaction: _WatchedTransaction, operator: _Operator) -> None:
        """Compute the window."""
        transaction.fill(operator, self.wanted, self.fallbacks)


class _WatchedEntry:
    """An entry whose reads are noted by part; what is written is remembered in order."""

    __slots__ = ("_operator", "_overlay", "_transaction", "writes")

    def __init__(
        self,
        transaction: _WatchedTransaction,
        operator: _Operator,
        overlay: Mapping[_Part, object],
        writes: tuple[_WritePart | _FillWindow, ...],
    ) -> None:
        self._transaction = transaction
        self._operator = operator
        self._overlay = overlay
        self.writes = writes

    def __getattr__(self, name: str) -> Any:
        part = self._operator.field.get(name)
        if part is None:  # the kernels, the slots, or a method that nobody has made narrow
            raise _ReadsTheWhole
        return self._value(part)

    def _whole(self, *_: object) -> Never:
        raise _ReadsTheWhole

    __iter__ = __len__ = __getitem__ = __contains__ = __eq__ = __ne__ = __hash__ = __repr__ = __add__ = _whole

    def __bool__(self) -> bool:
        return True

    @property
    def is_unused(self) -> bool:
        """Nothing is registered any more."""
        return not (self.defs or self._value(self._operator.kinds) or self.names)

    def kernels_at(self, bit: int) -> _Kernels:
        """The kernels at a key, by its bit, newest first."""
        held: _Kernels | None = self._value(self._operator.at(bit))[0]
        return held or ()

    def is_only_at(self, bit: int) -> bool:
        """Whether nothing is registered but the kernels at a key, by its bit."""
        everywhere = sum(count for _, count in self._value(self._operator.kinds))
        return 0 < everywhere == len(self.kernels_at(bit)) and not (self.defs or self.names)

    def kernel_kinds(self) -> list[RegisteredKernel]:
        """Kernels among which there is one for every signature and every inferred schema that a kernel has."""
        examples = self._transaction.space.kinds.examples
        return [examples[kind] for kind, _ in self._value(self._operator.kinds)]

    def with_kernels(self, bit: int, at_key: _Kernels, wanted: int, fill: Fill, fallbacks: Fallbacks) -> _WatchedEntry:
        """With other kernels at a key, by its bit, and the `wanted` slots computed anew."""
        kinds = self._transaction.space.kinds.changed(self._value(self._operator.kinds), at_key, self.kernels_at(bit))
        changed = self._with({self._operator.at(bit): (at_key or None, bool(at_key)), self._operator.kinds: kinds})
        return changed.refreshed(wanted, fill, fallbacks)

    def refreshed(self, wanted: int, fill: Fill, fallbacks: Fallbacks) -> _WatchedEntry:
        """With the `wanted` slots computed anew."""
        if fill is not self._transaction.space.semantics.precedence.fill:
            raise _ReadsTheWhole
        writes = (*self.writes, _FillWindow(wanted, fallbacks))
        return _WatchedEntry(self._transaction, self._operator, self._overlay, writes)

    def _replace(self, **changes: object) -> _WatchedEntry:
        if not changes.keys() <= self._operator.field.keys():
            raise _ReadsTheWhole
        return self._with({self._operator.field[name]: value for name, value in changes.items()})

    def _with(self, changes: dict[_Part, object]) -> _WatchedEntry:
        writes = (*self.writes, *(_WritePart(part, value) for part, value in changes.items()))
        return _WatchedEntry(self._transaction, self._operator, {**self._overlay, **changes}, writes)

    def _value(self, part: _Part) -> Any:
        return self._overlay[part] if part in self._overlay else self._transaction.value(part)


class _WatchedKernels(Mapping[int, _Kernels]):
    """Kernels by the bits of their keys; notes which keys are looked up."""

    def __init__(self, kernels: Mapping[int, _Kernels], notes: list[int]) -> None:
        self._kernels, self._notes = kernels, notes

    def __getitem__(self, bit: int) -> _Kernels:
        self._notes.append(bit)
        return self._kernels[bit]

    def __iter__(self) -> Iterator[int]:
        self._notes.append(-1)
        return iter(self._kernels)

    def __len__(self) -> int:
        self._notes.append(-1)
        return len(self._kernels)


class _WatchedBits:
    """A set of bits that is no integer, and notes which of them are looked at; what does not mask it looks at all."""

    __slots__ = ("_bits", "_notes")

    def __init__(self, bits: int, notes: list[int]) -> None:
        self._bits, self._notes = bits, notes

    def __and__(self, mask: int) -> int:
        self._notes.append(mask)
        return self._bits & mask

    __rand__ = __and__

    def __index__(self) -> int:
        self._notes.append(-1)
        return self._bits

    __int__ = __index__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__index__(), name)

    def __bool__(self) -> bool:
        return bool(self.__index__())

    def __eq__(self, other: object) -> bool:
        return self.__index__() == other

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __or__(self, other: int) -> int:
        return self.__index__() | other

    def __xor__(self, other: int) -> int:
        return self.__index__() ^ other

    def __invert__(self) -> int:
        return ~self.__index__()

    def __lshift__(self, count: int) -> int:
        return self.__index__() << count

    def __rshift__(self, count: int) -> int:
        return self.__index__() >> count

    def __sub__(self, other: int) -> int:
        return self.__index__() - other

    __ror__, __rxor__ = __or__, __xor__
