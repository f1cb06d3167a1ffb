"""The graph of the states of a few registrations, as DOT for Graphviz and as Mermaid: `permute --graph FILE`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from textwrap import wrap
from typing import Any, NamedTuple

from dispatchlab._short_repr import member_repr
from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import one_line, printable
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.model.short_names import short_names
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.partition import parts_of
from dispatchlab.prover.protocol import Engine, Forkable, StateSpace
from dispatchlab.prover.result import Counterexample, Exploration
from dispatchlab.prover.states import ReachableStates
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.report_text import FLAWS, reasons
from dispatchlab.scenario.scenario import Scenario

MAX_NODES = 512
"""More states are not drawn: no reader could follow them."""


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
    """A state: what is active in it, which of the states of that set it is, and which sequence ends in it."""

    members: tuple[int, ...]
    state: int = 0
    mark: Mark = Mark.NONE


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
        names: a short name for each registration.
        nodes: the states, the empty one first.
        edges: registrations and releases; refusals that lead nowhere only where a counterexample has them.
        counterexample: the sequences that are marked, if there are some.
        is_cut: there are more states than those that the registrations of the counterexample reach.
    """

    title: str
    registrations: tuple[str, ...]
    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    counterexample: Counterexample | None = None
    is_cut: bool = False


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


def graph_of(report: Report, scenario: Scenario, engine: Engine) -> StateGraph:
    """The graph of the states of a scenario that was explored, with its counterexample marked.

    Raises:
        NotDrawnError: the states cannot be read, or there are too many.
    """
    if not isinstance(engine, Forkable):
        raise NotDrawnError(f"the states of the engine {engine.name} cannot be read")
    return state_graph(
        _parts_to_draw(engine, scenario, report.exploration),
        report.registrations,
        title=f"{scenario.claim} ({report.semantics}: {report.exploration.verdict})",
        names=short_names(scenario.registrations),
        counterexample=report.exploration.counterexample,
    )


def _parts_to_draw(engine: Forkable, scenario: Scenario, found: Exploration) -> tuple[PartOfGraph, ...]:
    """The parts that were explored; the whole where it was not explored in parts."""
    whole = engine.space(scenario.registrations, scenario.operators)
    if found.components < 2:
        return (PartOfGraph(whole, tuple(range(len(scenario.registrations))), scenario.order),)
    return tuple(
        PartOfGraph(
            engine.space([scenario.registrations[index] for index in part.indices], part.operators),
            part.indices,
            part.order,
        )
        for part in parts_of(whole, scenario.registrations, scenario.operators, scenario.order)
    )


def state_graph(
    parts: Sequence[PartOfGraph],
    registrations: Sequence[str],
    *,
    title: str,
    names: Sequence[str],
    counterexample: Counterexample | None = None,
) -> StateGraph:
    """Return the states of a scenario with the steps between them, and a counterexample marked.

    Args:
        parts: the parts that were explored, side by side in the graph; the whole is one part.
        registrations: what each registration is.
        title: what the graph is about.
        names: a short name for each registration.
        counterexample: the sequences to mark. When there are too many states, those that the registrations of these
            sequences can reach are there alone.

    Raises:
        NotDrawnError: there are too many.
    """
    drawn: list[_Drawing] = []
    for part in parts:
        drawn.append(_Drawing(part, range(len(part.indices)), MAX_NODES - sum(len(one.nodes) for one in drawn)))
        if not drawn[-1].complete:
            break
    is_cut = not drawn[-1].complete
    if is_cut:
        if counterexample is None:
            raise NotDrawnError(f"there are more than {MAX_NODES} states, too many to read")
        used = {max(step, ~step) for step in (*counterexample.expected_sequence, *counterexample.actual_sequence)}
        part = next(each for each in parts if used.issubset(each.indices))
        drawn = [_Drawing(part, [at for at, index in enumerate(part.indices) if index in used], MAX_NODES)]
        if not drawn[0].complete:
            raise NotDrawnError(f"the registrations of the counterexample alone have more than {MAX_NODES} states")
    nodes: list[Node] = []
    edges: list[Edge] = []
    for each in drawn:
        if counterexample is not None:
            each.mark(counterexample)
        first = len(nodes)
        nodes += each.nodes
        edges += (replace(one, source=first + one.source, target=first + one.target) for one in each.edges.values())
    return StateGraph(
        title, tuple(registrations), tuple(names), tuple(nodes), tuple(edges), counterexample, is_cut=is_cut
    )


class _Drawing:
    """The states of one part; nodes and edges have the numbers of the scenario."""

    def __init__(self, part: PartOfGraph, members: Sequence[int], most: int) -> None:
        self.numbers = part.indices
        self.nodes: list[Node] = []
        self.edges: dict[tuple[int, Step], Edge] = {}
        of_set: dict[int, int] = {}
        stop = lambda states, _: "too many" if states > most else None  # noqa: E731
        found = ReachableStates(part.space, members, part.order, stop=stop)
        for source, step, target, refusal in found.edges():
            if refusal is None or source != target:
                named = ~self.numbers[~step] if step < 0 else self.numbers[step]
                self.edges[source, named] = Edge(source, target, named, refusal is not None)
        self.complete = found.stopped is None
        for mask in found.masks:
            registered = tuple(self.numbers[index] for index in range(mask.bit_length()) if mask >> index & 1)
            self.nodes.append(Node(registered, of_set.setdefault(mask, 0)))
            of_set[mask] += 1

    def mark(self, counterexample: Counterexample) -> None:
        """Mark the sequences of a counterexample if they are of this part."""
        expected, actual = counterexample.expected_sequence, counterexample.actual_sequence
        if {max(step, ~step) for step in (*expected, *actual)}.issubset(self.numbers):
            self._mark(expected, Mark.EXPECTED)
            self._mark(actual, Mark.ACTUAL)

    def _mark(self, sequence: StepSequence, mark: Mark) -> None:
        """Mark the way of a sequence and where it ends."""
        at = 0
        for step in sequence:
            edge = self.edges.get((at, step)) or Edge(at, at, step, refused=True)
            self.edges[at, step] = replace(edge, mark=edge.mark.also(mark))
            at = edge.target
        self.nodes[at] = replace(self.nodes[at], mark=self.nodes[at].mark.also(mark))


# -- as text


_COLORS = {Mark.NONE: "#6e7781", Mark.EXPECTED: "#1a7f37", Mark.ACTUAL: "#cf222e", Mark.BOTH: "#9a6700"}
_WRAP = 30  # characters in a line of a box
_LABELLED = 12  # with more boxes, what an edge registers is seen from its ends


def dot_text(graph: StateGraph) -> str:
    """Return a state graph in the language of Graphviz, with its title, the counterexample and a legend."""
    texts = [*wrap(one_line(graph.title), 110), *_explanation(graph), "", *_legend(graph)]
    lines = [
        "digraph states {",
        f"  label={_quoted(*texts)};",
        "  labelloc=t; labeljust=l; rankdir=LR; fontname=monospace; fontsize=11;",
        "  node [shape=box, style=rounded, fontname=monospace, fontsize=12]; edge [fontname=monospace, fontsize=11];",
    ]
    for at, node in enumerate(graph.nodes):
        lines.append(f'  n{at} [label={_quoted(*_node_lines(graph, node))}, color="{_COLORS[node.mark]}"];')
    for edge in graph.edges:
        label = f", label={_quoted(text)}" if (text := _edge_text(graph, edge)) else ""
        style = ", style=dashed" if edge.refused else ", penwidth=2" if edge.mark else ""
        lines.append(f'  n{edge.source} -> n{edge.target} [color="{_COLORS[edge.mark]}"{label}{style}];')
    return "".join(f"{line}\n" for line in (*lines, "}"))


def mermaid_text(graph: StateGraph) -> str:
    """Return a state graph as a Mermaid flowchart, which GitHub draws in Markdown."""
    lines = ["---", f"title: {one_line(graph.title)!r}", "---", "flowchart LR"]
    lines += (f"  %% {text}" for text in (*_explanation(graph), *_legend(graph)))
    for at, node in enumerate(graph.nodes):
        label = "<br/>".join(text.replace('"', "#quot;") for text in _node_lines(graph, node))
        lines.append(f'  n{at}("{label}")')
        if node.mark:
            lines.append(f"  style n{at} stroke:{_COLORS[node.mark]},stroke-width:3px")
    for number, edge in enumerate(graph.edges):
        arrow = "-.->" if edge.refused else "==>" if edge.mark else "-->"
        label = f'|"{text.replace(chr(34), "#quot;")}"|' if (text := _edge_text(graph, edge)) else ""
        lines.append(f"  n{edge.source} {arrow}{label} n{edge.target}")
        if edge.mark:
            lines.append(f"  linkStyle {number} stroke:{_COLORS[edge.mark]}")
    return "".join(f"{line}\n" for line in lines)


def _explanation(graph: StateGraph) -> Iterator[str]:
    """What is violated and why, a sentence each; nothing without a counterexample."""
    found = graph.counterexample
    if graph.is_cut:
        yield "cut to the registrations of the counterexample: all together have too many states to read"
    if found is None:
        return
    yield f"Violated: {FLAWS[found.flaw]}."
    if found.expected_sequence != found.actual_sequence:
        yield f"green, expected: {printable(_sequence_text(graph, found.expected_sequence))}"
    yield f"red, actual: {printable(_sequence_text(graph, found.actual_sequence))}"
    yield from (f"why: {printable(reason)}" for reason in reasons(found))


def _sequence_text(graph: StateGraph, sequence: StepSequence) -> str:
    """`+def +CPU -def`."""
    return " ".join(_step_text(graph, step) for step in sequence) or "(nothing)"


def _node_lines(graph: StateGraph, node: Node) -> list[str]:
    """What is written in the box of a node."""
    texts = [", ".join(one_line(graph.names[index]) for index in node.members) or "nothing"]
    texts += [f"state {node.state + 1} of this set"] * bool(node.state)
    texts += [str(node.mark).replace("both", "both sequences")] * bool(node.mark)
    return [line for text in texts for line in wrap(printable(text), _WRAP) or [""]]


def _edge_text(graph: StateGraph, edge: Edge) -> str:
    step = _step_text(graph, edge.step)
    if edge.refused:
        return f"{step} refused"
    return step if edge.mark or (edge.step >= 0 and len(graph.nodes) <= _LABELLED) else ""


def _step_text(graph: StateGraph, step: Step) -> str:
    return f"{'-' if step < 0 else '+'}{one_line(graph.names[max(step, ~step)])}"


def _legend(graph: StateGraph) -> Iterator[str]:
    for index in sorted({max(edge.step, ~edge.step) for edge in graph.edges}):
        yield f"{one_line(graph.names[index])}: {index}, {printable(graph.registrations[index])}"


def _quoted(*lines: str) -> str:
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return f'"{escaped[0]}"' if len(escaped) == 1 else '"' + "".join(f"{line}\\l" for line in escaped) + '"'
