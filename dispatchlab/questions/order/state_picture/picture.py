"""What a picture of states shows, before anything has a position: boxes, lines, and the texts around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from dispatchlab.escape import one_line, printable
from dispatchlab.model.operator_view import NO_KERNEL
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.prover.result import Flaw
from dispatchlab.questions.order.report_text import FLAWS, reasons
from dispatchlab.questions.order.state_graph import Edge, Mark, Node, StateGraph

CHARACTER = 7.3
"""How wide a character of the font is, in points."""

DIFFER = "\u2260"
"""What is written between two states that should be one."""

LINE = 15.0
"""How high a line of text is."""

_PADDING_X, _PADDING_Y = 9.0, 6.0
_WRAP = 30  # characters in a line of a box
_SETS_SHOWN = 3
_SETS_IN_TITLE = 40
_ROWS_SHOWN = 3
_LABELLED = 12  # with more boxes, what a line registers is seen from its ends: labels would only cover it
_LONGEST = 200  # characters of a registration in the legend
_MOST_TEXT = 1000
_TEXT_WIDTH = 110  # characters in a line around the picture


@dataclass(frozen=True, slots=True)
class Box:
    """A node as it is drawn.

    Args:
        lines: its text.
        title: all that is to be said of it, for whoever points at it.
        rank: how many registrations are active, for a layout in columns.
        mark: whether a sequence of the counterexample ends there.
        is_group: it stands for several states.
        seen: what is seen there, by its place in `StateGraph.sights`.
    """

    lines: tuple[str, ...]
    title: str
    rank: int
    mark: Mark
    is_group: bool
    seen: int

    @property
    def width(self) -> float:
        """In points."""
        return max(map(len, self.lines)) * CHARACTER + 2 * _PADDING_X

    @property
    def height(self) -> float:
        """In points."""
        return len(self.lines) * LINE + _PADDING_Y


@dataclass(frozen=True, slots=True)
class Line:
    """An edge as it is drawn: a registration and the release that takes it back are one line.

    Args:
        source: the box that it starts at.
        target: the box that it ends at.
        text: what is written beside it; often empty.
        title: what it registers and releases, for whoever points at it.
        forward: which sequence of the counterexample takes it from the source to the target.
        backward: which takes it from the target to the source.
        one_way: there is no step back.
        refused: the registration was refused.
        disagrees: it is no step: it joins the two states that should be one.
    """

    source: int
    target: int
    text: str
    title: str
    forward: Mark = Mark.NONE
    backward: Mark = Mark.NONE
    one_way: bool = False
    refused: bool = False
    disagrees: bool = False

    @property
    def mark(self) -> Mark:
        """Which sequences take it."""
        return self.forward.also(self.backward)


@dataclass(frozen=True, slots=True)
class Picture:
    """A state graph as it is drawn.

    Args:
        title: what it is about, in lines.
        head: the lines above it: what is violated, and notes.
        boxes: the nodes.
        lines: the edges.
        legend: the lines below it: what the short names mean.
        has_ranks: boxes of one rank stand in one column.
    """

    title: tuple[str, ...]
    head: tuple[str, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    legend: tuple[str, ...]
    has_ranks: bool = True


def picture_of(graph: StateGraph) -> Picture:
    """What is drawn of a state graph."""
    everything = _all_members(graph)
    boxes = tuple(_box(graph, at, node, everything[node.part]) for at, node in enumerate(graph.nodes))
    return Picture(
        title=tuple(_wrapped(one_line(graph.title))),
        head=tuple(line for text in _head(graph) for line in _wrapped(text)),
        boxes=boxes,
        lines=tuple(_lines(graph)),
        legend=tuple(line for text in _legend(graph) for line in _wrapped(text)),
        has_ranks=not any(box.is_group for box in boxes)
        and not any(edge.refused and edge.source != edge.target for edge in graph.edges),
    )


def explanation(graph: StateGraph) -> tuple[str, ...]:
    """What is violated and where, a sentence each; nothing without a counterexample."""
    found = graph.violation
    if found is None:
        return ()
    flaw = found.counterexample.flaw
    sequences = [
        printable(sequence_text(graph, each))
        for each in (found.counterexample.expected_sequence, found.counterexample.actual_sequence)
    ]
    lines = [f"Violated: {FLAWS[flaw]}."]
    if sequences[0] != sequences[1]:
        lines.append(f"green, expected: {sequences[0]}")
        lines.append(f"red, actual: {sequences[1]}")
    else:
        lines.append(f"red: {sequences[1]}")
    for row in found.rows[:_ROWS_SHOWN]:
        one, other = (printable(text) or NO_KERNEL for text in (row.expected, row.actual))
        lines.append(f"{row.operator} {row.key}: {one} (expected), {other} (actual)")
    if len(found.rows) > _ROWS_SHOWN:
        lines.append(f"and {len(found.rows) - _ROWS_SHOWN:,} more rows")
    lines += [f"why: {printable(reason)}" for reason in reasons(found.counterexample)]
    return tuple(lines)


def sequence_text(graph: StateGraph, sequence: StepSequence) -> str:
    """`+def +CPU -def`."""
    return " ".join(_step_text(graph, step) for step in sequence) or "(nothing)"


def set_text(graph: StateGraph, members: Sequence[int], everything: Sequence[int]) -> str:
    """`CPU, Autograd`, or `all but CPU` where that is shorter."""
    if not members:
        return "nothing"
    left_out = [index for index in everything if index not in members]
    if not left_out and len(members) > 2:
        return f"all {len(members)}"
    if len(members) > 3 and len(left_out) <= 2:
        return f"all but {_names(graph, left_out)}"
    return _names(graph, members)


def _names(graph: StateGraph, members: Sequence[int]) -> str:
    return ", ".join(one_line(graph.name(index)) for index in members)


def _step_text(graph: StateGraph, step: Step) -> str:
    return f"{'-' if step < 0 else '+'}{one_line(graph.name(max(step, ~step)))}"


def _all_members(graph: StateGraph) -> dict[int, tuple[int, ...]]:
    """The registrations of each part that are active in some state."""
    found: dict[int, set[int]] = {}
    for node in graph.nodes:
        members = found.setdefault(node.part, set())
        for each in node.sets or (node.members,):
            members.update(each)
    return {part: tuple(sorted(members)) for part, members in found.items()}


# -- boxes


def _box(graph: StateGraph, at: int, node: Node, everything: Sequence[int]) -> Box:
    if node.sets:
        texts = list(_group_texts(graph, node, everything))
    else:
        texts = [set_text(graph, node.members, everything)]
        number = _end_text(graph, at) or (f"state {node.state + 1} of this set" if node.state else "")
        texts += [number] * bool(number)
    lines = tuple(
        line for text in texts for line in wrap(text, _WRAP, break_long_words=False, break_on_hyphens=False) or [""]
    )
    return Box(lines, _title(graph, at, node), len(node.members), node.mark, bool(node.sets), node.seen)


def _end_text(graph: StateGraph, at: int) -> str:
    found = graph.violation
    if found is None or at not in (found.expected, found.actual):
        return ""
    if found.expected == found.actual:
        return "both sequences" if found.counterexample.flaw is not Flaw.INVARIANT else "an invariant is broken"
    return "expected" if at == found.expected else "actual"


def _group_texts(graph: StateGraph, node: Node, everything: Sequence[int]) -> Iterator[str]:
    optional = sorted({index for each in node.sets for index in each} - set(node.members))
    if len(node.sets) == 1:
        yield set_text(graph, node.sets[0], everything)
        yield "several states"
    elif len(node.sets) == 2 ** len(optional):
        if node.members:
            yield set_text(graph, node.members, everything)
            yield f"with or without {_names(graph, optional)}"
        else:
            yield f"any of {_names(graph, optional)}"
    else:
        for each in node.sets[:_SETS_SHOWN]:
            yield set_text(graph, each, everything)
        if len(node.sets) > _SETS_SHOWN:
            yield f"and {len(node.sets) - _SETS_SHOWN:,} more sets"


def _title(graph: StateGraph, at: int, node: Node) -> str:
    found = graph.violation
    lines = []
    if found is not None and at in (found.expected, found.actual):
        lines.append(f"({_end_text(graph, at)})")
    if node.sets:
        shown = [_names(graph, each) or "nothing" for each in node.sets[:_SETS_IN_TITLE]]
        more = len(node.sets) - len(shown)
        return "\n".join(
            [*lines, f"{len(node.sets):,} sets with one table:", *shown, *([f"{more:,} more"] if more else [])]
        )
    members = [f"{graph.name(index)}: {graph.registrations[index]}" for index in node.members]
    return "\n".join([*lines, *map(printable, members)]) if members else "\n".join([*lines, "nothing is registered"])


# -- lines


def _lines(graph: StateGraph) -> Iterator[Line]:
    backward = {(edge.source, edge.target, edge.step): edge for edge in graph.edges}
    merged: set[tuple[int, int, Step]] = set()
    labelled = len(graph.nodes) <= _LABELLED
    for edge in graph.edges:
        if (edge.source, edge.target, edge.step) in merged:
            continue
        back = None if edge.refused else backward.get((edge.target, edge.source, ~edge.step))
        if back is not None:
            merged.add((back.source, back.target, back.step))
        yield _line(graph, edge, back, labelled=labelled)
    found = graph.violation
    if found is not None and found.expected != found.actual:
        one, other = (graph.nodes[end] for end in (found.expected, found.actual))
        if one.members == other.members:
            yield Line(found.expected, found.actual, DIFFER, "should be one state", Mark.ACTUAL, disagrees=True)


def _line(graph: StateGraph, edge: Edge, back: Edge | None, *, labelled: bool) -> Line:
    if back is not None and edge.step < 0:
        edge, back = back, edge  # a line leads from fewer registrations to more
    step = _step_text(graph, edge.step)
    text = f"{step} refused" if edge.refused else step
    mark = edge.mark.also(Mark.NONE if back is None else back.mark)
    index = max(edge.step, ~edge.step)
    return Line(
        edge.source,
        edge.target,
        text if labelled or mark or edge.refused else "",
        printable(f"{text}: {graph.registrations[index]}"),
        edge.mark,
        Mark.NONE if back is None else back.mark,
        one_way=back is None,
        refused=edge.refused,
    )


# -- around


def _head(graph: StateGraph) -> Iterator[str]:
    yield from explanation(graph)
    yield from map(printable, graph.notes)


def _legend(graph: StateGraph) -> Iterator[str]:
    used = sorted({max(edge.step, ~edge.step) for edge in graph.edges})
    width = max((len(one_line(graph.name(index))) for index in used), default=0)
    for index in used:
        name = one_line(graph.name(index))
        text = printable(graph.registrations[index])
        yield f"{name:<{width}}  {index}  {text if len(text) <= _LONGEST else f'{text[: _LONGEST - 3]}...'}"


def _wrapped(text: str) -> list[str]:
    text = text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
    return wrap(text, _TEXT_WIDTH, subsequent_indent="    ", break_on_hyphens=False, drop_whitespace=False) or [""]
