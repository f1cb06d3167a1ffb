"""Explore registrations that share no operator by themselves, on an engine whose state cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Claim, Fallback, Registration, operators_of
from dispatchlab.model.sequence import renumbered
from dispatchlab.prover.limits import count_orders
from dispatchlab.prover.partition import groups_by
from dispatchlab.prover.result import Conflict, Counterexample, Exploration, Verdict

# Note [Partition by operator]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What a package registers are dozens of registrations of dozens of operators, and 2 to the 40 sets are not walked. An
# operator has no memory of another one: kernels, defs and names write their own entry alone. Fallbacks are seen by all,
# and claims by all of their namespace. So groups that share no operator, no namespace that is claimed, and no fallback,
# are walked one after the other. That is knowledge of dispatchers and not something that was seen, so a report says it,
# and up to `TOGETHER` registrations are walked together all the same.

TOGETHER = 8
"""Up to this many registrations are explored together in any case."""

_ORDER = (
    Verdict.CRASHED,
    Verdict.NONDETERMINISTIC,
    Verdict.ORDER_DEPENDENT,
    Verdict.INCOMPLETE,
    Verdict.NO_VIOLATION_FOUND,
    Verdict.ORDER_INDEPENDENT,
)


def groups_of(registrations: Sequence[Registration]) -> list[tuple[int, ...]]:
    """The registrations by what they share, each group ascending; one group when there is a fallback."""
    if any(_is_seen_by_all(registration) for registration in registrations):
        return [tuple(range(len(registrations)))]
    shared = [frozenset(_shared(registration)) for registration in registrations]
    groups = [
        (frozenset().union(*(shared[index] for index in members)), members)
        for members in groups_by(range(len(registrations)), shared.__getitem__)
    ]
    claimed = {name for one in shared for name in one if isinstance(name, str)}
    if claimed:
        return _tied(groups, claimed)
    return sorted(tuple(sorted(members)) for _, members in groups)


def _tied(groups: Sequence[tuple[frozenset[object], list[int]]], claimed: set[str]) -> list[tuple[int, ...]]:
    """Groups of one claimed namespace are one: a claim that is refused takes its block along."""
    by_namespace: dict[str, list[int]] = {}
    others: list[tuple[int, ...]] = []
    for shared, members in groups:
        namespaces = {name.namespace for name in shared if isinstance(name, OperatorName)}
        namespaces |= {name for name in shared if isinstance(name, str)}
        tied = sorted(namespaces & claimed)
        if tied:
            by_namespace.setdefault(tied[0], []).extend(members)
        else:
            others.append(tuple(sorted(members)))
    return sorted([*others, *(tuple(sorted(members)) for members in by_namespace.values())])


def _shared(registration: Registration) -> Iterable[object]:
    if isinstance(registration, Claim):
        return [registration.namespace]
    claims = [registration.namespace] if isinstance(registration, Block) and registration.kind == "DEF" else []
    return [*claims, *operators_of(registration)]


def _is_seen_by_all(registration: Registration) -> bool:
    if isinstance(registration, Block):
        return any(isinstance(inner, Fallback) for inner in registration.registrations)
    return isinstance(registration, Fallback)


def joined(results: Sequence[tuple[tuple[int, ...], Exploration]], count: int, order: Sequence[int]) -> Exploration:
    """One result for groups, in the numbers of the scenario: sums, and the gravest verdict with its counterexample."""
    verdict = min((result.verdict for _, result in results), key=_ORDER.index)
    members, gravest = next((members, result) for members, result in results if result.verdict is verdict)
    notes = dict.fromkeys(
        note for _, result in results for note in result.notes if result.verdict is Verdict.INCOMPLETE
    )
    return replace(
        gravest,
        registrations=count,
        sets=sum(result.sets for _, result in results),
        states=sum(result.states for _, result in results),
        edges=sum(result.edges for _, result in results),
        orders=count_orders(count, order),
        components=len(results),
        classes=len(results),
        conflicts=tuple(
            Conflict(_members(conflict.members, members), conflict.kind, conflict.message, conflict.asymmetric)
            for members, result in results
            for conflict in result.conflicts
        ),
        never_accepted=tuple(sorted(members[index] for members, result in results for index in result.never_accepted)),
        counterexample=_in_scenario(gravest.counterexample, members),
        notes=(*notes, f"{len(results)} groups that share no operator were explored separately"),
        elapsed_s=sum(result.elapsed_s for _, result in results),
    )


def _in_scenario(example: Counterexample | None, members: Sequence[int]) -> Counterexample | None:
    """A counterexample of a group in the numbers of the scenario; its diff still has those of the group."""
    if example is None:
        return None
    return replace(
        example,
        expected_sequence=renumbered(example.expected_sequence, members),
        actual_sequence=renumbered(example.actual_sequence, members),
    )


def _members(numbers: Sequence[int], members: Sequence[int]) -> tuple[int, ...]:
    return tuple(members[number] for number in numbers)
