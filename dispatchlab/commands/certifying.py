"""The proof behind `dispatchlab certify`: small neighbourhoods in all orders, footprints to carry it over, whole words.

See Note [What a certificate stands on].
"""

# Note [What a certificate stands on]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# An operator with 18 kernels, a def and 38 fallbacks has 2 to the 57 active sets: they cannot be visited one by one,
# and need not be. The state of an operator has parts: for each place (a key) the list of its kernels, the def, and for
# each slot what calls use there; the fallbacks are parts of the dispatcher, one for each slot. What a registration
# writes is one list, the def or one fallback, and a window of slots, which it refreshes in one call.
#
# Claim. Let f(s) be what the invariants say that slot s should hold. For every word over all registrations of the
# operator and all fallbacks, every slot s holds f(s), which is a function of what is in force and nothing else.
#
# Ground. f(s) looks at `judged_places(s)` and the fallback of s (by construction: the rest is masked away). A
# neighbourhood is a set of places N, explored as a scenario of its own: the def and the kernels at N, all sets, both
# directions of every edge, with every slot compared with f at every state (Note [When states may be merged]).
# Footprints of every refresh are recorded meanwhile (Note [Footprints of a refresh]). It is required, and checked,
# that
#   (a) every slot s has a neighbourhood with judged_places(s) in it,
#   (b) every window W of a registration of the operator, or of a fallback, has a neighbourhood that holds its place,
#       the judged places of all slots in W, and every place of the operator that a refresh of W was seen to read
#       there,
#   (c) each fallback was registered and released at every set of a neighbourhood as in (b), all others in force,
#   (d) no footprint shows a stray.
# That a registration refreshes one window and leaves all other slots alone is how engine/primitives.py is written.
# Step. Let every slot hold f before a step e with window W. For s in W: the refresh reads places of the N of (b)
# alone, so it gives what it gave in the state of N with the same kernels at N, and there that was f(s); with other
# fallbacks in force it differs in what fallbacks fill, slot by slot, as f does. For s outside of W: the slot stays; if
# the place of e is judged for s, then N of (a) holds e and has this very step at every set, after which s held f(s)
# without having been written: f(s) did not change. Otherwise f(s) does not look there. So all slots hold f afterwards.
# An operator that appears gets f of nothing in all slots, which (a) has visited, too. By induction over the word, the
# claim holds.
#
# The rest of the state: the list of a place with one kernel, the def and a fallback are functions of what is in force.
# Nothing is refused: each kernel is checked against the def alone, and the registrations of every operator are run, def
# first and def last. Two kernels at one place are ordered by time: the order matters there, by design, which is shown
# by two words. What the certificate says beyond that is proved with the order of these two kept.
#
# Operators of one pattern differ in names, texts and schemas, which no refresh looks at: it takes the newest kernel of
# a place as a whole. So neighbourhoods are explored once for all patterns that have them. This is checked on every
# operator: a random word over all its registrations with the recorded fallbacks is run on the engine, every slot
# compared with f after each step.
#
# Where the engine does leave a slot behind, as `torch-2.13` does, the same neighbourhoods are exact in the other
# direction: a word of theirs is a word of the operator, and it is run there before anything is said.
#
# Not covered: C++ signatures, which no dump tells; kernels registered without a key are on record with the key that
# they were given; listeners and library claims, which no operator sees.

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from typing import TypeAlias

from dispatchlab.commands.registry_bench import for_registry
from dispatchlab.engine.fallbacks import NO_FALLBACKS
from dispatchlab.engine.footprint import Footprint, judged_places
from dispatchlab.engine.kernel import KernelEntry
from dispatchlab.engine.key_bits import KEY_BIT, KEY_OF_BIT
from dispatchlab.engine.lab import LabEngine
from dispatchlab.engine.precedence import Slots, computed_table
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.space import LabSpace
from dispatchlab.explore.graph import explore_graph
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.result import Verdict
from dispatchlab.explore.session import on_sandboxes
from dispatchlab.explore.telling import tell
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.registration import Def, Fallback, Impl, Kernel, Registration
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.model.slots import ALL_SLOTS, each_slot
from dispatchlab.model.words import Word
from dispatchlab.registry.certify import (
    Cause,
    Certificate,
    Certified,
    OrderReason,
    Owner,
    Pattern,
    overrides_of,
    owner_of,
    pattern_of,
)
from dispatchlab.registry.model import RecordedFallback, RecordedOperator
from dispatchlab.registry.replay import fallback_registration, operator_registrations

MAX_PLACES = 16
"""Neighbourhoods with more kernels than this are not explored."""

_STALE = "stale slot"

_KeyWord: TypeAlias = tuple[tuple[DispatchKey | None, bool], ...]
"""A word by the keys of its kernels, None for the def, and whether each step is a release."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Places that are explored together.

    Args:
        kernels: each place with how many kernels it has.
        fallback: the fallback that comes and goes with them; the others are in force.
    """

    kernels: tuple[tuple[DispatchKey, int], ...]
    fallback: DispatchKey | None = None

    @property
    def places(self) -> int:
        """The places, as bits."""
        return _bits(key for key, _ in self.kernels)

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
        reads: window -> the places that its refreshes read.
        strays: what no footprint may show.
        sets: active sets.
        edges: registrations and releases.
        words: the two words of a counterexample, as keys and whether they are released; None is the def.
        trouble: why nothing can be said, a sentence; empty when it can.
        stale: when violated, the slots that a kernel can leave behind.
    """

    verdict: Verdict
    reads: dict[int, int]
    strays: frozenset[str]
    sets: int
    edges: int
    words: tuple[_KeyWord, ...] = ()
    trouble: str = ""
    stale: frozenset[int] = frozenset()


@dataclass(slots=True)
class Plan:
    """What has to be explored for a pattern; grows until footprints stay inside.

    Args:
        pattern: the pattern.
        wanted: the neighbourhoods that (a) and (b) ask for, with the window and the place of (b).
        trouble: why the pattern cannot be decided; empty while it can.
    """

    pattern: Pattern
    wanted: dict[tuple[int, DispatchKey | None, bool], Neighbourhood] = field(default_factory=dict)
    trouble: str = ""


def _bits(keys: Iterable[DispatchKey]) -> int:
    bits = 0
    for key in keys:
        bits |= KEY_BIT[key]
    return bits


def _keys(bits: int) -> frozenset[DispatchKey]:
    found = {KEY_OF_BIT[1 << at] for at in each_slot(bits)}
    return frozenset(key for key in found if key is not None)


def _judged(window: int) -> int:
    places = 0
    for slot in each_slot(window):
        places |= judged_places(slot)
    return places


class Prover:
    """Knows one semantics and the fallbacks of one registry.

    Args:
        semantics: the name of the semantics.
        fallbacks: the fallbacks of the registry.
    """

    def __init__(self, semantics: str, fallbacks: Sequence[RecordedFallback]) -> None:
        self.semantics: Semantics = for_registry(semantics)
        self.fallbacks = tuple(fallback_registration(each) for each in fallbacks)
        self._left_behind: dict[int, bool] = {}

    # -- which neighbourhoods

    def plan(self, pattern: Pattern) -> Plan:
        """The neighbourhoods of a pattern by (a), (b) and (c), before any footprint is known."""
        plan = Plan(pattern)
        places, refresh = _bits(pattern.places), self.semantics.refresh
        for slot in range(len(RUNTIME_KEYS)):
            self._want(plan, (1 << slot, None, False), judged_places(slot) & places)
        for key in pattern.places:
            self._want(plan, (refresh[key], key, False), (_judged(refresh[key]) | KEY_BIT[key]) & places)
        for fallback in self.fallbacks:
            assert fallback.key is not None
            window = refresh[fallback.key]
            self._want(plan, (window, fallback.key, True), _judged(window) & places)
        return plan

    def _want(self, plan: Plan, why: tuple[int, DispatchKey | None, bool], places: int) -> None:
        _, key, is_fallback = why
        wanted = Neighbourhood(plan.pattern.counted(_keys(places)), key if is_fallback else None)
        if wanted.size > MAX_PLACES + 1:
            plan.trouble = (
                f"{wanted.size} registrations reach the same slots, and more than {MAX_PLACES} are not explored"
            )
        plan.wanted[why] = wanted

    def to_explore(self, plan: Plan) -> frozenset[Neighbourhood]:
        """The neighbourhoods of a plan without those that are inside of another."""
        if plan.trouble:
            return frozenset()
        with_fallback = {each for each in plan.wanted.values() if each.fallback is not None}
        plain = {each for each in plan.wanted.values() if each.fallback is None}
        largest = {
            one for one in plain if not any(one.places != other.places and _within(one, other) for other in plain)
        }
        return frozenset(with_fallback | largest)

    def grow(self, plan: Plan, known: dict[Neighbourhood, Explored]) -> bool:
        """Make the neighbourhoods as large as the footprints ask; whether one has grown."""
        grown = False
        places = _bits(plan.pattern.places)
        chosen = self.to_explore(plan)
        for why, wanted in list(plan.wanted.items()):
            window, key, _ = why
            if key is None:
                continue
            for each in chosen:
                if each.fallback != wanted.fallback or not _within(wanted, each):
                    continue
                read = known[each].reads.get(window, 0) & places
                if read & ~each.places:
                    self._want(plan, why, each.places | read)
                    grown = True
                break
        return grown

    def may_leave_behind(self, pattern: Pattern) -> bool:
        """Whether a kernel can change a slot that it does not refresh; if not, no slot is ever left behind."""
        places = _bits(pattern.places)
        for judged in {judged_places(slot) & places for slot in range(len(RUNTIME_KEYS))}:
            if judged not in self._left_behind:
                single = Neighbourhood(tuple((key, 1) for key in sorted(_keys(judged))))
                self._left_behind[judged] = single.size > MAX_PLACES + 1 or bool(self._stale(single))
            if self._left_behind[judged]:
                return True
        return False

    # -- exploring

    def explore(self, neighbourhood: Neighbourhood) -> Explored:
        """Every set of a neighbourhood, both directions of every edge, with footprints."""
        in_force = tuple(each for each in self.fallbacks if each.key is not neighbourhood.fallback)
        coming = tuple(each for each in self.fallbacks if each.key is neighbourhood.fallback)
        footprint = Footprint(_with_fallbacks(self.semantics, in_force))
        registrations, order = _small_scenario(neighbourhood.kernels, coming)
        space = LabSpace(registrations, [_NAME], footprint.watched)
        found = explore_graph(space, len(registrations), order=order)
        strays = frozenset({*footprint.strays, *_strange_cells(space)})
        trouble, stale = "", frozenset[int]()
        words: tuple[_KeyWord, ...] = ()
        if found.conflicts or found.never_accepted:
            trouble = "a registration was refused"
        elif found.verdict is Verdict.VIOLATED and found.counterexample is not None:
            told = found.counterexample
            stale = self._stale(neighbourhood)
            words = tuple(_in_keys(word, registrations) for word in (told.expected_word, told.actual_word))
            if not stale or any(isinstance(registrations[~at if at < 0 else at], Fallback) for at in told.actual_word):
                trouble = f"the exploration found a {told.flaw} that no kernel explains"
        elif found.verdict is not Verdict.PROVED:
            trouble = f"the exploration ended as {found.verdict}"
        reads = {window: mask for window, mask in footprint.reads.items() if window != ALL_SLOTS}
        return Explored(found.verdict, reads, strays, found.sets, found.edges, words, trouble, stale)

    def _stale(self, neighbourhood: Neighbourhood) -> frozenset[int]:
        """The slots that a kernel of the neighbourhood changes without a refresh, at some set of its kernels."""
        keys = [key for key, _ in neighbourhood.kernels]
        tables = {}
        for count in range(len(keys) + 1):
            for chosen in combinations(keys, count):
                tables[_bits(chosen)] = self._table(_bits(chosen))
        found = 0
        for present, table in tables.items():
            for key in keys:
                bit = KEY_BIT[key]
                if not present & bit:
                    found |= _differing(table, tables[present | bit]) & ~self.semantics.refresh[key]
        return frozenset(each_slot(found))

    def _table(self, present: int) -> Slots:
        kernels = {bit: (_entry(bit),) for bit in KEY_OF_BIT if present & bit}
        return computed_table(self.semantics.precedence, present, kernels, NO_FALLBACKS)

    # -- the verdict on a pattern

    def trouble_with(self, plan: Plan, known: dict[Neighbourhood, Explored]) -> str:
        """Why (a) to (d) do not hold for a pattern, a sentence; empty when they do."""
        if plan.trouble:
            return plan.trouble
        places, chosen = _bits(plan.pattern.places), self.to_explore(plan)
        for each in sorted(chosen, key=lambda one: one.rank):
            explored = known[each]
            if explored.trouble:
                return explored.trouble
            if explored.strays:
                return sorted(explored.strays)[0]
        if self.stale_of(plan, known):
            return ""  # nothing is claimed to be proved, and explorations that found something ended there
        for (window, key, _), wanted in plan.wanted.items():
            if not any(
                _within(wanted, each)
                and each.fallback == wanted.fallback
                and (key is None or not known[each].reads.get(window, 0) & places & ~each.places)
                and (key is None or not _judged(window) & places & ~each.places)
                and (key is None or window in known[each].reads)
                for each in chosen
            ):
                return f"a refresh for {key} reads more than any neighbourhood holds"
        return ""

    def stale_of(self, plan: Plan, known: dict[Neighbourhood, Explored]) -> tuple[Explored, ...]:
        """The neighbourhoods of a pattern that leave a slot behind, one for each set of slots, the smallest."""
        found: dict[frozenset[int], Explored] = {}
        for each in sorted(self.to_explore(plan), key=lambda one: one.rank):
            if known[each].stale:
                found.setdefault(known[each].stale, known[each])
        return tuple(found.values())

    # -- whole operators

    def certify(
        self, operator: RecordedOperator, number: int, trouble: str, stale: Sequence[Explored]
    ) -> tuple[Certificate, int]:
        """The certificate of an operator, and how many steps were run for it.

        Args:
            operator: the operator.
            number: of its pattern.
            trouble: why its pattern is not decided.
            stale: what leaves slots behind in its pattern.
        """
        name = str(operator.name)
        if trouble:
            return Certificate(name, Certified.NOT_DECIDED, number, (), trouble), 0
        bench = _Bench(self, operator)
        slots = frozenset().union(*(each.stale for each in stale))
        wrong = bench.both_ways() or bench.random_word(slots)
        if wrong:
            return Certificate(name, Certified.NOT_DECIDED, number, (), wrong), bench.steps
        reasons = [*bench.overrides()]
        for each in stale:
            reason = bench.stale(each)
            if reason is None:
                text = "a counterexample of its pattern does not show on the operator itself"
                return Certificate(name, Certified.NOT_DECIDED, number, (), text), bench.steps
            reasons.append(reason)
        verdict = Certified.ORDER_MATTERS if reasons else Certified.PROVED
        return Certificate(name, verdict, number, tuple(reasons)), bench.steps

    def left_behind(self, pattern: Pattern, slot: int) -> tuple[DispatchKey, ...] | None:
        """An order of all kernels after which a slot holds what it should not; None when there is none.

        The last kernel that refreshes the slot decides: so it is enough to choose which of those that do not refresh it
        come before.
        """
        places, refresh = sorted(pattern.places), self.semantics.refresh
        lazy = [key for key in places if KEY_BIT[key] & judged_places(slot) and not refresh[key] >> slot & 1]
        eager = [key for key in places if refresh[key] >> slot & 1]
        rest = [key for key in places if key not in lazy and key not in eager]
        whole = self._table(_bits(places))
        for count in range(len(lazy) if eager else 1):
            for before in combinations(lazy, count):
                if _differing(self._table(_bits([*before, *eager])), whole) >> slot & 1:
                    return (*rest, *before, *eager, *(key for key in lazy if key not in before))
        return None


class _Bench:
    """Runs words on one operator with the fallbacks of the registry in force."""

    def __init__(self, prover: Prover, operator: RecordedOperator) -> None:
        self.operator = operator
        self.prover = prover
        self.steps = 0
        self.registrations: tuple[Def | Impl, ...] = operator_registrations(operator)
        self.semantics = _with_fallbacks(prover.semantics, prover.fallbacks)
        self.space = LabSpace(self.registrations, [operator.name], self.semantics)
        self.engine = LabEngine(self.semantics)

    def both_ways(self) -> str:
        """Whether everything is accepted with the def first and with the def last; a sentence when not."""
        forward = range(len(self.registrations))
        for word in (forward, [*forward[1:], *forward[:1]]):
            state = self.space.empty()
            for index in word:
                state, refusal = self.space.register(state, index)
                self.steps += 1
                if refusal is not None:
                    return f"a registration was refused: {refusal.message}"
        return ""

    def random_word(self, may_be_stale: frozenset[int]) -> str:
        """Whether a random word keeps to what was proved of the pattern; a sentence when not."""
        count = len(self.registrations)
        newer = _newer_of(self.registrations)
        random, state, mask = SplitMix64(count), self.space.empty(), 0
        allowed = {str(RUNTIME_KEYS[slot]) for slot in may_be_stale}
        for _ in range(3 * count):
            index = random.below(count)
            if mask >> index & 1:
                state = self.space.release(state, index)
            elif mask & newer[index]:
                continue
            else:
                state, refusal = self.space.register(state, index)
                if refusal is not None:
                    return f"a registration was refused: {refusal.message}"
            mask ^= 1 << index
            self.steps += 1
            for violation in self.space.violations(state):
                if violation.rule != _STALE or not allowed.issuperset(violation.keys):
                    return f"a word over the whole operator breaks what its pattern keeps: {violation}"
        return ""

    def overrides(self) -> Iterable[OrderReason]:
        """Each place with several kernels, with two words that end differently."""
        for key, kernels in overrides_of(self.operator):
            numbers = [at for at, one in enumerate(self.registrations) if isinstance(one, Impl) and one.key is key]
            pair = numbers[-2:]
            if not self._tell((pair[0], pair[1]), (pair[1], pair[0])):
                continue
            owners = tuple(Owner(key, self.registrations[at].debug) for at in pair)
            winner, *losers = map(owner_of, kernels)
            yield OrderReason(Cause.OVERRIDE, (key,), owners, (0, 1), (1, 0), winner, tuple(losers))

    def stale(self, explored: Explored) -> OrderReason | None:
        """Slots that are left behind, with two words of this operator that show it; None when they do not."""
        words = [self._word(word) for word in explored.words]
        if not self._tell(words[0], words[1]):
            return None
        pattern, in_force = pattern_of(self.operator), False
        for slot in sorted(explored.stale):
            order = self.prover.left_behind(pattern, slot)
            in_force = order is not None and self._ends_stale(order, slot)
            if in_force:
                break
        keys = tuple(RUNTIME_KEYS[slot] for slot in sorted(explored.stale))
        return self._reason(keys, words[0], words[1], in_force=in_force)

    def _ends_stale(self, order: Sequence[DispatchKey], slot: int) -> bool:
        state = self.space.empty()
        kernels = tuple((key, False) for key in order)
        for index in self._word(kernels if self.operator.is_dangling else ((None, False), *kernels)):
            state, _ = self.space.register(state, index)
            self.steps += 1
        return any(str(RUNTIME_KEYS[slot]) in violation.keys for violation in self.space.violations(state))

    def _word(self, keys: _KeyWord) -> Word:
        """A word in keys as one of this operator: the kernels of a key in their order, its def for None."""
        at: dict[DispatchKey | None, list[int]] = {}
        for number, one in enumerate(self.registrations):
            at.setdefault(one.key if isinstance(one, Impl) else None, []).append(number)
        word: list[int] = []
        for key, released in keys:
            word += [~number for number in at[key]] if released else at[key]
        return tuple(word)

    def _tell(self, expected: Sequence[int], actual: Sequence[int]) -> bool:
        self.steps += len(expected) + len(actual)
        sessions = on_sandboxes(self.engine, self.registrations, [self.operator.name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of kernels that are overridden: that is what is shown
            return tell(sessions, tuple(expected), tuple(actual)) is not None

    def _reason(
        self, keys: tuple[DispatchKey, ...], expected: Sequence[int], actual: Sequence[int], *, in_force: bool
    ) -> OrderReason:
        numbers = sorted({~step if step < 0 else step for step in (*expected, *actual)})
        place = {number: at for at, number in enumerate(numbers)}
        owners = tuple(
            Owner(one.key if isinstance(one, Impl) else None, one.debug)
            for one in (self.registrations[number] for number in numbers)
        )
        words = [tuple(~place[~step] if step < 0 else place[step] for step in word) for word in (expected, actual)]
        return OrderReason(Cause.STALE, keys, owners, words[0], words[1], in_force=in_force)


_NAME = parse_name("pattern::operator")
_SCHEMA = parse_schema("pattern::operator(Tensor x) -> Tensor")


@cache
def _entry(bit: int) -> KernelEntry:
    return KernelEntry(Kernel(), "", KEY_OF_BIT[bit])


def _with_fallbacks(semantics: Semantics, fallbacks: tuple[Fallback, ...]) -> Semantics:
    return replace(semantics, fallbacks=fallbacks)


def _small_scenario(
    kernels: Sequence[tuple[DispatchKey, int]], fallbacks: Sequence[Fallback]
) -> tuple[tuple[Registration, ...], tuple[int, ...]]:
    """A def, kernels and fallbacks, and the order that the kernels of one place keep."""
    registrations: list[Registration] = [Def(_SCHEMA)]
    order: list[int] = []
    for key, count in kernels:
        if count > 1:
            order += range(len(registrations), len(registrations) + count)
        registrations += [Impl(_NAME, key, Kernel(), f"{key} {number}") for number in range(count)]
    return (*registrations, *fallbacks), tuple(order)


def _newer_of(registrations: Sequence[Registration]) -> list[int]:
    """For each registration the kernels that came after it at its place, as a mask."""
    masks = []
    for at, one in enumerate(registrations):
        newer = 0
        for other in range(at + 1, len(registrations)):
            later = registrations[other]
            if isinstance(one, Impl) and isinstance(later, Impl) and one.key is later.key:
                newer |= 1 << other
        masks.append(newer)
    return masks


def _within(one: Neighbourhood, other: Neighbourhood) -> bool:
    return one.places & other.places == one.places


def _differing(one: Slots, other: Slots) -> int:
    bits = 0
    for cell in {**one, **other}:
        bits |= one.get(cell, 0) ^ other.get(cell, 0)
    return bits


def _strange_cells(space: LabSpace) -> Iterable[str]:
    for cell in space.touched() - space.shared_cells() - {str(_NAME)}:
        yield f"a registration touched {cell}, which is not its operator"


def _in_keys(word: Word, registrations: Sequence[Registration]) -> _KeyWord:
    steps = []
    for step in word:
        registration = registrations[~step if step < 0 else step]
        steps.append((registration.key if isinstance(registration, Impl) else None, step < 0))
    return tuple(steps)
