"""Neighbourhoods: prove that order does not matter from small parts of the registrations that meet at one operator.

Works on a `StateSpace` that declares what its variables depend on (`Dependences`). The claim, its ground and what is
checked are in docs/proof.md; Note [Neighbourhoods of a variable] has the short form.
"""

# Note [Neighbourhoods of a variable]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The state falls into variables. The value of a variable is a function f of which groups of registrations have a member
# in force; a registration has a role at it, and equal roles do the same to it. Then the variable, seen by itself, has
# no more states than those of a scenario with one registration of each role: its neighbourhood, which is explored as
# a scenario of its own. Induction over the sequence: before a step the variable holds f; what the step does there
# depends on its role and on the groups, and both are there in the neighbourhood, where the variable held f afterwards.
# What the engine declares is checked, not believed:
#   (function)  in every active set that is visited, the variable has the one value of these groups;
#   (roles)     every registration of a role has its turn in a neighbourhood, with all others as they are;
#   (all)       every combination of roles was visited, so that f is known everywhere;
#   (outcome)   whether a registration is accepted follows from those that were declared to decide about it;
#   (traces)    a refusal leaves the state as it was, unless the engine declares otherwise;
#   (declared)  no variable shows up that was not declared;
#   (near)      all sequences over everything are walked, up to the length that few edges allow;
#   (far)       sequences over everything show the same: each registration alone, each after all others, and random
#               ones; invariants hold there, and what is observed in the end equals what the direct way there shows.
# Wherever a check fails, nothing is concluded: everything is walked as one.
#
# Note [Which registrations have their turn]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registration that is lazy, so that a group may change without the variable being written, has another of its role
# beside it: then coming second in a group is visited, too. One that is not lazy leaves f of the groups behind whatever
# was there before. What keeps an operator alive without touching the variable needs one registration: with it the
# variable outlives all others, and without it goes with the last of them.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from dispatchlab.errors import RegistrationError
from dispatchlab.explore.checker import outcomes_agree
from dispatchlab.explore.compare_sequences import compare_sequences
from dispatchlab.explore.graph_walk import explore_graph, too_long
from dispatchlab.explore.limits import Interrupted, Watch, count_edges, count_orders, later_masks
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.protocol import Dependences, StateSpace
from dispatchlab.explore.result import Conflict, Counterexample, Exploration, Verdict
from dispatchlab.explore.run_sequence import on_states
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.names import OperatorName
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal

MOST_REGISTRATIONS: Final = 14
"""A neighbourhood of more registrations is not explored."""

LEAST_EDGES: Final = 12_000
"""A state graph of fewer edges is walked as it is."""

NEAR_EDGES: Final = 5_000
"""So many edges of the whole are walked at most."""

_DENSITIES: Final = (15, 50, 85)
_STEPS: Final = 120
_LOOK_EVERY: Final = 16
_FEW: Final = 8
"""Up to so many registrations, every step of a sequence over everything is looked at."""


class NotReduced(Exception):
    """Neighbourhoods prove nothing here; the argument is why, a sentence."""


@dataclass(slots=True)
class Neighbourhood:
    """Registrations that are explored together.

    Args:
        members: the registrations, as bits.
        variables: what is to be known of them afterwards.
    """

    members: int
    variables: list[Hashable] = field(default_factory=list)

    @property
    def indices(self) -> tuple[int, ...]:
        """The registrations, ascending."""
        return tuple(members_of(self.members))


@dataclass(frozen=True, slots=True)
class Plan:
    """The neighbourhoods of a scenario.

    Args:
        neighbourhoods: what to explore, smaller ones first.
        dependences: what each variable depends on.
        declared: every variable that the engine declares, also of what is not observed.
        deciders: for each registration those that decide whether it is accepted.
        conflicts: the registrations that decide about one another, directly or through others, as bits.
        edges: how many edges the neighbourhoods have.
    """

    neighbourhoods: tuple[Neighbourhood, ...]
    dependences: Mapping[Hashable, Dependence]
    declared: frozenset[Hashable]
    deciders: tuple[int, ...]
    conflicts: tuple[int, ...]
    edges: int


def plan_of(
    space: StateSpace[Any], count: int, operators: Sequence[OperatorName], order: Sequence[int], *, least: int
) -> Plan | None:
    """The neighbourhoods of `count` registrations; None when walking everything is less work, unless `least` is 0.

    Raises:
        NotReduced: there are none by which anything could be proved.
    """
    whole = count_edges(count, order)
    if whole < least:
        return None
    if not isinstance(space, Dependences):
        raise NotReduced("the engine does not declare what its state depends on")
    declared = space.dependences()
    if isinstance(declared, str):
        raise NotReduced(declared)
    deciders = tuple(space.deciders())
    if any(deciders) and space.leaves_traces():
        raise NotReduced("a registration may be refused, and a refusal may leave something behind")
    observed = frozenset(operators)
    shown = {variable: one for variable, one in declared.items() if one.operator is None or one.operator in observed}
    wanted: dict[int, Neighbourhood] = {}

    def want(members: int, *variables: Hashable) -> None:
        wanted.setdefault(members, Neighbourhood(members)).variables.extend(variables)

    for variable, dependence in shown.items():
        for members in _neighbourhoods(dependence):
            want(members, variable)
    conflicts = tuple(_components(deciders))
    for together in conflicts:
        want(together)
    for index in range(count):
        want(1 << index)
    largest = _largest(wanted.values())
    for one in largest:
        size = one.members.bit_count()
        if size > MOST_REGISTRATIONS:
            raise NotReduced(
                f"{size} registrations act on one another, and more than {MOST_REGISTRATIONS} are not taken together"
            )
    edges = sum(count_edges(one.members.bit_count()) for one in largest)
    if least and edges >= whole:
        return None
    return Plan(largest, shown, frozenset(declared), deciders, conflicts, edges)


def members_of(mask: int) -> Iterator[int]:
    """The registrations of a mask, ascending."""
    while mask:
        bit = mask & -mask
        mask ^= bit
        yield bit.bit_length() - 1


def _neighbourhoods(dependence: Dependence) -> Iterator[int]:
    """One registration of each role, so that each has its turn. See Note [Which registrations have their turn]."""
    touching = 0
    for index in dependence.roles:
        touching |= 1 << index
    keeping = dependence.holders & ~touching
    return one_of_each_role(dependence.roles, dependence.lazy, keeping & -keeping)


def one_of_each_role(roles: Mapping[int, Hashable], lazy_ones: int, besides: int = 0) -> Iterator[int]:
    """Sets with one registration of each role, two of a lazy one, so that each registration has its turn.

    Args:
        roles: of the registrations.
        lazy_ones: those of them that are lazy, as bits.
        besides: is in every set.
    """
    by_role: dict[Hashable, list[int]] = {}
    for index, role in roles.items():
        by_role.setdefault(role, []).append(index)
    chosen, others = besides, []
    for members in by_role.values():
        lazy = lazy_ones >> members[0] & 1
        pair = members[:2] if lazy else members[:1]
        for index in pair:
            chosen |= 1 << index
        others += [(1 << members[0], 1 << index) for index in members[len(pair) :]]
    yield chosen
    for first, other in others:
        yield chosen & ~first | other


def _components(deciders: Sequence[int]) -> Iterator[int]:
    """Registrations that may decide about one another, directly or through others."""
    left = sum(1 << index for index, mask in enumerate(deciders) if mask)
    while left:
        together, grown = 0, left & -left
        while grown != together:
            together = grown
            for index in members_of(together):
                grown |= deciders[index]
            for index, mask in enumerate(deciders):
                if mask & grown:
                    grown |= 1 << index
        left &= ~together
        yield together


def _largest(wanted: Iterable[Neighbourhood]) -> tuple[Neighbourhood, ...]:
    """Without those that are inside of another, which takes over their variables."""
    kept: list[Neighbourhood] = []
    for one in sorted(wanted, key=lambda each: (-each.members.bit_count(), each.members)):
        outer = next((other for other in kept if one.members & ~other.members == 0), None)
        if outer is None:
            kept.append(one)
        else:
            outer.variables.extend(one.variables)
    return tuple(reversed(kept))


def explore_neighbourhoods(
    space: StateSpace[Any],
    plan: Plan,
    count: int,
    operators: Sequence[OperatorName],
    *,
    order: Sequence[int] = (),
    seed: int = 0,
    watch: Watch,
    max_length: int | None = None,
    numbers: Sequence[int],
) -> Exploration:
    """Explore the neighbourhoods of a plan, and check what it stands on.

    Args:
        space: the states.
        plan: the neighbourhoods.
        count: how many registrations there are.
        operators: what is observed.
        order: registrations that are registered in this order only; releases are free.
        seed: of the sequences over everything.
        watch: bounds and progress; the neighbourhoods are settled with it.
        max_length: do not look at sequences longer than this.
        numbers: what the registrations are called in the result.

    Returns:
        As `explore_graph` does, with sums over the neighbourhoods.

    Raises:
        NotReduced: what the engine declares is not so, and nothing was found.
        Interrupted: by Ctrl-C, with what was covered.
    """
    assert isinstance(space, Dependences)
    return _Proof(space, plan, count, operators, order, seed, watch, max_length, numbers).run()


class _Found(NamedTuple):
    """A counterexample, and the neighbourhood that it is of."""

    example: Counterexample
    members: tuple[int, ...]


class _Proof:
    def __init__(
        self,
        space: Any,
        plan: Plan,
        count: int,
        operators: Sequence[OperatorName],
        order: Sequence[int],
        seed: int,
        watch: Watch,
        max_length: int | None,
        numbers: Sequence[int],
    ) -> None:
        self.space = space
        self.plan = plan
        self.count = count
        self.operators = operators
        self.order = order
        self.seed = seed
        self.watch = watch
        self.max_length = max_length
        self.numbers = numbers
        self.knowledge = Knowledge(plan)
        self.best: _Found | None = None
        self.conflicts: dict[tuple[int, ...], Conflict] = {}
        self.accepted: set[int] = set()
        self.sum = Exploration(
            Verdict.ORDER_INDEPENDENT, "graph", count, 0, 0, 0, count_orders(count, order), neighbourhoods=0
        )

    def run(self) -> Exploration:
        """Walk the shortest sequences over everything, then explore all neighbourhoods."""
        try:
            return self._all()
        except Interrupted:
            raise
        except KeyboardInterrupt:  # between two walks
            ended = replace(self._result(), verdict=Verdict.INCOMPLETE, notes=("interrupted",))
            raise Interrupted(ended) from None

    def _all(self) -> Exploration:
        near = self._look_near()
        if near.verdict is not Verdict.INCOMPLETE or near.notes != (too_long(self._near),):
            return near
        short: Exploration | None = None
        strange: NotReduced | None = None  # nothing is proved; a counterexample is one all the same
        for one in self.plan.neighbourhoods:
            try:
                found = self._explore(one, self._operators_of(one), self._shorter())
            except Interrupted as stopped:
                self._count(stopped.exploration)
                ended = replace(self._result(), verdict=Verdict.INCOMPLETE, notes=stopped.exploration.notes)
                raise Interrupted(ended) from None
            self._count(found)
            self.watch.settle(found)
            if found.counterexample is not None and found.verdict is Verdict.ORDER_DEPENDENT:
                self.best = _Found(found.counterexample, one.indices)
            elif found.verdict is Verdict.ORDER_INDEPENDENT:
                for conflict in found.conflicts:
                    self.conflicts.setdefault(conflict.members, conflict)
                self.accepted.update({self.numbers[index] for index in one.indices} - {*found.never_accepted})
                if self.best is None and strange is None:
                    strange = self._trouble_with(one)
            elif found.verdict is not Verdict.INCOMPLETE or self._shorter() is None:
                return self._stopped(found)
            else:
                short = found  # looked at up to a length, beyond which nothing is asked
        if short is not None and self.best is None:
            return self._stopped(short)
        if self.best is not None:
            return replace(
                self._result(), verdict=Verdict.ORDER_DEPENDENT, counterexample=self._of_the_whole(self.best)
            )
        if strange is not None:
            raise strange
        self._look_far()
        reason = self.watch.stop(0, 0, 0)
        return (
            self._result() if reason is None else replace(self._result(), verdict=Verdict.INCOMPLETE, notes=(reason,))
        )

    def _stopped(self, found: Exploration) -> Exploration:
        return replace(self._result(), verdict=found.verdict, counterexample=found.counterexample, notes=found.notes)

    def _explore(self, one: Neighbourhood, operators: Sequence[OperatorName], longest: int | None) -> Exploration:
        indices = one.indices
        part = self.space.restricted(indices, operators)
        numbers = [self.numbers[index] for index in indices]
        return explore_graph(
            part, len(indices), order=self._local(indices), watch=self.watch, max_length=longest, numbers=numbers
        )

    def _local(self, indices: Sequence[int]) -> tuple[int, ...]:
        place = {index: at for at, index in enumerate(indices)}
        return tuple(place[index] for index in self.order if index in place)

    def _operators_of(self, one: Neighbourhood) -> Sequence[OperatorName]:
        shown = {self.plan.dependences[variable].operator for variable in one.variables}
        if None in shown or not shown:
            return self.operators
        return [name for name in self.operators if name in shown]

    def _shorter(self) -> int | None:
        if self.best is None:
            return self.max_length
        example = self.best.example
        return max(len(example.expected_sequence), len(example.actual_sequence)) - 1

    def _count(self, found: Exploration) -> None:
        total = self.sum
        self.sum = replace(
            total,
            sets=total.sets + found.sets,
            states=total.states + found.states,
            edges=total.edges + found.edges,
            neighbourhoods=total.neighbourhoods + 1,
        )

    def _result(self) -> Exploration:
        conflicts = sorted(self.conflicts.values(), key=lambda one: (len(one.members), one.members))
        return replace(
            self.sum,
            conflicts=() if self.best else tuple(conflicts),
            never_accepted=() if self.best else tuple(one for one in self.numbers if one not in self.accepted),
            elapsed_s=self.watch.elapsed_s,
        )

    # --- what the engine declares, held against what it does

    def _look_near(self) -> Exploration:
        """Walk all sequences up to a length."""
        found = explore_graph(
            self.space, self.count, order=self.order, watch=self.watch, max_length=self._near, numbers=self.numbers
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
        """Go to every active set of a neighbourhood and look at its variables there."""
        indices = one.indices
        part = self.space.restricted(indices, self.operators)
        visited = set()
        for mask, state in _sets(part, indices, self._local(indices), self.knowledge):
            visited.add(mask)
            self.knowledge.look(mask, part.values(state), one.variables)
        self.knowledge.visited(one.members, visited)

    def _look_far(self) -> None:
        """Run sequences over everything. See Note [Neighbourhoods of a variable]."""
        self.knowledge.check_all_visited()
        random, every = SplitMix64(self.seed), 1 if self.count <= _FEW else _LOOK_EVERY
        for steps in (self._alone(), self._last(), *(self._random(random, density) for density in _DENSITIES)):
            far = _Far(self)
            for at, step in enumerate(steps):
                if self.watch.is_over():
                    return
                far.take(step)
                if at % every == 0:
                    self.knowledge.observed(far.mask, self.space.observe(far.state), self.space.violations(far.state))
            if not self._looks_as_direct(far.state, far.mask):
                raise NotReduced("what is observed depends on more than the neighbourhoods show")

    def _alone(self) -> Iterator[int]:
        """Each registration by itself."""
        for index in range(self.count):
            yield from (index, index)

    def _last(self) -> Iterator[int]:
        """Each registration after all others; what was refused is tried again."""
        yield from self._in_order((1 << self.count) - 1)
        for index in range(self.count):
            yield from (index, index)

    def _random(self, random: SplitMix64, density: int) -> Iterator[int]:
        for _ in range(max(_STEPS, 2 * self.count)):
            index, wanted = random.below(self.count), random.chance(density)
            yield index if wanted else ~index

    def _in_order(self, mask: int) -> Iterator[int]:
        """Registrations in an order that may be."""
        ordered = [index for index in self.order if mask >> index & 1]
        yield from (index for index in members_of(mask) if index not in ordered)
        yield from ordered

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
        """The counterexample with all that is observed, after it has shown on the whole."""
        one = Neighbourhood(sum(1 << index for index in found.members))
        longest = max(len(found.example.expected_sequence), len(found.example.actual_sequence))
        again = self._explore(one, self.operators, longest + 1).counterexample
        if again is None:
            raise NotReduced("a counterexample of a neighbourhood does not show when everything is observed")
        place = {number: at for at, number in enumerate(self.numbers)}
        sequences = [_renumbered(sequence, place) for sequence in (again.expected_sequence, again.actual_sequence)]
        if compare_sequences(on_states(self.space), sequences[0], sequences[1]) is None:
            raise NotReduced("a counterexample of a neighbourhood does not show in the whole scenario")
        return again


class _Far:
    """A sequence over everything, with what is declared held against each of its steps."""

    def __init__(self, proof: _Proof) -> None:
        self._space = proof.space
        self._knowledge = proof.knowledge
        self._later = later_masks(proof.count, proof.order)
        self.state, self.mask = proof.space.empty(), 0
        self._values = proof.space.values(self.state)

    def take(self, step: int) -> None:
        """Register, or release what is in force; nothing where that cannot be, as for the release of what is not."""
        index = ~step if step < 0 else step
        if self.mask >> index & 1:
            try:
                self.state = self._space.release(self.state, index)
            except RegistrationError:
                raise NotReduced("a release fails that succeeds in every neighbourhood") from None
            self.mask ^= 1 << index
        elif step < 0 or self._later[index] & self.mask:
            return
        else:
            after, refusal = self._space.register(self.state, index)
            self._knowledge.outcome(self.mask, index, refusal)
            if refusal is not None:
                self._knowledge.refused(self.state, after)
            self.state = after
            self.mask |= 0 if refusal else 1 << index
        before, self._values = self._values, self._space.values(self.state)
        self._knowledge.look_after(index, self.mask, before, self._values)


class Knowledge:
    """What was seen of the variables and the outcomes; whatever contradicts what is declared ends the proof."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._is_unreached = False  # a set of a neighbourhood was not reached, since somebody was refused
        self._reached: dict[int, AbstractSet[int]] = {}  # registrations that decide about one another -> their sets
        self._values: dict[tuple[Hashable, int], Hashable] = {}
        self._looks: dict[int, object] = {}
        self._outcomes: dict[tuple[int, int], Refusal | None] = {}
        self._groups: dict[Hashable, tuple[int, ...]] = {}
        self._steps: dict[int, frozenset[Hashable]] = {}
        for variable, one in plan.dependences.items():
            self._groups[variable] = (*one.groups, one.holders) if one.holders else one.groups

    def look(self, mask: int, values: Mapping[Hashable, Hashable], variables: Iterable[Hashable]) -> None:
        """Compare the values of some variables in an active set with those of the same groups elsewhere."""
        self._check_declared(values)
        for variable in variables:
            self._compare(variable, combination(self._groups[variable], mask), values.get(variable))

    def look_after(
        self, index: int, mask: int, before: Mapping[Hashable, Hashable], values: Mapping[Hashable, Hashable]
    ) -> None:
        """`look` at what a step of `index` to an active set may have changed by what is declared, and what it did."""
        self._check_declared(values)
        expected = self._of_step(index)
        changed = {variable for variable, _ in values.items() ^ before.items()}
        for variable in expected | changed:
            if variable in self._groups:
                self._compare(variable, combination(self._groups[variable], mask), values.get(variable))

    def _of_step(self, index: int) -> AbstractSet[Hashable]:
        """The variables with a group that a registration is in."""
        known = self._steps.get(index)
        if known is None:
            known = self._steps[index] = frozenset(
                variable for variable, groups in self._groups.items() if any(group >> index & 1 for group in groups)
            )
        return known

    def outcome(self, mask: int, index: int, refusal: Refusal | None) -> None:
        """Compare whether a registration was accepted with what came of it where the same decided."""
        deciders = self.plan.deciders[index]
        known = self._outcomes.setdefault((index, mask & deciders), refusal if deciders else None)
        if not outcomes_agree(known, refusal, same_step=True):
            raise NotReduced("whether a registration is accepted depends on more than the engine declares")

    def refused(self, before: object, after: object) -> None:
        """Whether a refusal left everything as it was."""
        if before is not after and before != after:
            raise NotReduced("a refusal leaves something behind that the engine did not declare")

    def observed(self, mask: int, look: object, violations: object) -> None:
        """Compare what is observed in an active set with what was observed there before."""
        if violations:
            raise NotReduced("an invariant does not hold that held in every neighbourhood")
        if self._looks.setdefault(mask, look) != look:
            raise NotReduced("what is observed depends on more than the neighbourhoods show")

    def visited(self, members: int, sets: AbstractSet[int]) -> None:
        """Note which active sets of a neighbourhood were reached."""
        if len(sets) < 1 << members.bit_count():
            self._is_unreached = True
            for together in self.plan.conflicts:
                if together & ~members == 0:
                    self._reached[together] = {mask for mask in sets if mask & ~together == 0}

    def check_all_visited(self) -> None:
        """Whether the value of each variable is known for every combination of its groups that can be reached."""
        if not self._is_unreached:
            return
        for variable, dependence in self.plan.dependences.items():
            groups = self._groups[variable]
            for members in _neighbourhoods(dependence):
                for mask in _subsets(members):
                    known = (variable, combination(groups, mask)) in self._values
                    if not known and all(mask & together in sets for together, sets in self._reached.items()):
                        raise NotReduced(f"not every combination could be reached of what decides about {variable}")

    def _compare(self, variable: Hashable, found: int, value: Hashable) -> None:
        if self._values.setdefault((variable, found), value) != value:
            raise NotReduced(f"{variable} depends on more than the engine declares")

    def _check_declared(self, values: Mapping[Hashable, Hashable]) -> None:
        for variable in values.keys() - self.plan.declared:
            raise NotReduced(f"the engine did not declare {variable}")


def combination(groups: Sequence[int], mask: int) -> int:
    """Which groups have a member in force, as bits."""
    found = 0
    for at, group in enumerate(groups):
        if mask & group:
            found |= 1 << at
    return found


def _subsets(mask: int) -> Iterator[int]:
    subset = mask
    while True:
        yield subset
        if not subset:
            return
        subset = subset - 1 & mask


def _sets(
    space: StateSpace[Any], indices: Sequence[int], order: Sequence[int], knowledge: Knowledge
) -> Iterator[tuple[int, Any]]:
    """Each active set that can be reached, in the numbers of the whole, with a state of it."""
    count, later = len(indices), later_masks(len(indices), order)
    states = {0: space.empty()}
    whole = [0] * (1 << count)
    for mask in range(1 << count):
        if mask:
            newest = mask.bit_length() - 1
            whole[mask] = whole[mask ^ 1 << newest] | 1 << indices[newest]
            last = next(index for index in members_of(mask) if not later[index] & mask)
            before = states.get(mask ^ 1 << last)
            if before is None:
                continue
            state, refusal = space.register(before, last)
            knowledge.outcome(whole[mask ^ 1 << last], indices[last], refusal)
            if refusal is not None:
                knowledge.refused(before, state)
                continue
            states[mask] = state
        yield whole[mask], states[mask]


def _renumbered(sequence: StepSequence, place: Mapping[int, int]) -> StepSequence:
    return tuple(~place[~step] if step < 0 else place[step] for step in sequence)
