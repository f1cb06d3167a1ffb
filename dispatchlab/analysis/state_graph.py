"""The state graph of a few registrations, as a value to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from dispatchlab.errors import DispatchLabError, RegistrationError
from dispatchlab.explore.limits import later_masks
from dispatchlab.explore.protocol import StateSpace
from dispatchlab.explore.result import Counterexample
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.model.short_repr import member_repr

MAX_NODES = 512
"""Larger graphs are not drawn: nobody could read them."""


class Mark(StrEnum):
    """What a node or an edge has to do with a counterexample."""

    NONE = ""
    EXPECTED = "expected"
    ACTUAL = "actual"
    BOTH = "both"

    __repr__ = member_repr

    def also(self, other: Mark) -> Mark:
        """Both of them."""
        if self is Mark.NONE or self is other:
            return other
        return self if other is Mark.NONE else Mark.BOTH


@dataclass(frozen=True, slots=True)
class Node:
    """A state: what is active in it, and which of the states of that set it is, from 0."""

    members: tuple[int, ...]
    state: int = 0
    mark: Mark = Mark.NONE

    @property
    def label(self) -> str:
        """`0 2`, with a prime for each further state of the set."""
        return (" ".join(map(str, self.members)) or "nothing") + "'" * self.state


@dataclass(frozen=True, slots=True)
class Edge:
    """A step between two nodes, by their indices; `refused` when the registration was turned down."""

    source: int
    target: int
    step: Step
    refused: bool = False
    mark: Mark = Mark.NONE


@dataclass(frozen=True, slots=True)
class StateGraph:
    """States and the steps between them.

    Args:
        title: what it is about.
        registrations: what each registration is, in the order of the file.
        nodes: the states, the empty one first.
        edges: registrations and releases; refusals that lead nowhere only where a counterexample has them.
        notes: what a reader should know, such as what was left out.
    """

    title: str
    registrations: tuple[str, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...] = ()


class NotDrawnError(DispatchLabError):
    """There is no picture of the states."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the graph was not drawn: {self.reason}"


def state_graph(
    space: StateSpace[Any],
    registrations: Sequence[str],
    *,
    title: str,
    order: Sequence[int] = (),
    counterexample: Counterexample | None = None,
    max_nodes: int = MAX_NODES,
) -> StateGraph:
    """The states of a space with the steps between them, and a counterexample marked.

    Args:
        space: the states.
        registrations: what each registration is.
        title: what the picture is about.
        order: registrations that are registered in this order only.
        counterexample: the sequences to mark. When there are too many states, those that the registrations of these
            sequences can reach are drawn alone.
        max_nodes: how many states are too many.

    Raises:
        NotDrawnError: there are too many.
    """
    everyone = range(len(registrations))
    drawn = _Drawing(space, everyone, order, max_nodes)
    notes: list[str] = []
    if not drawn.complete and counterexample is not None:
        steps = (*counterexample.expected_sequence, *counterexample.actual_sequence)
        members = sorted({max(step, ~step) for step in steps})
        drawn = _Drawing(space, members, order, max_nodes)
        notes.append(f"cut to the registrations of the counterexample: all together have more than {max_nodes} states")
    if not drawn.complete:
        raise NotDrawnError(f"there are more than {max_nodes} states, too many to read")
    if counterexample is not None:
        drawn.mark(counterexample.expected_sequence, Mark.EXPECTED)
        drawn.mark(counterexample.actual_sequence, Mark.ACTUAL)
        notes.append("green: the expected sequence, red: the actual sequence, yellow: both")
    return StateGraph(title, tuple(registrations), tuple(drawn.nodes), tuple(drawn.edges.values()), tuple(notes))


class _Drawing:
    def __init__(self, space: StateSpace[Any], members: Sequence[int], order: Sequence[int], max_nodes: int) -> None:
        self.space = space
        self.members = members
        self.later = later_masks(max(members, default=-1) + 1, [index for index in order if index in set(members)])
        self.max_nodes = max_nodes
        self.nodes: list[Node] = []
        self.states: list[Any] = []
        self.edges: dict[tuple[int, Step], Edge] = {}
        self._known: dict[tuple[int, Any], int] = {}
        self._of_set: dict[int, int] = {}
        self.complete = self._walk()

    def mark(self, sequence: StepSequence, mark: Mark) -> None:
        """Mark the way of a sequence and where it ends."""
        at = 0
        for step in sequence:
            edge = self.edges.get((at, step)) or self._refused(at, step)
            self.edges[at, step] = replace(edge, mark=edge.mark.also(mark))
            at = edge.target
        self.nodes[at] = replace(self.nodes[at], mark=self.nodes[at].mark.also(mark))

    def _refused(self, at: int, step: Step) -> Edge:
        return Edge(at, at, step, refused=True)

    def _walk(self) -> bool:
        masks = [0]
        self._add(0, self.space.empty())
        head = 0
        while head < len(self.states):
            state, mask = self.states[head], masks[head]
            for index in self.members:
                active = bool(mask >> index & 1)
                if not active and self.later[index] & mask:
                    continue
                step, refused = (~index if active else index), False
                if active:
                    try:
                        new, target = self.space.release(state, index), mask & ~(1 << index)
                    except RegistrationError:
                        continue
                else:
                    new, refusal = self.space.register(state, index)
                    refused = refusal is not None
                    target = mask if refused else mask | 1 << index
                    if refused and new == state:
                        continue
                node = self._known.get((target, new))
                if node is None:
                    if len(self.states) >= self.max_nodes:
                        return False
                    node = self._add(target, new)
                    masks.append(target)
                self.edges[head, step] = Edge(head, node, step, refused)
            head += 1
        return True

    def _add(self, mask: int, state: Any) -> int:
        node = len(self.states)
        members = tuple(index for index in range(mask.bit_length()) if mask >> index & 1)
        number = self._of_set.get(mask, 0)
        self._of_set[mask] = number + 1
        self.nodes.append(Node(members, number))
        self.states.append(state)
        self._known[mask, state] = node
        return node
