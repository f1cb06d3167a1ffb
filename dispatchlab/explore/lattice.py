"""The sets that registrations can reach and the steps between them, for drawing; small scenarios only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dispatchlab.errors import DispatchLabError, RegistrationError
from dispatchlab.explore.limits import later_masks
from dispatchlab.explore.protocol import StateSpace
from dispatchlab.model.words import Word

MOST_STATES = 4_096


class LatticeTooLargeError(DispatchLabError):
    """There are more states than anybody can look at.

    Args:
        bound: how many are allowed.
    """

    def __init__(self, bound: int) -> None:
        super().__init__(bound)
        self.bound = bound

    def __str__(self) -> str:
        return f"there are more than {self.bound:,} states, too many to draw; leave out some registrations"


@dataclass(frozen=True, slots=True)
class SetNode:
    """One active set.

    Args:
        members: the registrations that are active, ascending.
        states: how many states it has.
    """

    members: tuple[int, ...]
    states: int


@dataclass(frozen=True, slots=True)
class SetEdge:
    """One registration, tried in one set; where it was accepted its release leads back.

    Args:
        source: the set it was tried in.
        index: the registration.
        target: the set it led to; `source` when it was refused.
        kind: the error kind when it was refused.
    """

    source: tuple[int, ...]
    index: int
    target: tuple[int, ...]
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Lattice:
    """All sets, smaller ones first, and all edges, by source and registration."""

    nodes: tuple[SetNode, ...]
    edges: tuple[SetEdge, ...]


def lattice(
    space: StateSpace[Any], count: int, *, order: Sequence[int] = (), most_states: int = MOST_STATES
) -> Lattice:
    """All sets that `count` registrations can reach.

    Args:
        space: the states.
        count: how many registrations there are.
        order: registrations that are registered in this order only.
        most_states: how many states there may be.

    Raises:
        LatticeTooLargeError: there are more states.
    """
    later = later_masks(count, order)
    known: dict[int, set[Any]] = {0: {space.empty()}}
    edges: dict[tuple[int, int], SetEdge] = {}
    todo: list[tuple[int, Any]] = [(0, space.empty())]
    total = 1
    for mask, state in todo:
        for index in range(count):
            bit = 1 << index
            if mask & bit:
                try:
                    after, target = space.release(state, index), mask ^ bit
                except RegistrationError:
                    continue
            elif later[index] & mask:
                continue
            else:
                after, refusal = space.register(state, index)
                target = mask if refusal else mask | bit
                kind = refusal.kind.value if refusal else None
                edges.setdefault((mask, index), SetEdge(_members(mask), index, _members(target), kind))
            states = known.setdefault(target, set())
            if after not in states:
                states.add(after)
                todo.append((target, after))
                total += 1
                if total > most_states:
                    raise LatticeTooLargeError(most_states)
    nodes = sorted((SetNode(_members(mask), len(states)) for mask, states in known.items()), key=_size)
    return Lattice(tuple(nodes), tuple(edges[key] for key in sorted(edges)))


def sets_along(space: StateSpace[Any], word: Word) -> tuple[tuple[int, ...], ...]:
    """The active set before a word and after each of its steps; ends early where a release fails."""
    state, mask = space.empty(), 0
    sets = [_members(0)]
    for step in word:
        if step < 0:
            try:
                state = space.release(state, ~step)
            except RegistrationError:
                break
            mask ^= 1 << ~step
        else:
            state, refusal = space.register(state, step)
            mask |= 0 if refusal else 1 << step
        sets.append(_members(mask))
    return tuple(sets)


def _members(mask: int) -> tuple[int, ...]:
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)


def _size(node: SetNode) -> tuple[int, tuple[int, ...]]:
    return len(node.members), node.members
