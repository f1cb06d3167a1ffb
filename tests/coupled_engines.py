"""The lab engine with a coupling planted into it: what it does besides, and does not declare.

A `Coupling` is between the keys of an operator, between operators, from a fallback to an operator, through a number
that nobody sees, or through the order of arrival. It changes the state: a slot is emptied, the kernels of a key are
turned around, or who comes is refused. Footprints are recorded as they are; what a variable depends on, and who decides
about whom, is declared as if there was no coupling.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, TypeAlias

from dispatchlab.engine.introspection import fallbacks_in, operator_in
from dispatchlab.engine.lab_engine import LabSpace, LabState
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.primitives import RegisterFallback, RegisterImpl
from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.errors import ErrorKind
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Fallback, Kernel, KernelForm, Registration
from dispatchlab.model.slot_set import KEY_BIT
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import StateVariable
from tests.random_scenarios import random_scenario

Kind: TypeAlias = Literal["keys", "operators", "fallbacks", "hidden", "arrival"]
KINDS: tuple[Kind, ...] = ("keys", "operators", "fallbacks", "hidden", "arrival")
Effect: TypeAlias = Literal["empties", "turns", "refuses"]
EFFECTS: tuple[Effect, ...] = ("empties", "turns", "refuses")

CoupledState: TypeAlias = "tuple[LabState, int, int]"
"""A state, the registrations in force, and the number that nobody sees."""

_NUMBER = "the number that nobody sees"


@dataclass(frozen=True)
class Coupling:
    """What an engine does besides.

    Args:
        kind: what is coupled. `hidden`: `partner` has the effect after `by` came an odd number of times; else `by` has
            it when it comes while `partner` is in force, or for `arrival` when it comes while `partner` is not.
        effect: `empties` a slot, `turns` around the kernels of a key, or `refuses` who comes.
        by: a registration.
        partner: another.
        operator: whose slot or kernels.
        bit: the slot or the key.
    """

    kind: Kind
    effect: Effect
    by: int
    partner: int
    operator: str
    bit: int


class CoupledSpace:
    """The states of the lab engine with a coupling; `indices` are the numbers of its registrations in the engine."""

    def __init__(self, plain: LabSpace, engine: CoupledEngine, indices: Sequence[int]) -> None:
        self.plain = plain
        self.engine = engine
        self.indices = tuple(indices)
        self.more: set[StateVariable] = set()

    @property
    def count(self) -> int:
        return len(self.indices)

    def empty(self) -> CoupledState:
        return self.plain.empty(), 0, 0

    def register(self, state: CoupledState, index: int, /) -> tuple[CoupledState, Refusal | None]:
        before, mask, number = state
        one, coupling = self.indices[index], self.engine.coupling
        acts = self._acts(one, mask, number)
        if coupling.kind == "hidden" and one == coupling.by:
            self.more.add(_NUMBER)
            number ^= 1
        if acts and coupling.effect == "refuses":
            return (before, mask, number), Refusal(ErrorKind.OTHER, (), "the coupling refuses it")
        after, refusal = self.plain.register(before, index)
        if refusal is not None:
            return (after, mask, number), refusal
        return (self._coupled(after) if acts else after, mask | 1 << one, number), None

    def release(self, state: CoupledState, index: int, /) -> CoupledState:
        before, mask, number = state
        return self.plain.release(before, index), mask ^ 1 << self.indices[index], number

    def _acts(self, one: int, mask: int, number: int) -> bool:
        coupling = self.engine.coupling
        if coupling.kind == "hidden":
            if one == coupling.partner:
                self.more.add(_NUMBER)
            return one == coupling.partner and number == 1
        if one != coupling.by:
            return False
        self.more |= self.engine.written_by_partner
        return (mask >> coupling.partner & 1) is not (coupling.kind == "arrival")

    def _coupled(self, state: LabState) -> LabState:
        """With the effect, if the operator is there."""
        coupling = self.engine.coupling
        self.more.add(coupling.operator)
        entry = operator_in(state, coupling.operator)
        if entry is None:
            return state
        if coupling.effect == "empties":
            left = {held: left for held, bits in entry.held.items() if (left := bits & ~coupling.bit)}
            changed = entry._replace(own=entry.own & ~coupling.bit, held=left)
        else:
            changed = self._turned(entry, state)
        return LabState({**state, coupling.operator: changed})

    def _turned(self, entry: OperatorEntry, state: LabState) -> OperatorEntry:
        """With the oldest kernel of the key in front, in all slots."""
        at = self.engine.coupling.bit
        kernels = {bit: some[::-1] if bit == at else some for bit, some in entry.kernels.items()}
        precedence = self.engine.model.precedence
        turned = entry._replace(kernels=kernels)
        return turned.refreshed(precedence.slots, precedence.fill, fallbacks_in(state))

    def observe(self, state: CoupledState, /) -> tuple[Snapshot, ...]:
        return self.plain.observe(state[0])

    def violations(self, state: CoupledState, /) -> tuple[Violation, ...]:
        return self.plain.violations(state[0])

    def why(self, expected: CoupledState, actual: CoupledState, /) -> tuple[str, ...]:
        return self.plain.why(expected[0], actual[0])

    # --- footprints, as they are

    def written_variables(self, index: int, /) -> frozenset[StateVariable]:
        return self.plain.written_variables(index)

    def is_broadcast(self, index: int, /) -> bool:
        return self.plain.is_broadcast(index)

    def shared_variables(self) -> frozenset[StateVariable]:
        return self.plain.shared_variables()

    def touched(self) -> frozenset[StateVariable]:
        return self.plain.touched() | self.more

    # --- what is declared, without the coupling

    def dependences(self) -> Mapping[Hashable, Dependence] | str:
        return self.plain.dependences()

    def values(self, state: CoupledState, /) -> Mapping[Hashable, Hashable]:
        return self.plain.values(state[0])

    def deciders(self) -> Sequence[int]:
        return self.plain.deciders()

    def restricted(self, indices: Sequence[int], operators: Sequence[OperatorName], /) -> CoupledSpace:
        plain = self.plain.restricted(indices, operators)
        return CoupledSpace(plain, self.engine, [self.indices[index] for index in indices])


class CoupledEngine:
    """The lab engine with a coupling."""

    name = "coupled"

    def __init__(
        self,
        semantics: str,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        order: Chains,
        coupling: Coupling,
    ) -> None:
        self.semantics = semantics
        self.model: Semantics = semantics_named(semantics)
        self.registrations = tuple(registrations)
        self.operators = tuple(operators)
        self.order = tuple(order)
        self.coupling = coupling
        whole = LabSpace(registrations, operators, self.model)
        self.written_by_partner = whole.written_variables(coupling.partner)

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> CoupledSpace:
        indices = [next(at for at, one in enumerate(self.registrations) if one is each) for each in registrations]
        return CoupledSpace(LabSpace(registrations, operators, self.model), self, indices)

    @property
    def whole(self) -> CoupledSpace:
        """The states of all registrations."""
        return self.space(self.registrations, self.operators)


def coupled_engine(seed: int) -> CoupledEngine:
    """A random scenario with a coupling, always the same for a seed; the kinds take turns."""
    kind = KINDS[seed % len(KINDS)]
    return next(found for attempt in count() if (found := _coupled(kind, seed + attempt * 1_000_003)) is not None)


def _coupled(kind: Kind, seed: int) -> CoupledEngine | None:
    random = SplitMix64(seed)
    semantics, registrations, operators, order = random_scenario(seed, most=4, refused=random.chance(30))
    if kind == "fallbacks":
        key = (DispatchKey.CPU, DispatchKey.AutogradCPU, DispatchKey.Functionalize)[random.below(3)]
        registrations = (*registrations, Fallback(key, Kernel(KernelForm.BOXED), "coupled"))
    lowered = LabSpace(registrations, operators, semantics_named(semantics)).lowered
    named = [[one for one in each.primitives if isinstance(one, RegisterImpl)] for each in lowered]
    impls = [(index, one) for index, some in enumerate(named) for one in some]
    by = random.below(len(registrations))
    if kind == "fallbacks":
        by = len(registrations) - 1
        assert isinstance(lowered[by].primitives[0], RegisterFallback)
    elif kind in ("keys", "operators") and not named[by]:
        return None
    targets = [
        one
        for index, one in impls
        if kind not in ("keys", "operators")
        or (index != by and (one.variable == named[by][0].variable) is (kind == "keys") and one.bit != named[by][0].bit)
    ]
    if not targets:
        return None
    target = targets[random.below(len(targets))]
    effect = EFFECTS[random.below(len(EFFECTS))]
    slots = semantics_named(semantics).precedence.slots
    bit = target.bit if effect == "turns" or target.bit & slots else KEY_BIT[DispatchKey.CPU]
    partner = (by + 1 + random.below(len(registrations) - 1)) % len(registrations)
    coupling = Coupling(kind, effect, by, partner, target.variable, bit)
    return CoupledEngine(semantics, registrations, operators, order, coupling)


def kinds_of(seeds: range) -> Iterator[tuple[Kind, Effect, str]]:
    """What is planted for some seeds, and under which semantics."""
    for seed in seeds:
        engine = coupled_engine(seed)
        yield engine.coupling.kind, engine.coupling.effect, engine.semantics
