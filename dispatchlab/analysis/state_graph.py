"""The state graph of a few registrations, as a value to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

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
        is_cut: there are more states than are drawn.
    """

    title: str
    registrations: tuple[str, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...] = ()
    is_cut: bool = False


class NotDrawnError(DispatchLabError):
    """There is no picture of the states."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the graph was not drawn: {self.reason}"


class PartOfGraph(NamedTuple):
    """Registrations whose states are drawn by themselves, as they were explored.

    Args:
        space: the states.
        indices: the numbers of the registrations in the scenario.
        order: those, by their place in `indices`, that are registered in this order only.
    """

    space: StateSpace[Any]
    indices: tuple[int, ...]
    order: tuple[int, ...] = ()


def state_graph(
    parts: Sequence[PartOfGraph],
    registrations: Sequence[str],
    *,
    title: str,
    counterexample: Counterexample | None = None,
    max_nodes: int = MAX_NODES,
) -> StateGraph:
    """The states of a scenario with the steps between them, and a counterexample marked.

    Args:
        parts: the parts that were explored, side by side in the picture; the whole is one part.
        registrations: what each registration is.
        title: what the picture is about.
        counterexample: the sequences to mark. When there are too many states, those that the registrations of these
            sequences can reach are drawn alone.
        max_nodes: how many states are too many.

    Raises:
        NotDrawnError: there are too many.
    """
    drawn: list[_Drawing] = []
    left = max_nodes
    for part in parts:
        drawn.append(_Drawing(part, range(len(part.indices)), left))
        left -= len(drawn[-1].nodes)
        if not drawn[-1].complete:
            break
    notes: list[str] = []
    is_cut = False
    if counterexample is not None:
        steps = (*counterexample.expected_sequence, *counterexample.actual_sequence)
        used = {max(step, ~step) for step in steps}
        if not drawn[-1].complete:
            part = next(each for each in parts if used.issubset(each.indices))
            drawn = [_Drawing(part, [at for at, index in enumerate(part.indices) if index in used], max_nodes)]
            notes.append(
                f"cut to the registrations of the counterexample: all together have more than {max_nodes} states"
            )
            is_cut = True
    if not drawn[-1].complete:
        raise NotDrawnError(f"there are more than {max_nodes} states, too many to read")
    if counterexample is not None:
        with_it = next(each for each in drawn if used.issubset(each.numbers))
        with_it.mark(counterexample.expected_sequence, Mark.EXPECTED)
        with_it.mark(counterexample.actual_sequence, Mark.ACTUAL)
        notes.append("green: the expected sequence, red: the actual sequence, yellow: both")
    nodes: list[Node] = []
    edges: list[Edge] = []
    for each in drawn:
        first = len(nodes)
        nodes += each.nodes
        edges += [replace(edge, source=first + edge.source, target=first + edge.target) for edge in each.edges.values()]
    return StateGraph(title, tuple(registrations), tuple(nodes), tuple(edges), tuple(notes), is_cut)


class _Drawing:
    """The states of one part; nodes and edges have the numbers of the scenario."""

    def __init__(self, part: PartOfGraph, members: Sequence[int], max_nodes: int) -> None:
        self.space = part.space
        self.numbers = part.indices
        self.members = members
        among = set(members)
        self.later = later_masks(len(part.indices), [index for index in part.order if index in among])
        self.max_nodes = max_nodes
        self.nodes: list[Node] = []
        self.states: list[Any] = []
        self.edges: dict[tuple[int, Step], Edge] = {}
        self._known: dict[tuple[int, Any], int] = {}
        self._of_set: dict[int, int] = {}
        self.complete = max_nodes > 0 and self._walk()

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
                number = self.numbers[index]
                step, refused = (~number if active else number), False
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
        members = tuple(self.numbers[index] for index in range(mask.bit_length()) if mask >> index & 1)
        number = self._of_set.get(mask, 0)
        self._of_set[mask] = number + 1
        self.nodes.append(Node(members, number))
        self.states.append(state)
        self._known[mask, state] = node
        return node
