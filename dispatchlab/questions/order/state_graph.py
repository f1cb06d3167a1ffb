"""The state graph of a few registrations, as a value to draw."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from dispatchlab._short_repr import member_repr
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.protocol import StateSpace
from dispatchlab.prover.result import Counterexample
from dispatchlab.prover.states import ReachableStates

MAX_NODES = 512
"""More states with different tables are not drawn: nobody could read them."""

MAX_STATES = 4096
"""How many states are looked at to find those with equal tables."""

GROUPED_ABOVE = 32
"""In a picture of more states, those with equal tables are one node."""


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
    """A state, or the states with one table.

    Args:
        members: what is active in it; of several sets, what is active in all of them.
        state: which of the states of that set it is, from 0.
        mark: whether a sequence of the counterexample ends in it.
        seen: what is seen in it, or in its first set, by its place in `StateGraph.sights`.
        part: which part of the scenario it is of.
        sets: the active sets, when it stands for several states; else empty.
    """

    members: tuple[int, ...]
    state: int = 0
    mark: Mark = Mark.NONE
    seen: int = 0
    part: int = 0
    sets: tuple[tuple[int, ...], ...] = ()

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
class Violation:
    """What a counterexample is in the picture.

    Args:
        counterexample: the sequences and why they disagree.
        expected: the node in which the expected sequence ends.
        actual: the node in which the actual sequence ends.
    """

    counterexample: Counterexample
    expected: int
    actual: int


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
        names: a short name for each registration; their numbers when there are none.
        sights: what is seen in the states, each different sight once.
        violation: what the counterexample is in the picture, if there is one.
        states: how many states the nodes stand for.
    """

    title: str
    registrations: tuple[str, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...] = ()
    is_cut: bool = False
    names: tuple[str, ...] = ()
    sights: tuple[tuple[Snapshot, ...], ...] = ()
    violation: Violation | None = None
    states: int = 0

    def name(self, index: int) -> str:
        """The short name of a registration."""
        return self.names[index] if self.names else str(index)


class NotDrawnError(DispatchLabError):
    """There is no picture of the states."""

    reason: str

    template = "the graph was not drawn: {reason}"


class PartOfGraph(NamedTuple):
    """Registrations whose states are drawn by themselves, as they were explored.

    Args:
        space: the states.
        indices: the numbers of the registrations in the scenario.
        order: chains of those, by their place in `indices`, that are registered in this order only.
    """

    space: StateSpace[Any]
    indices: tuple[int, ...]
    order: Chains = ()


def state_graph(
    parts: Sequence[PartOfGraph],
    registrations: Sequence[str],
    *,
    title: str,
    names: Sequence[str] = (),
    counterexample: Counterexample | None = None,
) -> StateGraph:
    """The states of a scenario with the steps between them, and a counterexample marked.

    Args:
        parts: the parts that were explored, side by side in the picture; the whole is one part.
        registrations: what each registration is.
        title: what the picture is about.
        names: a short name for each registration.
        counterexample: the sequences to mark. When there are too many states, those that the registrations of these
            sequences can reach are drawn alone.

    Raises:
        NotDrawnError: there are too many.
    """
    about = StateGraph(title, tuple(registrations), (), (), names=tuple(names))
    whole = _whole(parts, about, counterexample)
    if whole is not None:
        return whole
    if counterexample is None:
        raise NotDrawnError(f"there are more than {MAX_NODES} states with different tables, too many to read")
    used = {max(step, ~step) for step in (*counterexample.expected_sequence, *counterexample.actual_sequence)}
    part = next(each for each in parts if used.issubset(each.indices))
    drawn = _Drawing(part, [at for at, index in enumerate(part.indices) if index in used], MAX_NODES)
    if not drawn.complete:
        raise NotDrawnError(f"the registrations of the counterexample alone have more than {MAX_NODES} states")
    note = "cut to the registrations of the counterexample: all together have too many states to read"
    return replace(_together([drawn], about, counterexample), notes=(note,), is_cut=True)


def _whole(parts: Sequence[PartOfGraph], about: StateGraph, counterexample: Counterexample | None) -> StateGraph | None:
    """All states, those with equal tables together when there are many; None when there are too many for that."""
    drawn: list[_Drawing] = []
    left = max(MAX_STATES, MAX_NODES)
    for number, part in enumerate(parts):
        drawn.append(_Drawing(part, range(len(part.indices)), left, number=number))
        left -= len(drawn[-1].nodes)
        if not drawn[-1].complete:
            return None
    graph = _together(drawn, about, counterexample)
    if len(graph.nodes) > GROUPED_ABOVE:
        graph = grouped(graph)
    return graph if len(graph.nodes) <= MAX_NODES else None


def _together(drawn: Sequence[_Drawing], about: StateGraph, counterexample: Counterexample | None) -> StateGraph:
    """The states of several parts as one graph."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    seen: dict[tuple[Snapshot, ...], int] = {}
    violation = None
    for each in drawn:
        first = len(nodes)
        if counterexample is not None and violation is None:
            violation = each.marked(counterexample, first)
        for node, state in zip(each.nodes, each.states, strict=True):
            number = seen.setdefault(tuple(each.space.observe(state)), len(seen))
            nodes.append(replace(node, seen=number))
        edges += [replace(edge, source=first + edge.source, target=first + edge.target) for edge in each.edges.values()]
    sights = tuple(seen)
    return replace(about, nodes=tuple(nodes), edges=tuple(edges), sights=sights, violation=violation, states=len(nodes))


def grouped(graph: StateGraph) -> StateGraph:
    """The same with one node for all states of a part that have one table; what is marked stays by itself."""
    kept = {0}
    for edge in graph.edges:
        kept |= {edge.source, edge.target} if edge.mark else set()
    if graph.violation is not None:
        kept |= {graph.violation.expected, graph.violation.actual}
    tables = [tuple((one.operator, one.table, one.slots, one.exists) for one in sight) for sight in graph.sights]
    groups: dict[Hashable, list[int]] = {}
    for at, node in enumerate(graph.nodes):
        single = at in kept or not node.members
        groups.setdefault(at if single else (node.part, tables[node.seen]), []).append(at)
    if len(groups) == len(graph.nodes):
        return graph
    number = {at: new for new, members in enumerate(groups.values()) for at in members}
    nodes = tuple(_group([graph.nodes[at] for at in members]) for members in groups.values())
    edges: dict[tuple[int, int, Step, bool], Edge] = {}
    for edge in graph.edges:
        source, target = number[edge.source], number[edge.target]
        if source != target or edge.mark:
            edges.setdefault((source, target, edge.step, edge.refused), replace(edge, source=source, target=target))
    violation = graph.violation
    if violation is not None:
        violation = replace(violation, expected=number[violation.expected], actual=number[violation.actual])
    note = f"{len(graph.nodes):,} states; those with one table are one node"
    return replace(graph, nodes=nodes, edges=tuple(edges.values()), violation=violation, notes=(*graph.notes, note))


def _group(nodes: Sequence[Node]) -> Node:
    first = min(nodes, key=lambda node: (len(node.members), node.members, node.state))
    if len(nodes) == 1:
        return first
    sets = tuple(sorted({node.members for node in nodes}, key=lambda members: (len(members), members)))
    common = set.intersection(*(set(members) for members in sets))
    return replace(first, members=tuple(sorted(common)), state=0, sets=sets)


class _Drawing:
    """The states of one part; nodes and edges have the numbers of the scenario."""

    def __init__(self, part: PartOfGraph, members: Sequence[int], MAX_NODES: int, *, number: int = 0) -> None:
        self.space = part.space
        self.numbers = part.indices
        self.nodes: list[Node] = []
        self.edges: dict[tuple[int, Step], Edge] = {}
        of_set: dict[int, int] = {}
        found = ReachableStates(
            part.space,
            members,
            part.order,
            stop=lambda states, _: "too many" if states > MAX_NODES else None,
        )
        for source, step, target, refusal in found.edges():
            if refusal is None or source != target:
                named = ~self.numbers[~step] if step < 0 else self.numbers[step]
                self.edges[source, named] = Edge(source, target, named, refusal is not None)
        self.complete, self.states = found.stopped is None, found.states
        for mask in found.masks:
            registered = tuple(self.numbers[index] for index in range(mask.bit_length()) if mask >> index & 1)
            self.nodes.append(Node(registered, of_set.setdefault(mask, 0), part=number))
            of_set[mask] += 1

    def marked(self, counterexample: Counterexample, first: int) -> Violation | None:
        """Mark the sequences of a counterexample if they are of this part.

        Args:
            counterexample: the sequences.
            first: the number of the first node of this part in the picture.
        """
        steps = (*counterexample.expected_sequence, *counterexample.actual_sequence)
        if not {max(step, ~step) for step in steps}.issubset(self.numbers):
            return None
        expected = self._mark(counterexample.expected_sequence, Mark.EXPECTED)
        actual = self._mark(counterexample.actual_sequence, Mark.ACTUAL)
        return Violation(counterexample, first + expected, first + actual)

    def _mark(self, sequence: StepSequence, mark: Mark) -> int:
        """Mark the way of a sequence and where it ends, which is returned."""
        at = 0
        for step in sequence:
            edge = self.edges.get((at, step)) or self._refused(at, step)
            self.edges[at, step] = replace(edge, mark=edge.mark.also(mark))
            at = edge.target
        self.nodes[at] = replace(self.nodes[at], mark=self.nodes[at].mark.also(mark))
        return at

    def _refused(self, at: int, step: Step) -> Edge:
        return Edge(at, at, step, refused=True)
