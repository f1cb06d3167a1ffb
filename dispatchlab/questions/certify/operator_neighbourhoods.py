"""Neighbourhoods of an operator: which registrations reach the same slots, and what they show in all orders.

Those of whole windows are planned here, see Note [What a certificate stands on]; they are needed where the smaller ones
of slot_neighbourhoods.py prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from typing import TypeAlias

from dispatchlab.engine.fallbacks import NO_FALLBACKS
from dispatchlab.engine.footprint import Footprint, judged_keys
from dispatchlab.engine.invariants import stale_keys
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.lab_engine import LabSpace
from dispatchlab.engine.precedence import Slots, computed_table
from dispatchlab.engine.semantics import Semantics, is_builtin
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.registration import Def, Fallback, Impl, Kernel, Registration
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.slot_set import KEY_BIT, KEY_OF_BIT, set_bits
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.certify.certificate import Pattern

MAX_KEYS = 16
"""The sets of more kernels than this are not gone through."""


def key_bits(keys: Iterable[DispatchKey]) -> int:
    """Keys as bits."""
    bits = 0
    for key in keys:
        bits |= KEY_BIT[key]
    return bits


def keys_in(bits: int) -> frozenset[DispatchKey]:
    """The keys of bits; the bit of kernels without a key has none."""
    found = {KEY_OF_BIT[1 << at] for at in set_bits(bits)}
    return frozenset(key for key in found if key is not None)


def slots_left_stale(semantics: Semantics, keys: Sequence[DispatchKey]) -> frozenset[int]:
    """The slots that one of these kernels changes without a refresh, at some set of the others."""
    tables = {}
    for count in range(len(keys) + 1):
        for chosen in combinations(keys, count):
            tables[key_bits(chosen)] = _table(semantics, key_bits(chosen))
    found = 0
    for present, table in tables.items():
        for key in keys:
            bit = KEY_BIT[key]
            if not present & bit:
                found |= stale_keys(table, tables[present | bit]) & ~(semantics.refresh[key] & semantics.released[key])
    return frozenset(set_bits(found))


def patterns_with_stale_slots(semantics: Semantics, patterns: Iterable[Pattern]) -> frozenset[Pattern]:
    """Those of the patterns in which a kernel can change a slot that it does not refresh.

    In all others, no slot is ever stale.
    """
    known: dict[int, bool] = {}

    def can(judged: int) -> bool:
        if judged not in known:
            keys = sorted(keys_in(judged))
            known[judged] = len(keys) > MAX_KEYS or bool(slots_left_stale(semantics, keys))
        return known[judged]

    def concerns(pattern: Pattern) -> bool:
        present = key_bits(pattern.kernel_keys)
        return any(can(judged) for judged in {judged_keys(semantics, slot) & present for slot in range(len(SLOT_KEYS))})

    return frozenset(filter(concerns, patterns))


def order_with_stale_slot(semantics: Semantics, pattern: Pattern, slot: int) -> tuple[DispatchKey, ...] | None:
    """An order of all kernels after which a slot holds what it should not; None when there is none.

    The last kernel that refreshes the slot decides: so it is enough to choose which of those that do not refresh it
    come before.
    """
    keys, refresh = sorted(pattern.kernel_keys), semantics.refresh
    lazy = [key for key in keys if KEY_BIT[key] & judged_keys(semantics, slot) and not refresh[key] >> slot & 1]
    eager = [key for key in keys if refresh[key] >> slot & 1]
    rest = [key for key in keys if key not in lazy and key not in eager]
    whole = _table(semantics, key_bits(keys))
    for count in range(len(lazy) if eager else 1):
        for before in combinations(lazy, count):
            if stale_keys(_table(semantics, key_bits([*before, *eager])), whole) >> slot & 1:
                return (*rest, *before, *eager, *(key for key in lazy if key not in before))
    return None


def _table(semantics: Semantics, present: int) -> Slots:
    kernels = {bit: (_entry(bit),) for bit in KEY_OF_BIT if present & bit}
    return computed_table(semantics.precedence, present, kernels, NO_FALLBACKS)


@cache
def _entry(bit: int) -> RegisteredKernel:
    return RegisteredKernel(Kernel(), "", KEY_OF_BIT[bit])


KeySequence: TypeAlias = tuple[tuple[DispatchKey | None, bool], ...]
"""A sequence by the keys of its kernels, None for the def, and whether each step is a release."""

NAME = parse_name("pattern::operator")
SCHEMA = parse_schema("pattern::operator(Tensor x) -> Tensor")

# Note [What a certificate stands on]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# An operator with 18 kernels, a def and 38 fallbacks has 2 to the 57 active sets: they cannot be visited one by one,
# and need not be. The state of an operator has parts: for each key the list of its kernels, the def, and for
# each slot what calls use there; the fallbacks are parts of the dispatcher, one for each slot. What a registration
# writes is one list, the def or one fallback, and a window of slots, which it refreshes in one call.
#
# Claim. Let f(s) be what the invariants say that slot s should hold. For every sequence over all registrations of the
# operator and all fallbacks, every slot s holds f(s), which is a function of what is in force and nothing else.
#
# Ground. f(s) looks at `judged_keys(s)` and the fallback of s (by construction: the rest is masked away). A
# neighbourhood is a set of keys N, explored as a scenario of its own: the def and the kernels at N, all sets, both
# directions of every edge, with every slot compared with f at every state (Note [When states may be merged]).
# Footprints of every refresh are recorded meanwhile (Note [Footprints of a refresh]). It is required, and checked,
# that
#   (a) every slot s has a neighbourhood with judged_keys(s) in it,
#   (b) every window W of a registration of the operator, or of a fallback, has a neighbourhood that holds its key,
#       the judged keys of all slots in W, and every key of the operator that a refresh of W was seen to read
#       there,
#   (c) each fallback was registered and released at every set of a neighbourhood as in (b), all others in force,
#   (d) no footprint shows a stray, and a random walk over the neighbourhood shows in a fresh sandbox what the states
#       show (Note [What a proof rests on]).
# That a registration refreshes one window and leaves all other slots alone is how engine/primitives.py is written.
# Step. Let every slot hold f before a step e with window W. For s in W: the refresh reads keys of the N of (b)
# alone, so it gives what it gave in the state of N with the same kernels at N, and there that was f(s); with other
# fallbacks in force it differs in what fallbacks fill, slot by slot, as f does. For s outside of W: the slot stays; if
# the key of e is judged for s, then N of (a) holds e and has this very step at every set, after which s held f(s)
# without having been written: f(s) did not change. Otherwise f(s) does not look there. So all slots hold f afterwards.
# An operator that appears gets f of nothing in all slots, which (a) has visited, too. By induction over the sequence,
# the claim holds.
#
# The rest of the state: the list of a key with one kernel, the def and a fallback are functions of what is in force.
# Nothing is refused: each kernel is checked against the def alone, and the registrations of every operator are run, def
# first and def last. Two kernels at one key are ordered by time: the order matters there, by design, which is shown
# by two sequences. What the certificate says beyond that is proved with the order of these two kept.
#
# Operators of one pattern differ in names, texts and schemas, which no refresh looks at: it takes the newest kernel of
# a key as a whole. So neighbourhoods are explored once for all patterns that have them. This is checked on every
# operator: a random sequence over all its registrations with the recorded fallbacks is run on the engine, every slot
# compared with f after each step.
#
# Where the engine does leave a slot stale, as `torch-2.13` does, the same neighbourhoods are exact in the other
# direction: a sequence of theirs is a sequence of the operator, and it is run there before anything is said.
#
# Where several keys of a neighbourhood have several kernels, all of these come in one order, key by key, which leaves
# out orders of the kernels of two keys among one another. The neighbourhoods of slots have one such key each.
#
# Not covered: C++ signatures, which no dump shows; kernels registered without a key are on record with the key that
# they were given; listeners and library claims, which no operator sees.


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Keys that are explored together.

    Args:
        kernels: each key with how many kernels it has.
        fallback: the fallback that comes and goes with them; the others are in force.
    """

    kernels: tuple[tuple[DispatchKey, int], ...]
    fallback: DispatchKey | None = None

    @property
    def keys(self) -> int:
        """The keys, as bits."""
        return key_bits(key for key, _ in self.kernels)

    @property
    def size(self) -> int:
        """How many registrations there are, the def included."""
        return 1 + sum(count for _, count in self.kernels) + (self.fallback is not None)

    @property
    def rank(self) -> tuple[int, tuple[tuple[DispatchKey, int], ...], DispatchKey]:
        """Smaller ones come first."""
        return self.size, self.kernels, self.fallback or DispatchKey.Undefined


@dataclass(frozen=True, slots=True)
class Explored:
    """What a neighbourhood has shown.

    Args:
        verdict: of the exploration.
        reads: window -> the keys that its refreshes read.
        strays: what no footprint may show.
        sets: active sets.
        edges: registrations and releases.
        sequences: the two sequences of a counterexample, as keys and whether they are released; None is the def.
        trouble: why nothing can be said, a sentence; empty when it can.
        stale: when violated, the slots that a kernel can leave stale.
    """

    verdict: Verdict
    reads: dict[int, int]
    strays: frozenset[str]
    sets: int
    edges: int
    sequences: tuple[KeySequence, ...] = ()
    trouble: str = ""
    stale: frozenset[int] = frozenset()


def explore_neighbourhood(semantics: Semantics, neighbourhood: Neighbourhood) -> Explored:
    """Every set of a neighbourhood, both directions of every edge, with footprints.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        neighbourhood: what comes and goes there.
    """
    plain, registrations, order = scenario_of(semantics, neighbourhood)
    footprint = Footprint(plain)
    space = LabSpace(registrations, [NAME], footprint.watched)
    found = explore_graph(space, len(registrations), order=order)
    strange = space.touched() - space.shared_variables() - {str(NAME)}
    touched = (f"a registration touched {variable}, which is not its operator" for variable in strange)
    strays = frozenset({*footprint.strays, *touched})
    trouble, stale = "", frozenset[int]()
    sequences: tuple[KeySequence, ...] = ()
    if found.conflicts or found.never_accepted:
        trouble = "a registration was refused"
    elif found.verdict is Verdict.ORDER_DEPENDENT and found.counterexample is not None:
        counterexample = found.counterexample
        stale = slots_left_stale(semantics, [key for key, _ in neighbourhood.kernels])
        sequences = tuple(
            _in_keys(sequence, registrations)
            for sequence in (counterexample.expected_sequence, counterexample.actual_sequence)
        )
        if not stale or any(
            isinstance(registrations[~at if at < 0 else at], Fallback) for at in counterexample.actual_sequence
        ):
            trouble = f"the exploration found what no kernel explains: {counterexample.flaw}"
    elif found.verdict is not Verdict.ORDER_INDEPENDENT:
        trouble = f"the exploration ended as {found.verdict}"
        if found.counterexample is not None:
            trouble += f": {'; '.join(found.counterexample.why) or found.counterexample.flaw}"
    reads = {window: mask for window, mask in footprint.reads.items() if window != semantics.precedence.slots}
    return Explored(found.verdict, reads, strays, found.sets, found.edges, sequences, trouble, stale)


def scenario_of(
    semantics: Semantics, neighbourhood: Neighbourhood
) -> tuple[Semantics, tuple[Registration, ...], Chains]:
    """A neighbourhood as a scenario: the dispatcher, a def, kernels and the fallback, the order of each key's kernels.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        neighbourhood: what comes and goes there.
    """
    in_force = tuple(fallback for fallback in semantics.fallbacks if fallback.key is not neighbourhood.fallback)
    coming = tuple(fallback for fallback in semantics.fallbacks if fallback.key is neighbourhood.fallback)
    registrations: list[Registration] = [Def(SCHEMA)]
    order: list[int] = []
    for key, count in neighbourhood.kernels:
        if count > 1:
            order += range(len(registrations), len(registrations) + count)
        registrations += [Impl(NAME, key, Kernel(), f"{key} {number}") for number in range(count)]
    return replace(semantics, fallbacks=in_force), (*registrations, *coming), (order,) if order else ()


def _in_keys(sequence: StepSequence, registrations: Sequence[Registration]) -> KeySequence:
    steps = []
    for step in sequence:
        registration = registrations[~step if step < 0 else step]
        steps.append((registration.key if isinstance(registration, Impl) else None, step < 0))
    return tuple(steps)


@dataclass(slots=True)
class Plan:
    """What has to be explored for a pattern; grows until footprints stay inside.

    Args:
        pattern: the pattern.
        judged: for each slot, the keys that the invariants look at.
        wanted: the neighbourhoods that (a) and (b) ask for, with the window and the key of (b).
        trouble: why the pattern cannot be decided; empty while it can.
    """

    pattern: Pattern
    judged: tuple[int, ...]
    wanted: dict[tuple[int, DispatchKey | None, bool], Neighbourhood] = field(default_factory=dict)
    trouble: str = ""

    def want(self, why: tuple[int, DispatchKey | None, bool], bits: int) -> None:
        """Ask for a neighbourhood of these keys; whether it is for a fallback is the last part of `why`."""
        _, key, is_fallback = why
        wanted = Neighbourhood(self.pattern.counted(keys_in(bits)), key if is_fallback else None)
        if wanted.size > MAX_KEYS + 1:
            self.trouble = (
                f"{wanted.size} registrations reach the same slots, and more than {MAX_KEYS} are not explored"
            )
        self.wanted[why] = wanted

    def to_explore(self) -> frozenset[Neighbourhood]:
        """The neighbourhoods without those that are inside of another."""
        if self.trouble:
            return frozenset()
        with_fallback = {each for each in self.wanted.values() if each.fallback is not None}
        plain = {each for each in self.wanted.values() if each.fallback is None}
        largest = {one for one in plain if not any(one.keys != other.keys and _within(one, other) for other in plain)}
        return frozenset(with_fallback | largest)

    def grow(self, known: Mapping[Neighbourhood, Explored]) -> bool:
        """Make the neighbourhoods as large as the footprints ask; whether one has grown."""
        grown = False
        bits = key_bits(self.pattern.kernel_keys)
        chosen = self.to_explore()
        for why, wanted in list(self.wanted.items()):
            window, key, _ = why
            if key is None:
                continue
            for each in chosen:
                if each.fallback != wanted.fallback or not _within(wanted, each):
                    continue
                read = known[each].reads.get(window, 0) & bits
                if read & ~each.keys:
                    self.want(why, each.keys | read)
                    grown = True
                break
        return grown

    def trouble_with(self, known: Mapping[Neighbourhood, Explored]) -> str:
        """Why (a) to (d) do not hold for the pattern, a sentence; empty when they do."""
        if self.trouble:
            return self.trouble
        bits, chosen = key_bits(self.pattern.kernel_keys), self.to_explore()
        for each in sorted(chosen, key=lambda one: one.rank):
            explored = known[each]
            if explored.trouble:
                return explored.trouble
            if explored.strays:
                return sorted(explored.strays)[0]
        if self.stale_of(known):
            return ""  # nothing is claimed to be proved, and explorations that found something ended there
        for (window, key, _), wanted in self.wanted.items():
            if not any(
                _within(wanted, each)
                and each.fallback == wanted.fallback
                and (key is None or not known[each].reads.get(window, 0) & bits & ~each.keys)
                and (key is None or not self.judged_in(window) & bits & ~each.keys)
                and (key is None or window in known[each].reads)
                for each in chosen
            ):
                return f"a refresh for {key} reads more than any neighbourhood holds"
        return ""

    def judged_in(self, window: int) -> int:
        """The keys that the invariants look at to judge the slots of a window, as bits."""
        bits = 0
        for slot in set_bits(window):
            bits |= self.judged[slot]
        return bits

    def stale_of(self, known: Mapping[Neighbourhood, Explored]) -> tuple[Explored, ...]:
        """The neighbourhoods of the pattern that leave a slot stale, one for each set of slots, the smallest."""
        found: dict[frozenset[int], Explored] = {}
        for each in sorted(self.to_explore(), key=lambda one: one.rank):
            if known[each].stale:
                found.setdefault(known[each].stale, known[each])
        return tuple(found.values())


def plan_of(semantics: Semantics, pattern: Pattern) -> Plan:
    """The neighbourhoods of a pattern by (a), (b) and (c), before any footprint is known.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        pattern: what operators have in common.
    """
    plan = Plan(pattern, tuple(judged_keys(semantics, slot) for slot in range(len(SLOT_KEYS))))
    bits, refresh = key_bits(pattern.kernel_keys), semantics.refresh
    for slot in set_bits(semantics.precedence.slots):
        plan.want((1 << slot, None, False), plan.judged[slot] & bits)
    for key in pattern.kernel_keys:
        for window in dict.fromkeys((refresh[key], semantics.released[key])):
            plan.want((window, key, False), (plan.judged_in(window) | KEY_BIT[key]) & bits)
    for fallback in semantics.fallbacks:
        if not fallback_comes_and_goes(semantics, fallback):
            continue
        assert fallback.key is not None
        window = refresh[fallback.key]
        plan.want((window, fallback.key, True), plan.judged_in(window) & bits)
    return plan


def fallback_comes_and_goes(semantics: Semantics, fallback: Fallback) -> bool:
    """Whether the proof takes a fallback as one that is registered and released."""
    return fallback.key is not None and not stays(semantics, fallback.key, fallback.debug)


def stays(semantics: Semantics, key: DispatchKey, debug: str) -> bool:
    """Whether a fallback of a registry replaced another, so that the proof takes it as always in force.

    Its release leaves something else than there was before it came: see Note [Fallbacks that replace].
    """
    replaces = key in semantics.replaceable_fallbacks and not semantics.replaced_fallback_returns
    return replaces and not is_builtin(debug)


def _within(one: Neighbourhood, other: Neighbourhood) -> bool:
    return one.keys & other.keys == one.keys
