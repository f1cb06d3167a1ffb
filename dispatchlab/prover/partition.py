"""Partition registrations into independent parts, explore each separately, and check that they are independent.

See Note [Why parts may be explored by themselves].
"""

# Note [Why parts may be explored by themselves]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Registrations whose state variables are disjoint do not meet, except through broadcasts (a fallback reaches every
# operator). So a part is whatever shares variables, together with all broadcasts, and the sets to visit are a sum and
# not a product.
# That is a guess about the engine until it is checked: a space records every variable that was read or written on any
# edge and by any look. All of them must lie in the variables of the part, in the shared variables that broadcasts
# write, or be an operator that the part observes (a variable may be the name of an operator, as a value or as text).
# Then nothing outside of the part can have changed what happened in it, and what was proved for the part holds in the
# whole. If one variable lies elsewhere, the whole is explored in one go.

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from dispatchlab.errors import first_of
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration, operators_of
from dispatchlab.model.sequence import renumbered
from dispatchlab.prover.chains import Chains, ChainsWithin, count_edges, count_orders
from dispatchlab.prover.graph_walk import explore_graph, too_many
from dispatchlab.prover.limits import Interrupted, Watch
from dispatchlab.prover.protocol import Footprints, Forkable, StateSpace, StateVariable
from dispatchlab.prover.result import Conflict, Counterexample, Exploration, Flaw, NotReduced, Verdict
from dispatchlab.prover.run_sequence import check_determinism, on_states

LEAST_EDGES: Final = 12_000
"""A state graph of fewer edges is walked as it is."""

MOST_EDGES: Final = 100_000
"""A state graph that was taken for a small one and has more edges, for its sets have many states, is left again."""

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Part:
    """Registrations that share no variable with other registrations.

    Args:
        indices: their numbers in the scenario, ascending, including broadcasts.
        operators: the observed operators of these registrations.
        order: the chains within the part, in its numbers.
    """

    indices: tuple[int, ...]
    operators: tuple[OperatorName, ...]
    order: Chains


def explore_forkable(
    engine: Forkable,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    *,
    order: Chains = (),
    seed: int = 0,
    watch: Watch | None = None,
    reduced: bool = True,
    least: int = LEAST_EDGES,
) -> Exploration:
    """Explore an engine whose whole state is a value; explore in parts if it knows footprints.

    The other arguments are those of `explore`.

    Args:
        seed: the seed of the sequences that check determinism.
        watch: bounds and progress.
        reduced: whether to use parts and neighbourhoods.
        least: a part with fewer edges is explored without neighbourhoods.

    Returns:
        One result for all parts, in the numbers of the scenario.

    Raises:
        Interrupted: Ctrl-C; the error has the results so far.
    """
    exploration = _explored(engine, registrations, operators, order, seed, watch or Watch(), least if reduced else None)
    used = {"partition": exploration.components > 1, "neighbourhoods": exploration.neighbourhoods}
    return replace(exploration, reductions=tuple(name for name, is_used in used.items() if is_used))


def _explored(
    engine: Forkable,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    order: Chains,
    seed: int,
    watch: Watch,
    least: int | None,
) -> Exploration:
    run = _Run(engine, registrations, operators, order, seed, watch, least)
    whole = engine.space(registrations, operators)
    parts = list(parts_of(whole, registrations, operators, order)) if least is not None else []
    if len(parts) < 2 or not isinstance(whole, Footprints):
        return run.whole()
    return run.parts(parts)


def parts_of(
    space: StateSpace[Any],
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    order: Chains = (),
) -> Iterator[Part]:
    """Return the parts of a scenario, by their first registrations; one part if footprints are unknown."""
    if not isinstance(space, Footprints):
        yield Part(tuple(range(len(registrations))), tuple(operators), order)
        return
    broadcasts = [index for index in range(len(registrations)) if space.is_broadcast(index)]
    named = [frozenset(operators_of(registration)) for registration in registrations]
    unclaimed = set(operators).difference(*named) if named else set(operators)
    observed, chains = places_of(operators), ChainsWithin(order)
    others = (index for index in range(len(registrations)) if not space.is_broadcast(index))
    for group in groups_by(others, space.written_variables) or [[]]:
        indices = tuple(sorted([*group, *broadcasts]))
        names = unclaimed.union(*(named[index] for index in indices))
        unclaimed = set()
        yield Part(indices, among(observed, names), chains.among(indices))


def places_of(items: Iterable[_Item]) -> dict[_Item, int]:
    """Return the position of each item, for `among`."""
    return {item: at for at, item in enumerate(items)}


def among(places: Mapping[_Item, int], some: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return the items that have a position, sorted by position, in a time that depends on `some`, not on `places`."""
    return tuple(sorted((item for item in some if item in places), key=places.__getitem__))


def groups_by(indices: Iterable[int], shared: Callable[[int], Iterable[Hashable]]) -> list[list[int]]:
    """Return groups of indices that share something, directly or through others, in near-linear time.

    Args:
        indices: the indices to group, ascending.
        shared: what each index has.

    Returns:
        The groups by their first index, each ascending.
    """
    mine = list(indices)
    leader = {index: index for index in mine}

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = index = leader[leader[index]]
        return index

    owner: dict[Hashable, int] = {}
    for index in mine:
        for resource in shared(index):
            first, second = sorted((find(index), find(owner.setdefault(resource, index))))
            leader[second] = first
    groups: dict[int, list[int]] = {}
    for index in mine:
        groups.setdefault(find(index), []).append(index)
    return list(groups.values())


@dataclass
class _Run:
    engine: Forkable
    registrations: Sequence[Registration]
    operators: Sequence[OperatorName]
    order: Chains
    seed: int
    watch: Watch
    least: int | None  # edges of a part that is explored in neighbourhoods; None for none
    hidden: list[OperatorName] = field(default_factory=list)  # operators with state that is never observed
    conflicts: list[Conflict] = field(default_factory=list)
    never: list[int] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.registrations)
        self.sum = Exploration(Verdict.ORDER_INDEPENDENT, "graph", count, 0, 0, 0, count_orders(count, self.order))

    def whole(self, *notes: str) -> Exploration:
        """Explore everything at once."""
        everything = Part(tuple(range(len(self.registrations))), tuple(self.operators), self.order)
        self.watch.total_edges = count_edges(len(self.registrations), self.order)
        result = self._one(everything, self._space(everything), None)
        quiet = self._hiding(result, everything)
        if quiet is not result:
            result = replace(result, notes=(*quiet.notes, hidden_state_note(result, everything.operators)))
        return replace(result, notes=(*notes, *result.notes))

    def parts(self, parts: Sequence[Part]) -> Exploration:
        """Explore part by part; explore the whole if a footprint leaves its part."""
        self.watch.total_edges = sum(count_edges(len(part.indices), part.order) for part in parts)
        self.sum = replace(self.sum, components=len(parts))
        try:
            for part in parts:
                if self.sum.verdict in (Verdict.INCOMPLETE, Verdict.CRASHED, Verdict.NONDETERMINISTIC):
                    break
                space = self._space(part)
                result = self._one(part, space, self._shorter())
                strays = strays_of(space, range(len(part.indices)), part.operators)
                if strays:
                    return self.whole(
                        "the parts of this scenario are not independent "
                        f"({', '.join(sorted(map(str, strays)))}), so it was explored as one"
                    )
                self._add(self._hiding(result, part))
        except Interrupted as interrupted:
            self._add(interrupted.exploration)
            raise Interrupted(self._result()) from None
        return self._result()

    def _result(self) -> Exploration:
        conflicts = () if self.sum.counterexample else tuple(dict.fromkeys(self.conflicts))
        never = tuple(sorted(set(self.never))) if self.sum.verdict is Verdict.ORDER_INDEPENDENT else ()
        if self.hidden and self.sum.counterexample is None:
            self.notes[hidden_state_note(self.sum, self.hidden)] = None
        return replace(
            self.sum,
            conflicts=tuple(sorted(conflicts, key=lambda conflict: (len(conflict.members), conflict.members))),
            never_accepted=never,
            notes=tuple(self.notes),
            elapsed_s=self.watch.elapsed_s,
        )

    def _one(self, part: Part, space: StateSpace[Any], max_length: int | None) -> Exploration:
        count = len(part.indices)
        again = self._space(part)
        unsure = check_determinism(on_states(space), on_states(again), count, seed=self.seed, order=part.order)
        if unsure is not None and unsure.flaw is Flaw.NONDETERMINISTIC:
            sequence = renumbered(unsure.actual_sequence, part.indices)
            example = Counterexample(unsure.flaw, sequence, sequence, unsure.diff, unsure.why)
            empty = replace(self.sum, sets=0, states=0, edges=0, notes=(), conflicts=(), never_accepted=())
            return replace(empty, verdict=Verdict.NONDETERMINISTIC, counterexample=example)
        least = self.least
        note: tuple[str, ...] = ()
        try:
            result = None if least is None else self._in_neighbourhoods(part, space, max_length, least)
            if result is None and least is not None:
                result = self._walked(part, space, max_length, MOST_EDGES)
                if result.notes == (too_many(MOST_EDGES),):  # a set has many states, and a neighbourhood fewer
                    result = self._in_neighbourhoods(part, space, max_length, 0)
        except NotReduced as why:
            result, note = None, (f"explored without neighbourhoods: {why}",)
        if result is None:
            result = self._walked(part, space, max_length, None)
        return replace(result, notes=(*note, *result.notes)) if note else result

    def _walked(self, part: Part, space: StateSpace[Any], max_length: int | None, most: int | None) -> Exploration:
        """Return the result of a walk over the whole scenario; None if the walk was too long."""
        found = explore_graph(
            space,
            len(part.indices),
            order=part.order,
            watch=self.watch,
            max_length=max_length,
            max_edges=most,
            numbers=part.indices,
        )
        if most is None or found.notes != (too_many(most),):
            self.watch.settle(found)
        return found

    def _in_neighbourhoods(
        self, part: Part, space: StateSpace[Any], max_length: int | None, least: int
    ) -> Exploration | None:
        """Return the result of a part's neighbourhoods; None if a whole walk is as good."""
        count = len(part.indices)
        if not count or count_edges(count, part.order) < least:
            return None
        from dispatchlab.prover.neighbourhoods import MOST_REGISTRATIONS, NeighbourhoodProof, plan_of

        plan = plan_of(space, count, part.operators, part.order, least=least)
        if plan is None:
            return None
        if plan.largest > MOST_REGISTRATIONS:
            self.watch.total_edges = None  # how many exclude one another is not known
        elif self.watch.total_edges is not None:
            self.watch.total_edges += plan.edges - count_edges(count, part.order)
        about = space, plan, count, part.operators, part.order, self.seed, self.watch, max_length, part.indices
        return NeighbourhoodProof(*about).run()

    def _space(self, part: Part) -> StateSpace[Any]:
        return self.engine.space([self.registrations[index] for index in part.indices], part.operators)

    def _shorter(self) -> int | None:
        """Return the greatest length of sequences that are shorter than the present counterexample."""
        example = self.sum.counterexample
        return None if example is None else max(len(example.expected_sequence), len(example.actual_sequence)) - 1

    def _add(self, more: Exploration) -> None:
        """Add the result of a part to the sum."""
        total = self.sum
        verdict, example = total.verdict, total.counterexample
        if more.counterexample is not None and (example is None or more.verdict is not Verdict.ORDER_DEPENDENT):
            verdict, example = more.verdict, more.counterexample
        elif more.counterexample is not None:
            example = more.counterexample
        elif example is None and more.verdict is not Verdict.ORDER_INDEPENDENT:
            verdict = more.verdict
        self.sum = replace(
            total,
            verdict=verdict,
            counterexample=example,
            sets=total.sets + more.sets,
            states=total.states + more.states,
            edges=total.edges + more.edges,
            neighbourhoods=total.neighbourhoods + more.neighbourhoods,
        )
        self.conflicts += more.conflicts
        self.never += more.never_accepted
        if example is None:
            self.notes |= dict.fromkeys(more.notes)

    def _hiding(self, result: Exploration, part: Part) -> Exploration:
        """Collect the operators with hidden state for one note about all parts."""
        if result.verdict is not Verdict.ORDER_INDEPENDENT or result.states == result.sets:
            return result
        self.hidden += part.operators
        return replace(result, notes=tuple(note for note in result.notes if note != hidden_state_note(result, ())))


def hidden_state_note(result: Exploration, operators: Sequence[OperatorName]) -> str:
    """Return the note about states with equal observations."""
    of = f" of {first_of(operators, _NAMED)}" if operators else ""
    return (
        f"{result.states:,} states for {result.sets:,} sets: the engine keeps hidden state{of} that is never observed"
    )


_NAMED: Final = 3


def strays_of(
    space: StateSpace[Any], indices: Iterable[int], operators: Sequence[OperatorName]
) -> frozenset[StateVariable]:
    """Return the variables outside of a part that were used while the part was observed."""
    if not isinstance(space, Footprints):
        return frozenset()
    allowed: set[StateVariable] = {*space.shared_variables(), *operators, *map(str, operators)}
    for index in indices:
        allowed |= space.written_variables(index)
    return space.touched() - allowed
