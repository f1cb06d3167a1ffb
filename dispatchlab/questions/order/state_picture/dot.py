"""A picture in the language of Graphviz, for a file, and for the program that lays it out."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.questions.order.state_graph import Mark
from dispatchlab.questions.order.state_picture.picture import Box, Line, Picture

COLORS = {Mark.NONE: "#6e7781", Mark.EXPECTED: "#1a7f37", Mark.ACTUAL: "#cf222e", Mark.BOTH: "#9a6700"}
FILLS = {Mark.NONE: "#f6f8fa", Mark.EXPECTED: "#dafbe1", Mark.ACTUAL: "#ffebe9", Mark.BOTH: "#fff8c5"}

_POINTS = 72.0  # in an inch
_CROWDED = 40  # with more boxes than this they stand closer


def dot_text(picture: Picture, *, with_texts: bool = True) -> str:
    """A picture as DOT.

    Args:
        picture: the picture.
        with_texts: with the title, the head and the legend, which are no part of the layout.
    """
    return "".join(f"{line}\n" for line in _lines(picture, with_texts=with_texts))


def _lines(picture: Picture, *, with_texts: bool) -> Iterator[str]:
    yield "digraph states {"
    if with_texts:
        texts = [*picture.title, *picture.head, "", *picture.legend]
        yield f"  label={_quoted(*texts)};"
        yield "  labelloc=t; labeljust=l; fontname=monospace; fontsize=11;"
    crowded = len(picture.boxes) > _CROWDED
    yield f"  rankdir=LR; ranksep={'2' if crowded else '0.7'}; nodesep={'0.06' if crowded else '0.25'};"
    yield '  node [shape=box, style="rounded,filled", margin=0, fontname=monospace, fontsize=12];'
    yield "  edge [fontname=monospace, fontsize=11, arrowsize=0.7];"
    for index, box in enumerate(picture.boxes):
        yield f"  n{index} [{_box(box)}];"
    if picture.has_ranks:
        for rank in sorted({box.rank for box in picture.boxes}):
            inside = " ".join(f"n{index};" for index, box in enumerate(picture.boxes) if box.rank == rank)
            yield f"  {{ rank=same; {inside} }}"
    for index, line in enumerate(picture.lines):
        yield f"  n{line.source} -> n{line.target} [{_line(index, line)}];"
    yield "}"


def _box(box: Box) -> str:
    style = ", penwidth=2" if box.mark else ""
    return (
        f"label={_quoted(*box.lines, align='n')}, width={box.width / _POINTS:.3f}, height={box.height / _POINTS:.3f}, "
        f'color="{COLORS[box.mark]}", fillcolor="{FILLS[box.mark]}"{style}{", peripheries=2" * box.is_group}'
    )


def _line(index: int, line: Line) -> str:
    parts = [f"id=e{index}", f'color="{COLORS[line.mark]}"', f"dir={_direction(line)}"]
    if line.text:
        parts += [f"label={_quoted(line.text)}", f'fontcolor="{COLORS[line.mark]}"']
    if line.refused or line.disagrees:
        parts.append("style=dashed")
    elif line.mark:
        parts.append("penwidth=2")
    if line.disagrees:
        parts.append("constraint=false")
    return ", ".join(parts)


def _direction(line: Line) -> str:
    if line.disagrees:
        return "none"
    forward, backward = bool(line.forward) or line.one_way, bool(line.backward)
    return {(True, True): "both", (True, False): "forward", (False, True): "back"}.get((forward, backward), "none")


def _quoted(*lines: str, align: str = "l") -> str:
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return f'"{escaped[0]}"' if len(escaped) == 1 else '"' + "".join(f"{line}\\{align}" for line in escaped) + '"'
