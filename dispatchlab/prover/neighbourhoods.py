"""Neighbourhoods: prove that order does not matter from small sets of the registrations of one operator.

They work on a `StateSpace` that declares the dependences of its variables (`Dependences`). docs/proof.md has the claim,
its ground and the checks; Note [Neighbourhoods of a variable] has the short form.
"""

# Note [Neighbourhoods of a variable]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The state consists of variables. The value of a variable is a function f of the groups of registrations that have a
# member in force. A registration has a role for the variable, and registrations of equal roles have the same effect. So
# the variable has no more states than those of a scenario with one registration of each role: its neighbourhood, which
# is explored as a separate scenario. Induction over the sequence: before a step the variable holds f; the effect of the
# step depends on its role and on the groups; both were in the neighbourhood, where the variable held f afterwards.
# The declarations of the engine are checked, not believed:
#   (function)  in every visited active set, the variable has the one value of these groups;
#   (roles)     every registration of a role has its turn in a neighbourhood, while the others stay the same;
#   (all)       every combination of roles was visited, so that f is known everywhere;
#   (outcome)   the declared deciders of a registration decide whether it is accepted;
#   (traces)    a refusal changes only the variables that the engine declares for it;
#   (declared)  no undeclared variable appears;
#   (near)      all sequences over the whole scenario are walked, up to the length that few edges allow;
#   (far)       long sequences over the whole scenario show the same: each registration alone, each after all others,
#               and random ones; invariants hold, and the observed result equals that of the direct way.
# If a check fails, nothing is concluded, and the whole scenario is walked.
#
# Note [Registrations that exclude each other]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registration that is never accepted keeps nothing alive. It comes first in its role only if all registrations of the
# role are never accepted. The chosen registrations of two roles may exclude each other, while others of these roles do
# not. So at the end, the prover looks for every combination of roles that can be in force. If the value of a variable
# is not known for a combination, registrations with these roles are explored, too.
#
# Note [Refusals that write]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# A refusal that leaves something behind is a step with a role. So the neighbourhood of a variable contains the
# registrations that may write it although they are refused, and with each of them all its deciders, direct or indirect:
# then it is refused in the neighbourhood whenever it is refused in the whole scenario. The trace may also be hidden,
# and only decide later refusals, as a signature that outlives its kernel. The registrations that write it decide about
# one another, so they are explored together, with another registration that keeps the operator alive.
#
# Note [Lists]
# ~~~~~~~~~~~~
# The kernels of one key are a list. The list is known if the contribution of each registration is known, and the order
# of every two. So the neighbourhoods of a list contain every two registrations, a few at a time.
#
# Note [Which registrations have their turn]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A lazy registration may change a group without a later write of the variable. So another registration of its role is
# beside it, and the state in which it comes second in its group is visited, too. A registration that is not lazy leaves
# f of the groups behind, for every state before. Of the registrations that keep an operator alive without touching the
# variable, one is enough: with it the variable outlives all others, and without it the variable goes with the last one.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, groupby, product
from typing import Any, Final, NamedTuple

from dispatchlab.errors import RegistrationError
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.names import OperatorName
from dispatchlab.model.sequence import renumbered
from dispatchlab.model.slot_set import set_bits
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.chains import Chains, ChainsWithin, count_edges, count_orders, keeping, later_masks
from dispatchlab.prover.checker import outcomes_agree
from dispatchlab.prover.graph_walk import explore_graph, too_long, too_many
from dispatchlab.prover.limits import Interrupted, Watch
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import Dependences, StateSpace
from dispatchlab.prover.result import Conflict, Counterexample, Exploration, NotReduced, Verdict
from dispatchlab.prover.run_sequence import compare_sequences, on_states
from dispatchlab.prover.states import ReachableStates

MOST_REGISTRATIONS: Final = 14
"""A report says when more registrations than these were explored together."""

NEAR_EDGES: Final = 5_000
"""So many edges of the whole are walked at most."""

_MOST_NEAR: Final = 4 * NEAR_EDGES
_MOST_NEIGHBOURHOODS: Final = 20_000  # of more, the first ones are explored, and nothing is proved
_FIRST: Final = 2_000
_DENSITIES: Final = (15, 50, 85)
_STEPS: Final = 120
_LOOK_EVERY: Final = 16
_TAKEN_AT_ONCE: Final = 2  # of a list; two times as many are in a neighbourhood
_SHORT_LIST: Final = 5
_MOST_ROLES: Final = 18  # of one variable, when some of them exclude others
_FEW: Final = 8
"""Up to so many registrations, every step of a sequence over everything is looked at."""


@dataclass(slots=True)
class Neighbourhood:
    """Registrations that are explored together.

    Args:
        members: the registrations, as bits.
        variables: the variables whose values the exploration must show.
    """

    members: int
    variables: list[Hashable] = field(default_factory=list)

    @property
    def indices(self) -> tuple[int, ...]:
        """The registrations, ascending."""
        return tuple(set_bits(self.members))


@dataclass(frozen=True, slots=True)
class Plan:
    """The neighbourhoods of a scenario.

    Args:
        neighbourhoods: the neighbourhoods to explore, smaller ones first.
        dependences: the dependences of each observed variable.
        declared: the dependences of every variable.
        deciders: for each registration, the registrations that decide whether it is accepted.
        conflicts: the registrations that decide about each other, directly or through others, as bits.
        able: the registrations that are accepted without other registrations, as bits.
        refused: for each variable, the registrations whose refusal may write it, and those that this needs, as bits.
        edges: an upper bound on the edges of the neighbourhoods.
        largest: the number of registrations in the largest neighbourhood.
    """

    neighbourhoods: tuple[Neighbourhood, ...]
    dependences: Mapping[Hashable, Dependence]
    declared: Mapping[Hashable, Dependence]
    deciders: tuple[int, ...]
    conflicts: tuple[int, ...]
    able: int
    refused: Mapping[Hashable, int]
    edges: int
    largest: int


def plan_of(
    space: StateSpace[Any], count: int, operators: Sequence[OperatorName], order: Chains, *, least: int
) -> Plan | None:
    """Return the neighbourhoods of `count` registrations; None if a whole walk is less work, unless `least` is 0.

    Raises:
        NotReduced: no neighbourhoods could prove anything.
    """
    whole = count_edges(count, order)
    if not isinstance(space, Dependences):
        raise NotReduced("the engine does not declare what its state depends on")
    declared = space.dependences()
    if isinstance(declared, str):
        raise NotReduced(declared)
    deciders = tuple(space.deciders())
    observed = frozenset(operators)
    shown = {
        variable: dependence
        for variable, dependence in declared.items()
        if not dependence.is_hidden and (dependence.operator is None or dependence.operator in observed)
    }
    able = _accepted_alone(space, deciders)
    conflicts = tuple(_components(deciders))
    hidden = [dependence for dependence in declared.values() if dependence.is_hidden]
    together_with = {together: _with_what_outlives(together, hidden, able) for together in conflicts}
    wanted: dict[int, Neighbourhood] = {}
    refused: dict[Hashable, int] = {}

    def want(members: int, *variables: Hashable) -> None:
        wanted.setdefault(members, Neighbourhood(members)).variables.extend(variables)

    for variable, dependence in shown.items():
        refused[variable] = _who_write_though_refused(dependence, together_with, able)
        for members in _neighbourhoods(dependence, able):
            want(members | refused[variable], variable)
    for together in together_with.values():
        want(together)
    for index in range(count):
        want(1 << index)
    chosen = _largest(wanted.values())
    sizes = [neighbourhood.members.bit_count() for neighbourhood in chosen]
    largest, edges = max(sizes), sum(map(count_edges, sizes))
    if least and edges >= whole:
        if largest > MOST_REGISTRATIONS:
            raise NotReduced(f"{largest} of the {count} registrations act on one another")
        return None
    return Plan(chosen, shown, declared, deciders, conflicts, able, refused, edges, largest)


def _accepted_alone(space: StateSpace[Any], deciders: Sequence[int]) -> int:
    """Return the registrations that are accepted without other registrations, as bits."""
    able = 0
    for index, mask in enumerate(deciders):
        if not mask or space.register(space.empty(), index)[1] is None:
            able |= 1 << index
    return able


def _neighbourhoods(dependence: Dependence, able: int) -> Iterator[int]:
    """Return one registration of each role, in turn. See Note [Which registrations have their turn]."""
    if dependence.is_list:
        return _pairs(sorted(dependence.roles))
    keeping = _keeping(dependence, able)
    return one_of_each_role(_able_first(dependence.roles, able), dependence.lazy, keeping & -keeping)


def one_of_each_role(roles: Mapping[int, Hashable], lazy_ones: int, besides: int = 0) -> Iterator[int]:
    """Return sets with one registration of each role (two of a lazy role), so that each registration is in some set.

    Args:
        roles: the roles of the registrations; the first registrations of all roles are in one set.
        lazy_ones: the lazy registrations, as bits.
        besides: the registrations in every set.
    """
    chosen, others = besides, []
    for members in _by_role(roles):
        lazy = lazy_ones >> members[0] & 1
        pair = members[:2] if lazy else members[:1]
        for index in pair:
            chosen |= 1 << index
        others += [(1 << members[0], 1 << index) for index in members[len(pair) :]]
    yield chosen
    yield from (chosen & ~first | other for first, other in others)


def _by_role(roles: Mapping[int, Hashable]) -> Iterable[list[int]]:
    by_role: dict[Hashable, list[int]] = {}
    for index, role in roles.items():
        by_role.setdefault(role, []).append(index)
    return by_role.values()


def _able_first(roles: Mapping[int, Hashable], able: int) -> Mapping[int, Hashable]:
    """Return the roles; registrations that are accepted alone come first."""
    return {index: roles[index] for index in sorted(roles, key=lambda index: (not able >> index & 1, index))}


def _keeping(dependence: Dependence, able: int) -> int:
    """Return the registrations that keep a variable alive without other effects on it, as bits."""
    return dependence.holders & able & ~sum(1 << index for index in dependence.roles)


def _pairs(members: Sequence[int]) -> Iterator[int]:
    """Return sets that contain every pair of members of a list. See Note [Lists]."""
    size = _TAKEN_AT_ONCE if len(members) > _SHORT_LIST else max(len(members), 1)
    some = [sum(1 << index for index in members[start : start + size]) for start in range(0, len(members), size)]
    if len(some) < 2:
        yield sum(some)
    yield from (first | second for first, second in combinations(some, 2))


def _with_what_outlives(together: int, hidden: Sequence[Dependence], able: int) -> int:
    """Return the registrations that decide about each other, and the keepers. See Note [Refusals that write]."""
    members = together
    for dependence in hidden:
        if any(together >> index & 1 for index in dependence.roles):
            outside = dependence.holders & ~together & able
            members |= outside & -outside
    return members


def _who_write_though_refused(dependence: Dependence, together_with: Mapping[int, int], able: int) -> int:
    """Return the registrations whose refusal may write, those that refuse them, and those that keep it alive."""
    writing = refusing = 0
    for together, more in together_with.items():
        if together & dependence.traces:
            writing |= more
            refusing |= together
    outside = dependence.holders & ~refusing & able if writing else 0
    return writing | outside & -outside


def _components(deciders: Sequence[int]) -> Iterator[int]:
    """Return groups of registrations that may decide about each other, directly or through others."""
    left = sum(1 << index for index, mask in enumerate(deciders) if mask)
    while left:
        together, grown = 0, left & -left
        while grown != together:
            together = grown
            for index in set_bits(together):
                grown |= deciders[index]
            for index, mask in enumerate(deciders):
                if mask & grown:
                    grown |= 1 << index
        left &= ~together
        yield together


def _largest(wanted: Iterable[Neighbourhood]) -> tuple[Neighbourhood, ...]:
    """Return the neighbourhoods that are not inside another one; the larger one gets the variables of the smaller."""
    kept: list[Neighbourhood] = []
    having: dict[int, list[Neighbourhood]] = {}  # a registration -> the larger ones that have it
    by_size = sorted(wanted, key=lambda item: (-item.members.bit_count(), item.members))
    for _, same in groupby(by_size, key=lambda item: item.members.bit_count()):
        fresh: list[Neighbourhood] = []
        for neighbourhood in same:
            first = (neighbourhood.members & -neighbourhood.members).bit_length() - 1
            some = having.get(first, ())
            outer = next((other for other in some if neighbourhood.members & ~other.members == 0), None)
            if outer is None:
                fresh.append(neighbourhood)
            else:
                outer.variables.extend(neighbourhood.variables)
        kept += fresh
        for neighbourhood in fresh:
            for index in neighbourhood.indices:
                having.setdefault(index, []).append(neighbourhood)
    return tuple(reversed(kept))


class _Found(NamedTuple):
    """A counterexample, and its neighbourhood."""

    example: Counterexample
    members: tuple[int, ...]


@dataclass
class NeighbourhoodProof:
    """An exploration of the neighbourhoods of a plan, which checks the assumptions of the plan.

    Args:
        space: the states.
        plan: the neighbourhoods.
        count: the number of registrations.
        operators: the observed operators.
        order: chains of registrations that are only registered in this order; releases are free.
        seed: the seed of the sequences over the whole scenario.
        watch: bounds and progress.
        max_length: ignore sequences longer than this.
        numbers: the numbers of the registrations in the result.
    """

    space: Any
    plan: Plan
    count: int
    operators: Sequence[OperatorName]
    order: Chains
    seed: int
    watch: Watch
    max_length: int | None
    numbers: Sequence[int]
    best: _Found | None = None
    strange: NotReduced | None = None  # nothing is proved; a counterexample is one all the same
    short: Exploration | None = None  # looked at up to a length, beyond which nothing is asked
    conflicts: dict[tuple[int, ...], Conflict] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.knowledge, self.chains = Knowledge(self.plan), ChainsWithin(self.order)
        orders, notes = count_orders(self.count, self.order), tuple[str, ...]()
        if self.plan.largest > MOST_REGISTRATIONS:
            notes = (
                f"{self.plan.largest} of the {self.count} registrations act on one another, and were explored together",
            )
        self.sum = Exploration(
            Verdict.ORDER_INDEPENDENT, "graph", self.count, 0, 0, 0, orders, notes=notes, neighbourhoods=0
        )

    def run(self) -> Exploration:
        """Walk the shortest sequences over the whole scenario, then explore all neighbourhoods.

        Raises:
            NotReduced: a declaration of the engine is wrong, and there is no counterexample.
            Interrupted: Ctrl-C; the error has the results so far.
        """
        try:
            return self._all()
        except Interrupted:
            raise
        except KeyboardInterrupt:  # between two walks
            ended = replace(self._result(), verdict=Verdict.INCOMPLETE, notes=("interrupted",))
            raise Interrupted(ended) from None

    def _all(self) -> Exploration:
        near = self._look_near()
        if near.verdict is not Verdict.INCOMPLETE or near.notes not in (
            (too_long(self._near),),
            (too_many(_MOST_NEAR),),
        ):
            return near
        is_near_known = near.notes == (too_long(self._near),)
        planned = self.plan.neighbourhoods
        is_whole = len(planned) <= _MOST_NEIGHBOURHOODS
        for neighbourhood in chain(planned if is_whole else planned[:_FIRST], self._more() if is_whole else ()):
            if self.best is not None and is_near_known and (self._shorter() or 0) <= self._near:
                break  # all shorter sequences over everything were walked
            try:
                result = self._explore(neighbourhood, self._operators_of(neighbourhood), self._shorter())
            except Interrupted as stopped:
                self._count(stopped.exploration)
                ended = replace(self._result(), verdict=Verdict.INCOMPLETE, notes=stopped.exploration.notes)
                raise Interrupted(ended) from None
            self._count(result)
            self.watch.settle(result)
            if result.counterexample is not None and result.verdict is Verdict.ORDER_DEPENDENT:
                self.best = _Found(result.counterexample, neighbourhood.indices)
            elif result.verdict is Verdict.ORDER_INDEPENDENT:
                for conflict in result.conflicts:
                    self.conflicts.setdefault(conflict.members, conflict)
                self.accepted.update(
                    {self.numbers[index] for index in neighbourhood.indices} - {*result.never_accepted}
                )
                if self.best is None and self.strange is None:
                    self.strange = self._trouble_with(neighbourhood)
            elif result.verdict is not Verdict.INCOMPLETE or self._shorter() is None:
                return self._stopped(result)
            else:
                self.short = result
        if self.short is not None and self.best is None:
            return self._stopped(self.short)
        if self.best is not None:
            return replace(
                self._result(), verdict=Verdict.ORDER_DEPENDENT, counterexample=self._of_the_whole(self.best)
            )
        if self.strange is not None:
            raise self.strange
        if not is_whole:
            left = f"stopped after {_FIRST:,} of {len(planned):,} neighbourhoods, which showed no difference"
            return replace(self._result(), verdict=Verdict.INCOMPLETE, never_accepted=(), notes=(left,))
        self._look_far()
        reason = self.watch.stop(0, 0, 0)
        return (
            self._result() if reason is None else replace(self._result(), verdict=Verdict.INCOMPLETE, notes=(reason,))
        )

    def _more(self) -> Iterator[Neighbourhood]:
        """Return further neighbourhoods: registrations in force together that exclude each other in the plan."""
        for variable, mask in self.knowledge.missing() if self._is_well else ():
            yield Neighbourhood(mask | self.plan.refused[variable], [variable])
            if not self._is_well:
                return

    @property
    def _is_well(self) -> bool:
        """True if nothing has ended the proof yet."""
        return self.best is None and self.strange is None and self.short is None

    def _stopped(self, result: Exploration) -> Exploration:
        return replace(self._result(), verdict=result.verdict, counterexample=result.counterexample, notes=result.notes)

    def _explore(
        self, neighbourhood: Neighbourhood, operators: Sequence[OperatorName], longest: int | None
    ) -> Exploration:
        indices = neighbourhood.indices
        part = self.space.restricted(indices, operators)
        numbers = [self.numbers[index] for index in indices]
        return explore_graph(
            part, len(indices), order=self._local(indices), watch=self.watch, max_length=longest, numbers=numbers
        )

    def _local(self, indices: Sequence[int]) -> Chains:
        return self.chains.among(indices)

    def _operators_of(self, neighbourhood: Neighbourhood) -> Sequence[OperatorName]:
        shown = {self.plan.dependences[variable].operator for variable in neighbourhood.variables}
        if None in shown or not shown:
            return self.operators
        return [name for name in self.operators if name in shown]

    def _shorter(self) -> int | None:
        if self.best is None:
            return self.max_length
        example = self.best.example
        return max(len(example.expected_sequence), len(example.actual_sequence)) - 1

    def _count(self, result: Exploration) -> None:
        total = self.sum
        self.sum = replace(
            total,
            sets=total.sets + result.sets,
            states=total.states + result.states,
            edges=total.edges + result.edges,
            neighbourhoods=total.neighbourhoods + 1,
        )

    def _result(self) -> Exploration:
        conflicts = sorted(self.conflicts.values(), key=lambda conflict: (len(conflict.members), conflict.members))
        return replace(
            self.sum,
            conflicts=() if self.best else tuple(conflicts),
            never_accepted=() if self.best else tuple(number for number in self.numbers if number not in self.accepted),
            elapsed_s=self.watch.elapsed_s,
        )

    # --- what the engine declares, held against what it does

    def _look_near(self) -> Exploration:
        """Walk all sequences up to a length."""
        found = explore_graph(
            self.space,
            self.count,
            order=self.order,
            watch=self.watch,
            max_length=self._near,
            max_edges=_MOST_NEAR,  # a set may have many states
            numbers=self.numbers,
        )
        self.watch.settle(found)
        self.sum = replace(self.sum, sets=found.sets, states=found.states, edges=found.edges)
        return found

    @property
    def _near(self) -> int:
        length, sets, edges = 0, 1, 0
        while edges + sets * self.count <= NEAR_EDGES and length < self.count:
            edges += sets * self.count
            sets = sets * (self.count - length) // (length + 1)
            length += 1
        return length if self.max_length is None else min(length, self.max_length)

    def _trouble_with(self, one: Neighbourhood) -> NotReduced | None:
        try:
            self._visit(one)
        except NotReduced as why:
            return why
        return None

    def _visit(self, one: Neighbourhood) -> None:
        """Visit every state of a neighbourhood, and read its variables there."""
        knowledge, indices = self.knowledge, one.indices
        part = self.space.restricted(indices, self.operators)
        found = ReachableStates(part, range(len(indices)), self._local(indices))
        for edge in found.edges():
            if edge.step < 0:
                continue
            knowledge.outcome(_whole(indices, found.masks[edge.source]), indices[edge.step], edge.refusal)
            if edge.refusal is not None:
                knowledge.refused(indices[edge.step], part, found.states[edge.source], found.states[edge.target])
        masks = [_whole(indices, mask) for mask in found.masks]
        for mask, state in zip(masks, found.states, strict=True):
            knowledge.look(mask, part.values(state), one.variables)
        knowledge.visited(one.members, {*masks})

    def _look_far(self) -> None:
        """Run sequences over the whole scenario. See Note [Neighbourhoods of a variable]."""
        self.knowledge.check_all_visited()
        random, every = SplitMix64(self.seed), 1 if self.count <= _FEW else _LOOK_EVERY
        alone = [index for member in range(self.count) for index in (member, member)]
        last = [*self._in_order((1 << self.count) - 1), *alone]  # those that were refused are tried again
        for steps in (alone, last, *(self._random(random, density) for density in _DENSITIES)):
            far = _Far(self)
            for count, step in enumerate(steps):
                if self.watch.is_over():
                    return
                far.take(step)
                if count % every == 0:
                    self.knowledge.observed(far.mask, self.space.observe(far.state), self.space.violations(far.state))
            if not self._looks_as_direct(far.state, far.mask):
                raise NotReduced("what is observed depends on more than the neighbourhoods show")

    def _random(self, random: SplitMix64, density: int) -> Iterator[int]:
        for _ in range(max(_STEPS, 2 * self.count)):
            index, wanted = random.below(self.count), random.chance(density)
            yield index if wanted else ~index

    def _in_order(self, mask: int) -> Iterator[int]:
        """Return the registrations in an allowed order."""
        chained = sum(1 << index for index in {index for chain in self.order for index in chain})
        yield from keeping([*set_bits(mask & ~chained), *set_bits(mask & chained)], self.order)

    def _looks_as_direct(self, state: Any, mask: int) -> bool:
        direct, done = self.space.empty(), 0
        for index in self._in_order(mask):
            direct, refusal = self.space.register(direct, index)
            self.knowledge.outcome(done, index, refusal)
            if refusal is not None:
                return False
            done |= 1 << index
        look = self.space.observe(state), self.space.violations(state)
        return look == (self.space.observe(direct), ())

    # --- counterexamples

    def _of_the_whole(self, found: _Found) -> Counterexample:
        """Return the counterexample with all observations, after a run on the whole scenario."""
        neighbourhood = Neighbourhood(sum(1 << index for index in found.members))
        longest = max(len(found.example.expected_sequence), len(found.example.actual_sequence))
        again = self._explore(neighbourhood, self.operators, longest + 1).counterexample
        if again is None:
            raise NotReduced("a counterexample of a neighbourhood does not show when everything is observed")
        place = {number: local for local, number in enumerate(self.numbers)}
        sequences = [renumbered(sequence, place) for sequence in (again.expected_sequence, again.actual_sequence)]
        if compare_sequences(on_states(self.space), sequences[0], sequences[1]) is None:
            raise NotReduced("a counterexample of a neighbourhood does not show in the whole scenario")
        return again


class _Far:
    """A sequence over the whole scenario; each step is compared with the declarations."""

    def __init__(self, proof: NeighbourhoodProof) -> None:
        self._space = proof.space
        self._knowledge = proof.knowledge
        self._later = later_masks(proof.count, proof.order)
        self.state, self.mask = proof.space.empty(), 0
        self._values = proof.space.values(self.state)

    def take(self, step: int) -> None:
        """Register, or release an active registration; do nothing if this is impossible."""
        index = ~step if step < 0 else step
        if self.mask >> index & 1:
            try:
                self.state = self._space.release(self.state, index)
            except RegistrationError:
                raise NotReduced("a release fails that succeeds in every neighbourhood") from None
            self.mask &= ~(1 << index)
        elif step < 0 or self._later[index] & self.mask:
            return
        else:
            after, refusal = self._space.register(self.state, index)
            self._knowledge.outcome(self.mask, index, refusal)
            if refusal is not None:
                self._knowledge.refused(index, self._space, self.state, after)
            self.state = after
            self.mask |= 0 if refusal else 1 << index
        before, self._values = self._values, self._space.values(self.state)
        self._knowledge.look_after(index, self.mask, before, self._values)


class Knowledge:
    """The observed values and outcomes; a contradiction to the declarations ends the proof."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._whole: list[int] = []  # neighbourhoods all of whose sets were reached; refusals hide some of the others
        self._reached: dict[int, AbstractSet[int]] = {}  # registrations that decide about one another -> their sets
        self._values: dict[tuple[Hashable, int], Hashable] = {}
        self._looks: dict[int, object] = {}
        self._outcomes: dict[tuple[int, int], Refusal | None] = {}
        self._groups: dict[Hashable, tuple[int, ...]] = {}
        self._lists: dict[Hashable, ListKnowledge] = {}
        self._steps: dict[int, frozenset[Hashable]] = {}
        for variable, dependence in plan.dependences.items():
            holders = (dependence.holders,) if dependence.holders else ()
            self._groups[variable] = (*dependence.groups, *holders)
            if dependence.is_list:
                self._lists[variable] = ListKnowledge(sum(1 << index for index in dependence.roles))

    def look(self, mask: int, values: Mapping[Hashable, Hashable], variables: Iterable[Hashable]) -> None:
        """Compare the values of some variables in an active set with their values for the same groups elsewhere."""
        self._check_declared(values)
        for variable in variables:
            self._compare(variable, mask, values.get(variable))

    def look_after(
        self, index: int, mask: int, before: Mapping[Hashable, Hashable], values: Mapping[Hashable, Hashable]
    ) -> None:
        """Compare the variables that a step of `index` may have changed, and its outcome."""
        self._check_declared(values)
        expected = self._of_step(index)
        changed = {variable for variable, _ in values.items() ^ before.items()}
        for variable in expected | changed:
            if variable in self._groups:
                self._compare(variable, mask, values.get(variable))
        self._check_hidden(index, changed)

    def _of_step(self, index: int) -> AbstractSet[Hashable]:
        """Return the variables that have a registration in one of their groups."""
        known = self._steps.get(index)
        if known is None:
            known = self._steps[index] = frozenset(
                variable for variable, groups in self._groups.items() if any(group >> index & 1 for group in groups)
            )
        return known

    def outcome(self, mask: int, index: int, refusal: Refusal | None) -> None:
        """Compare the outcome of a registration with its outcome elsewhere under the same deciders."""
        deciders = self.plan.deciders[index]
        known = self._outcomes.setdefault((index, mask & deciders), refusal if deciders else None)
        if not outcomes_agree(known, refusal, same_step=True):
            raise NotReduced("whether a registration is accepted depends on more than the engine declares")

    def refused(self, index: int, space: Any, before: object, after: object) -> None:
        """Check that the refusal of `index` changed nothing, except what its declaration allows."""
        if before is after or before == after:
            return
        changed = {variable for variable, _ in space.values(before).items() ^ space.values(after).items()}
        declared = self.plan.declared
        if not changed or not all(name in declared and declared[name].traces >> index & 1 for name in changed):
            raise NotReduced("a refusal leaves something behind that the engine did not declare")

    def observed(self, mask: int, look: object, violations: object) -> None:
        """Compare the observations in an active set with earlier ones there."""
        if violations:
            raise NotReduced("an invariant does not hold that held in every neighbourhood")
        if self._looks.setdefault(mask, look) != look:
            raise NotReduced("what is observed depends on more than the neighbourhoods show")

    def visited(self, members: int, sets: AbstractSet[int]) -> None:
        """Note the reached active sets of a neighbourhood."""
        if len(sets) == 1 << members.bit_count():
            self._whole.append(members)
            return
        for together in self.plan.conflicts:
            if together & ~members == 0:
                self._reached[together] = {mask for mask in sets if mask & ~together == 0}

    def missing(self) -> Iterator[tuple[Hashable, int]]:
        """Return the variables without a known value for a reachable combination of groups, with this combination."""
        for variable, dependence in self.plan.dependences.items():
            for members in _neighbourhoods(dependence, self.plan.able):
                if all(members & ~whole for whole in self._whole):
                    break
            else:
                continue
            for mask in self._reachable(variable, dependence):
                if not self._is_known(variable, mask):
                    yield variable, mask

    def check_all_visited(self) -> None:
        """Check that the value of each variable is known for every reachable combination of its groups."""
        for variable, _ in self.missing():
            raise NotReduced(f"not every combination could be reached of what decides about {variable}")

    def _reachable(self, variable: Hashable, dependence: Dependence) -> Iterator[int]:
        """Return, for each combination of roles, registrations that are not refused; the largest first."""
        if dependence.is_list:
            for pair in combinations(sorted(dependence.roles), 2):
                mask = 1 << pair[0] | 1 << pair[1]
                if all(mask & together in sets for together, sets in self._reached.items()):
                    yield mask
            return
        able = self.plan.able
        keeping = [*set_bits(_keeping(dependence, able))]
        roles = [*_by_role(_able_first(dependence.roles, able)), *([keeping] if keeping else [])]
        role_of = {index: at for at, members in enumerate(roles) for index in members}
        free, choices = 0, []
        decided = 0
        for together, sets in self._reached.items():
            decided |= together
            by_roles: dict[frozenset[int], int] = {}
            for mask in sorted(sets, key=int.bit_count):
                some = [role_of.get(index) for index in set_bits(mask)]
                if None not in some and len({*some}) == len(some):
                    by_roles.setdefault(frozenset(one for one in some if one is not None), mask)
            if len(by_roles) > 1:
                choices.append([*reversed(by_roles.values())])
        for members in roles:
            anyone = next((index for index in members if not decided >> index & 1), None)
            free |= 0 if anyone is None else 1 << anyone
        if free.bit_count() + sum(len(one).bit_length() for one in choices) > _MOST_ROLES:
            raise NotReduced(f"too many combinations decide about {variable}")
        for some_masks in product(*choices, _subsets(free)):
            mask = 0
            for each in some_masks:
                mask |= each
            yield mask

    def _is_known(self, variable: Hashable, mask: int) -> bool:
        known = self._lists.get(variable)
        if known is not None:
            return known.is_known(mask)
        return (variable, combination(self._groups[variable], mask)) in self._values

    def _compare(self, variable: Hashable, mask: int, value: Hashable) -> None:
        """Check that a variable has the value that belongs to an active set."""
        known = self._lists.get(variable)
        if known is not None:
            is_known = known.agrees(mask, value)
        else:
            is_known = self._values.setdefault((variable, combination(self._groups[variable], mask)), value) == value
        if not is_known:
            raise NotReduced(f"{variable} depends on more than the engine declares")

    def _check_declared(self, values: Mapping[Hashable, Hashable]) -> None:
        for variable in values.keys() - self.plan.declared.keys():
            raise NotReduced(f"the engine did not declare {variable}")

    def _check_hidden(self, index: int, changed: AbstractSet[Hashable]) -> None:
        """Check that a step of `index` may write the hidden variables that it has changed."""
        for variable in changed:
            dependence = self.plan.declared.get(variable)
            if dependence is None or not dependence.is_hidden:
                continue
            if index not in dependence.roles and not dependence.holders >> index & 1:
                raise NotReduced(f"{variable} is written by more than the engine declares")


class ListKnowledge:
    """The knowledge about a list: the entries of each registration, and the order of every two. See Note [Lists].

    Args:
        members: the registrations with entries, as bits.
    """

    def __init__(self, members: int) -> None:
        self.members = members
        self._brings: dict[int, tuple[Hashable, ...]] = {}  # registration -> what it puts there
        self._who: dict[Hashable, int] = {}  # the first of this -> registration
        self._behind: dict[int, int] = {}  # registration -> who was seen behind it, as bits
        self._before: dict[int, int] = {}

    def agrees(self, mask: int, value: Hashable) -> bool:
        """Return whether a value agrees with the known value for an active set; an unknown value becomes known."""
        entries = () if value is None else value
        mask &= self.members
        if not isinstance(entries, tuple):
            return False
        if mask & (mask - 1) == 0 and mask:
            index = mask.bit_length() - 1
            if entries and self._who.setdefault(entries[0], index) != index:
                return False
            return bool(entries) and self._brings.setdefault(index, entries) == entries
        order = self._read(entries)
        if order is None or sum(1 << index for index in order) != mask:
            return False
        behind = 0
        for index in reversed(order):
            if behind & self._before.get(index, 0):
                return False
            for other in set_bits(behind & ~self._behind.get(index, 0)):
                self._before[other] = self._before.get(other, 0) | 1 << index
            self._behind[index] = self._behind.get(index, 0) | behind
            behind |= 1 << index
        return True

    def is_known(self, mask: int) -> bool:
        """Return whether the list is known in an active set."""
        mask &= self.members
        return all(
            index in self._brings
            and mask & ~(self._behind.get(index, 0) | self._before.get(index, 0) | 1 << index) == 0
            for index in set_bits(mask)
        )

    def _read(self, value: tuple[Hashable, ...]) -> list[int] | None:
        """Return the registrations in a list, in its order; None if the list has other entries."""
        order, place = [], 0
        while place < len(value):
            index = self._who.get(value[place])
            if index is None or index in order:
                return None
            brought = self._brings[index]
            if value[place : place + len(brought)] != brought:
                return None
            order.append(index)
            place += len(brought)
        return order


def combination(groups: Sequence[int], mask: int) -> int:
    """Return the groups with a member in force, as bits."""
    combined = 0
    for place, group in enumerate(groups):
        if mask & group:
            combined |= 1 << place
    return combined


def _subsets(mask: int) -> Iterator[int]:
    subset = mask
    while True:
        yield subset
        if not subset:
            return
        subset = subset - 1 & mask


def _whole(indices: Sequence[int], mask: int) -> int:
    """Return an active set of a neighbourhood in the numbers of the whole scenario."""
    return sum(1 << indices[local] for local in set_bits(mask))
