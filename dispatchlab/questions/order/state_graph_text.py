"""A state graph as DOT, for Graphviz, and as Mermaid, for Markdown: `permute --graph FILE.dot` or `FILE.mmd`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from dispatchlab.escape import one_line, printable
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.questions.order.report_text import FLAWS, reasons
from dispatchlab.questions.order.state_graph import Edge, Mark, Node, StateGraph

_COLORS = {Mark.NONE: "#6e7781", Mark.EXPECTED: "#1a7f37", Mark.ACTUAL: "#cf222e", Mark.BOTH: "#9a6700"}
_WRAP = 30  # characters in a line of a box
_SETS_SHOWN = 3
_LABELLED = 12  # with more boxes, what an edge registers is seen from its ends


def dot_text(graph: StateGraph) -> str:
    """Return a state graph in the language of Graphviz, with its title, the counterexample and a legend."""
    texts = [*wrap(one_line(graph.title), 110), *explanation(graph), *graph.notes, "", *_legend(graph)]
    lines = [
        "digraph states {",
        f"  label={_quoted(*texts)};",
        "  labelloc=t; labeljust=l; rankdir=LR; fontname=monospace; fontsize=11;",
        "  node [shape=box, style=rounded, fontname=monospace, fontsize=12]; edge [fontname=monospace, fontsize=11];",
    ]
    for at, node in enumerate(graph.nodes):
        lines.append(f'  n{at} [label={_quoted(*node_lines(graph, at))}, color="{_COLORS[node.mark]}"];')
    for edge in graph.edges:
        label = f", label={_quoted(text)}" if (text := _edge_text(graph, edge)) else ""
        style = ", style=dashed" if edge.refused else ", penwidth=2" if edge.mark else ""
        lines.append(f'  n{edge.source} -> n{edge.target} [color="{_COLORS[edge.mark]}"{label}{style}];')
    return "".join(f"{line}\n" for line in (*lines, "}"))


def mermaid_text(graph: StateGraph) -> str:
    """Return a state graph as a Mermaid flowchart, which GitHub draws in Markdown."""
    lines = ["---", f"title: {one_line(graph.title)!r}", "---", "flowchart LR"]
    lines += (f"  %% {text}" for text in (*explanation(graph), *graph.notes, *_legend(graph)))
    for at, node in enumerate(graph.nodes):
        label = "<br/>".join(text.replace('"', "#quot;") for text in node_lines(graph, at))
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


def explanation(graph: StateGraph) -> tuple[str, ...]:
    """Return what is violated and where, a sentence each; nothing without a counterexample."""
    found = graph.violation
    if found is None:
        return ()
    expected, actual = found.counterexample.expected_sequence, found.counterexample.actual_sequence
    lines = [f"Violated: {FLAWS[found.counterexample.flaw]}."]
    if expected != actual:
        lines.append(f"green, expected: {printable(sequence_text(graph, expected))}")
    lines.append(f"red, actual: {printable(sequence_text(graph, actual))}")
    lines += [f"why: {printable(reason)}" for reason in reasons(found.counterexample)]
    return tuple(lines)


def sequence_text(graph: StateGraph, sequence: StepSequence) -> str:
    """Return `+def +CPU -def`."""
    return " ".join(_step_text(graph, step) for step in sequence) or "(nothing)"


def set_text(graph: StateGraph, members: Sequence[int]) -> str:
    """Return `CPU, Autograd`, the short names of some registrations."""
    return ", ".join(one_line(graph.name(index)) for index in members) or "nothing"


def node_lines(graph: StateGraph, at: int) -> list[str]:
    """Return what is written in the box of a node."""
    node = graph.nodes[at]
    texts = list(_group_texts(graph, node)) if node.sets else [set_text(graph, node.members)]
    if not node.sets and node.state:
        texts.append(f"state {node.state + 1} of this set")
    found = graph.violation
    if found is not None and at in (found.expected, found.actual):
        both = found.expected == found.actual
        texts.append("both sequences" if both else "expected" if at == found.expected else "actual")
    return [line for text in texts for line in wrap(printable(text), _WRAP) or [""]]


def _group_texts(graph: StateGraph, node: Node) -> Iterator[str]:
    for members in node.sets[:_SETS_SHOWN]:
        yield set_text(graph, members)
    if len(node.sets) > _SETS_SHOWN:
        yield f"and {len(node.sets) - _SETS_SHOWN:,} more sets"


def _edge_text(graph: StateGraph, edge: Edge) -> str:
    step = _step_text(graph, edge.step)
    if edge.refused:
        return f"{step} refused"
    return step if edge.mark or (edge.step >= 0 and len(graph.nodes) <= _LABELLED) else ""


def _step_text(graph: StateGraph, step: Step) -> str:
    return f"{'-' if step < 0 else '+'}{one_line(graph.name(max(step, ~step)))}"


def _legend(graph: StateGraph) -> Iterator[str]:
    for index in sorted({max(edge.step, ~edge.step) for edge in graph.edges}):
        yield f"{one_line(graph.name(index))}: {index}, {printable(graph.registrations[index])}"


def _quoted(*lines: str) -> str:
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return f'"{escaped[0]}"' if len(escaped) == 1 else '"' + "".join(f"{line}\\l" for line in escaped) + '"'
