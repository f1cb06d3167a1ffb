"""Where everything in a picture stands: by Graphviz where it is installed, else in plain columns."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any, Final, TypeAlias

from dispatchlab.questions.order.state_picture.dot import dot_text
from dispatchlab.questions.order.state_picture.picture import Line, Picture

Point: TypeAlias = tuple[float, float]

_TIMEOUT_S: Final = 30.0
_GAP, _COLUMN_GAP = 10.0, 90.0
_ARROW: Final = 8.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its position.

    Args:
        points: a start, then three points for each piece of a cubic spline.
        heads: the arrow heads, each as where it points to and where it begins.
        label: the middle of the text beside it; None without a text.
    """

    points: tuple[Point, ...]
    heads: tuple[tuple[Point, Point], ...] = ()
    label: Point | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture with positions; y grows downwards.

    Args:
        picture: the picture.
        width: of all boxes and lines.
        height: likewise.
        boxes: the middle of each box.
        curves: the position of each line.
        by_graphviz: whether Graphviz laid it out.
    """

    picture: Picture
    width: float
    height: float
    boxes: tuple[Point, ...]
    curves: tuple[Curve, ...]
    by_graphviz: bool


def laid_out(picture: Picture, *, plain: bool = False) -> Layout:
    """The picture with positions.

    Args:
        picture: the picture.
        plain: in columns, whether Graphviz is installed or not.
    """
    found = None if plain else _by_graphviz(picture)
    return _in_columns(picture) if found is None else found


# -- by Graphviz


def _by_graphviz(picture: Picture) -> Layout | None:
    """The layout of the program `dot`; None when it is not there, fails or takes too long."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-Tjson0"],
            input=dot_text(picture, with_texts=False).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return _read(picture, json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return None


def _read(picture: Picture, found: dict[str, Any]) -> Layout:
    """What `dot` answered, in which y grows upwards.

    Raises:
        ValueError, LookupError, TypeError: it is not what was expected.
    """
    _, _, width, height = map(float, found["bb"].split(","))

    def point(text: str) -> Point:
        x, y = text.split(",")
        return float(x), height - float(y)

    boxes: dict[str, Point] = {each["name"]: point(each["pos"]) for each in found["objects"] if "pos" in each}
    edges = {each["id"]: each for each in found.get("edges", ())}
    curves = []
    for index, line in enumerate(picture.lines):
        edge = edges[f"e{index}"]
        words = edge["pos"].split()
        ends = {word[0]: point(word[2:]) for word in words if word[:2] in ("s,", "e,")}
        points = tuple(point(word) for word in words if word[:2] not in ("s,", "e,"))
        heads = [(ends["s"], points[0])] if "s" in ends else []
        heads += [(ends["e"], points[-1])] if "e" in ends else []
        curves.append(Curve(points, tuple(heads), point(edge["lp"]) if line.text else None))
    return Layout(
        picture,
        width,
        height,
        tuple(boxes[f"n{index}"] for index in range(len(picture.boxes))),
        tuple(curves),
        by_graphviz=True,
    )


# -- in columns


def _in_columns(picture: Picture) -> Layout:
    """A column for each number of active registrations, straight lines between them."""
    ranks = sorted({box.rank for box in picture.boxes})
    columns = [[index for index, box in enumerate(picture.boxes) if box.rank == rank] for rank in ranks]
    heights = [sum(picture.boxes[index].height + _GAP for index in column) - _GAP for column in columns]
    height = max(heights)
    places: dict[int, Point] = {}
    left = 0.0
    for column, needed in zip(columns, heights, strict=True):
        wide = max(picture.boxes[index].width for index in column)
        gap = (height - needed) / (len(column) + 1)
        top = gap
        for index in column:
            box = picture.boxes[index]
            places[index] = (left + wide / 2, top + box.height / 2)
            top += box.height + _GAP + gap
        left += wide + _COLUMN_GAP
    curves = tuple(_straight(picture, line, places) for line in picture.lines)
    return Layout(
        picture,
        left - _COLUMN_GAP + _overhang(picture.lines),
        height,
        tuple(places[index] for index in range(len(picture.boxes))),
        curves,
        by_graphviz=False,
    )


def _overhang(lines: Sequence[Line]) -> float:
    """Room at the right for lines that leave the last column and come back."""
    return _COLUMN_GAP if any(line.source == line.target or line.disagrees for line in lines) else 0.0


def _straight(picture: Picture, line: Line, places: dict[int, Point]) -> Curve:
    start, end = places[line.source], places[line.target]
    boxes = picture.boxes[line.source], picture.boxes[line.target]
    if start[0] == end[0]:  # within a column: around its right side
        x = max(start[0] + boxes[0].width / 2, end[0] + boxes[1].width / 2)
        first = (start[0] + boxes[0].width / 2, start[1] - (4 if start == end else 0))
        last = (end[0] + boxes[1].width / 2, end[1] + (4 if start == end else 0))
        out = x + _COLUMN_GAP * 0.6
        points = (first, (out, first[1]), (out, last[1]), last)
        label = (x + _COLUMN_GAP * 0.5, (first[1] + last[1]) / 2)
    else:
        right = 1 if end[0] > start[0] else -1
        first = (start[0] + right * boxes[0].width / 2, start[1])
        last = (end[0] - right * boxes[1].width / 2, end[1])
        points = (first, _between(first, last, 1 / 3), _between(first, last, 2 / 3), last)
        label = _between(first, last, 0.35)
    return Curve(points, tuple(_heads(line, points)), label if line.text else None)


def _between(one: Point, other: Point, part: float) -> Point:
    return one[0] + (other[0] - one[0]) * part, one[1] + (other[1] - one[1]) * part


def _heads(line: Line, points: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    if line.disagrees:
        return
    if line.forward or line.one_way:
        yield points[-1], _towards(points[-1], points[-2])
    if line.backward:
        yield points[0], _towards(points[0], points[1])


def _towards(tip: Point, other: Point) -> Point:
    """Where an arrow head begins whose tip is here."""
    length = hypot(other[0] - tip[0], other[1] - tip[1]) or 1.0
    return _between(tip, other, min(1.0, _ARROW / length))
