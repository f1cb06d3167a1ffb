"""The state graph as DOT and as SVG: a node for each state, in layers by how many registrations are active.

The SVG is laid out here (layers, then a few barycentre sweeps against crossings), so nothing has to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from dispatchlab.analysis.state_graph import Mark, StateGraph
from dispatchlab.escape import printable
from dispatchlab.model.sequence import Step, format_sequence

_COLORS = {Mark.NONE: "#8a8f98", Mark.EXPECTED: "#1a7f37", Mark.ACTUAL: "#cf222e", Mark.BOTH: "#9a6700"}
_FILLS = {Mark.NONE: "#f6f8fa", Mark.EXPECTED: "#dafbe1", Mark.ACTUAL: "#ffebe9", Mark.BOTH: "#fff8c5"}


def dot(graph: StateGraph) -> str:
    """The state graph in the language of graphviz."""
    return "".join(f"{line}\n" for line in _dot(graph))


def svg(graph: StateGraph) -> str:
    """The state graph as a picture that every browser shows."""
    return "".join(f"{line}\n" for line in _Svg(graph).lines())


@dataclass(frozen=True, slots=True)
class _Line:
    """An edge as it is drawn: a registration and the release that takes it back are one line."""

    source: int
    target: int
    steps: tuple[Step, ...]
    mark: Mark
    refused: bool

    @property
    def text(self) -> str:
        return " / ".join(f"{format_sequence((step,))}" for step in self.steps)


def _lines_of(graph: StateGraph) -> list[_Line]:
    backward = {(edge.source, edge.target, edge.step): edge for edge in graph.edges}
    drawn: list[_Line] = []
    merged: set[tuple[int, int, Step]] = set()
    for edge in graph.edges:
        if (edge.source, edge.target, edge.step) in merged:
            continue
        back = None if edge.refused else backward.get((edge.target, edge.source, ~edge.step))
        if back is not None:
            merged.add((back.source, back.target, back.step))
            mark = edge.mark.also(back.mark)
            drawn.append(_Line(edge.source, edge.target, (edge.step, back.step), mark, refused=False))
        else:
            drawn.append(_Line(edge.source, edge.target, (edge.step,), edge.mark, edge.refused))
    return drawn


def _layers(graph: StateGraph) -> list[list[int]]:
    layers: list[list[int]] = [[] for _ in range(1 + max(len(node.members) for node in graph.nodes))]
    for index, node in enumerate(graph.nodes):
        layers[len(node.members)].append(index)
    for layer in layers:
        layer.sort(key=lambda index: (graph.nodes[index].members, graph.nodes[index].state))
    return [layer for layer in layers if layer]


# -- DOT


def _dot(graph: StateGraph) -> Iterator[str]:
    yield "digraph states {"
    yield f"  label={_quoted(chr(10).join([graph.title, *graph.notes, *_legend(graph)]))}; labeljust=l;"
    yield '  node [shape=box, style="rounded,filled", fontname="monospace"]; edge [fontname="monospace", fontsize=10];'
    for index, node in enumerate(graph.nodes):
        colors = f'color="{_COLORS[node.mark]}", fillcolor="{_FILLS[node.mark]}"'
        wide = ", penwidth=2" if node.mark is not Mark.NONE else ""
        yield f"  n{index} [label={_quoted(node.label)}, {colors}{wide}];"
    for layer in _layers(graph):
        yield f"  {{ rank=same; {' '.join(f'n{index};' for index in layer)} }}"
    for line in _lines_of(graph):
        both = ", dir=both" if len(line.steps) == 2 else ""
        style = ", style=dashed" if line.refused else ""
        wide = ", penwidth=2" if line.mark is not Mark.NONE else ""
        text = f"{line.text} refused" if line.refused else line.text
        color = f'color="{_COLORS[line.mark]}"'
        yield f"  n{line.source} -> n{line.target} [label={_quoted(text)}, {color}{both}{style}{wide}];"
    yield "}"


def _quoted(text: str) -> str:
    lines = printable(text).replace("\\", "\\\\").replace('"', '\\"').split("\n")
    return f'"{lines[0]}"' if len(lines) == 1 else '"' + "".join(f"{line}\\l" for line in lines) + '"'


def _legend(graph: StateGraph) -> list[str]:
    used = sorted({max(edge.step, ~edge.step) for edge in graph.edges})
    return [f"{index}  {graph.registrations[index]}" for index in used]


# -- SVG

_CHAR, _LINE_HEIGHT, _GAP, _LAYER, _MARGIN, _HEIGHT = 7.3, 17, 18, 90, 24, 26
_LABELLED = 40  # with more nodes, labels on edges would cover one another: they are in tooltips only
_SWEEPS = 6


class _Svg:
    def __init__(self, graph: StateGraph) -> None:
        self.graph = graph
        self.drawn = _lines_of(graph)
        self.head = [printable(line) for line in (graph.title, *graph.notes)]
        self.legend = [printable(line) for line in _legend(graph)]
        self.top = _MARGIN + _LINE_HEIGHT * len(self.head) + _HEIGHT
        self.layers = self._ordered()
        self.x: dict[int, float] = {}
        self.y: dict[int, float] = {}
        texts = [*self.head, *self.legend]
        widest = max([sum(self._width(i) + _GAP for i in layer) for layer in self.layers])
        self.width = 2 * _MARGIN + max([widest, *(len(text) * _CHAR for text in texts)])
        self._place()
        self.height = self.top + _LAYER * len(self.layers) + _LINE_HEIGHT * len(self.legend) + _MARGIN

    def lines(self) -> Iterator[str]:
        size = f'width="{self.width:.0f}" height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12" role="img">'
        yield f"<title>{escape(self.head[0])}</title>"
        yield '<rect width="100%" height="100%" fill="white"/>'
        for number, text in enumerate(self.head):
            weight = ' font-weight="bold"' if number == 0 else ""
            yield f'<text x="{_MARGIN}" y="{_MARGIN + number * _LINE_HEIGHT}"{weight}>{escape(text)}</text>'
        for line in sorted(self.drawn, key=lambda line: line.mark is not Mark.NONE):
            yield from self._edge(line)
        for index in range(len(self.graph.nodes)):
            yield from self._node(index)
        below = self.top + _LAYER * len(self.layers)
        for number, text in enumerate(self.legend):
            yield f'<text x="{_MARGIN}" y="{below + number * _LINE_HEIGHT}" xml:space="preserve">{escape(text)}</text>'
        yield "</svg>"

    def _width(self, index: int) -> float:
        return len(self.graph.nodes[index].label) * _CHAR + 16

    def _ordered(self) -> list[list[int]]:
        """The layers, each in the order that keeps its nodes near the middle of their neighbours."""
        layers = _layers(self.graph)
        neighbours: dict[int, set[int]] = {index: set() for index in range(len(self.graph.nodes))}
        for line in self.drawn:
            neighbours[line.source].add(line.target)
            neighbours[line.target].add(line.source)
        at = {index: place / len(layer) for layer in layers for place, index in enumerate(layer)}
        for sweep in range(_SWEEPS):
            for layer in layers if sweep % 2 == 0 else reversed(layers):
                middle = {
                    index: sum(at[other] for other in neighbours[index]) / max(1, len(neighbours[index]))
                    for index in layer
                }
                layer.sort(key=lambda index: (middle[index], at[index]))
                for place, index in enumerate(layer):
                    at[index] = (place + 0.5) / len(layer)
        return layers

    def _place(self) -> None:
        for depth, layer in enumerate(self.layers):
            free = self.width - 2 * _MARGIN - sum(self._width(index) for index in layer)
            gap = free / len(layer)
            left = _MARGIN + gap / 2
            for index in layer:
                self.x[index] = left + self._width(index) / 2
                self.y[index] = self.top + depth * _LAYER
                left += self._width(index) + gap

    def _node(self, index: int) -> Iterator[str]:
        node = self.graph.nodes[index]
        wide, x, y = self._width(index), self.x[index], self.y[index]
        members = [printable(f"{member} {self.graph.registrations[member]}") for member in node.members]
        title = "\n".join([*members, *([f"({node.mark})"] if node.mark else [])]) or "nothing is registered"
        stroke = 2.5 if node.mark is not Mark.NONE else 1
        yield (
            f'<g><title>{escape(title)}</title><rect x="{x - wide / 2:.1f}" y="{y - _HEIGHT / 2:.1f}" '
            f'width="{wide:.1f}" height="{_HEIGHT}" rx="6" fill="{_FILLS[node.mark]}" stroke="{_COLORS[node.mark]}" '
            f'stroke-width="{stroke}"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{escape(node.label)}</text></g>'
        )

    def _edge(self, line: _Line) -> Iterator[str]:
        x1, y1, x2, y2 = self.x[line.source], self.y[line.source], self.x[line.target], self.y[line.target]
        text = f"{line.text} refused" if line.refused else line.text
        color, stroke = _COLORS[line.mark], 2.5 if line.mark is not Mark.NONE else 1
        dashes = ' stroke-dasharray="5 4"' if line.refused else ""
        if line.source == line.target:
            right = x1 + self._width(line.source) / 2
            path = f"M {right:.1f} {y1 - 6:.1f} c 30 -16 30 28 0 12"
            label = right + 26, y1 + 4
        elif y1 == y2:
            path = (
                f"M {x1:.1f} {y1 + _HEIGHT / 2:.1f} Q {(x1 + x2) / 2:.1f} {y1 + 60:.1f} {x2:.1f} {y2 + _HEIGHT / 2:.1f}"
            )
            label = (x1 + x2) / 2, y1 + 46
        else:
            down = 1 if y2 > y1 else -1
            path = f"M {x1:.1f} {y1 + down * _HEIGHT / 2:.1f} L {x2:.1f} {y2 - down * _HEIGHT / 2:.1f}"
            label = x1 + (x2 - x1) * 0.35, y1 + (y2 - y1) * 0.35
        yield (
            f'<g><title>{escape(text)}</title><path d="{path}" fill="none" stroke="{color}" '
            f'stroke-width="{stroke}"{dashes}/>'
        )
        if len(self.graph.nodes) <= _LABELLED or line.mark is not Mark.NONE:
            yield (
                f'<text x="{label[0]:.1f}" y="{label[1]:.1f}" font-size="10" fill="{color}" '
                f'paint-order="stroke" stroke="white" stroke-width="3">{escape(_short(line))}</text>'
            )
        yield "</g>"


def _short(line: _Line) -> str:
    """`+1`: the release that takes it back goes without saying."""
    return format_sequence(line.steps[:1])
