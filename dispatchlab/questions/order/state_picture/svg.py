"""A picture with positions as SVG: a file by itself, or a part of a page.

A file carries its colours, for light and for dark. In a page they are the page's, boxes lead to their tables, and the
texts around the picture are left to the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import atan2, cos, sin

from dispatchlab.questions.order.state_graph import Mark
from dispatchlab.questions.order.state_picture.layout import Curve, Layout, Point
from dispatchlab.questions.order.state_picture.picture import CHARACTER, LINE, Box, Line

_MARGIN = 20.0
_ARROW_WIDTH = 0.35  # half of the angle of an arrow head

STYLE = """\
.states { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px }
.states text { fill: #1f2328 }
.states .paper { fill: #ffffff }
.states .line path { fill: none; stroke: #8c959f; stroke-width: 1 }
.states .line polygon { fill: #8c959f }
.states .line text { font-size: 11px; fill: #57606a; paint-order: stroke; stroke: #ffffff; stroke-width: 3px }
.states .box rect { fill: #f6f8fa; stroke: #6e7781; stroke-width: 1 }
.states .group rect { stroke-width: 3 }
.states .dashed path { stroke-dasharray: 5 4 }
.states .marked rect, .states .marked path { stroke-width: 2.5 }
.states .expected rect { fill: #dafbe1; stroke: #1a7f37 }
.states .expected path { stroke: #1a7f37 }
.states .expected polygon, .states .line.expected text { fill: #1a7f37 }
.states .actual rect { fill: #ffebe9; stroke: #cf222e }
.states .actual path { stroke: #cf222e }
.states .actual polygon, .states .line.actual text { fill: #b3141f }
.states .both rect { fill: #fff8c5; stroke: #9a6700 }
.states .both path { stroke: #9a6700 }
.states .both polygon, .states .line.both text { fill: #7d4e00 }
.states .title { font-weight: bold }
@media (prefers-color-scheme: dark) {
.states text { fill: #e6edf3 }
.states .paper { fill: #0d1117 }
.states .line path { stroke: #6e7681 }
.states .line polygon { fill: #6e7681 }
.states .line text { fill: #9da7b3; stroke: #0d1117 }
.states .box rect { fill: #161b22; stroke: #8b949e }
.states .expected rect { fill: #0f2d1a; stroke: #3fb950 }
.states .expected path { stroke: #3fb950 }
.states .expected polygon, .states .line.expected text { fill: #3fb950 }
.states .actual rect { fill: #3c1618; stroke: #f85149 }
.states .actual path { stroke: #f85149 }
.states .actual polygon, .states .line.actual text { fill: #ff7b72 }
.states .both rect { fill: #341a00; stroke: #d29922 }
.states .both path { stroke: #d29922 }
.states .both polygon, .states .line.both text { fill: #d29922 }
}
"""
"""The colours of a picture by itself."""


def svg_document(layout: Layout) -> str:
    """The picture as a file, with the texts around it."""
    return "".join(f"{line}\n" for line in _document(layout))


def svg_in_page(layout: Layout, *, label: str, href: str = "") -> str:
    """The picture as a part of a page.

    Args:
        layout: the picture.
        label: what it is called for whoever does not see it.
        href: what a box leads to, in front of the number of what is seen there; no links when it is empty.
    """
    return "".join(f"{line}\n" for line in _in_page(layout, label, href))


def _document(layout: Layout) -> Iterator[str]:
    picture = layout.picture
    texts = (*picture.title, *picture.head, *picture.legend)
    width = 2 * _MARGIN + max(layout.width, *(len(text) * CHARACTER for text in texts))
    above = _MARGIN + LINE * (len(picture.title) + len(picture.head)) + _MARGIN
    below = above + layout.height + _MARGIN + LINE
    height = below + LINE * len(picture.legend) + _MARGIN / 2
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" class="states" {size} role="img">'
    yield f"<title>{escape(' '.join(picture.title))}</title>"
    yield f"<style>{escape(STYLE, quote=False)}</style>"
    yield '<rect class="paper" width="100%" height="100%"/>'
    for number, text in enumerate((*picture.title, *picture.head)):
        yield _text(_MARGIN, _MARGIN + (number + 0.5) * LINE, text, "title" if number < len(picture.title) else "")
    left = max(_MARGIN, (width - layout.width) / 2) if layout.width < width / 3 else _MARGIN
    yield f'<g transform="translate({left:.0f} {above:.0f})">'
    yield from _drawing(layout, "")
    yield "</g>"
    for number, text in enumerate(picture.legend):
        yield _text(_MARGIN, below + number * LINE, text, "")
    yield "</svg>"


def _in_page(layout: Layout, label: str, href: str) -> Iterator[str]:
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    yield f'<svg class="states" {size} role="group" aria-label="{escape(label)}">'
    yield f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">'
    yield from _drawing(layout, href)
    yield "</g></svg>"


def _drawing(layout: Layout, href: str) -> Iterator[str]:
    lines = zip(layout.picture.lines, layout.curves, strict=True)
    for line, curve in sorted(lines, key=lambda pair: bool(pair[0].mark)):
        yield _line(line, curve)
    for number, (box, place) in enumerate(zip(layout.picture.boxes, layout.boxes, strict=True)):
        yield _box(number, box, place, href)
    # Labels are drawn last, so that no line is drawn across them.
    for line, curve in zip(layout.picture.lines, layout.curves, strict=True):
        if line.text and curve.label is not None:
            x, y = curve.label
            kind = f"line {_kinds(line.mark)}".strip()
            text = f'<text x="{x:.1f}" y="{y + 2:.1f}" text-anchor="middle">{escape(line.text)}</text>'
            yield f'<g class="{kind}">{text}</g>'


def _line(line: Line, curve: Curve) -> str:
    kinds = ["line", _kinds(line.mark), "dashed" if line.refused or line.disagrees else ""]
    start, *rest = curve.points
    path = f"M{_at(start)}" + (f"C{' '.join(map(_at, rest))}" if rest else "")
    heads = "".join(f'<polygon points="{_head(*head)}"/>' for head in curve.heads)
    ends = f'data-from="{line.source}" data-to="{line.target}"'
    return (
        f'<g class="{" ".join(filter(None, kinds))}" {ends}><title>{escape(line.title)}</title>'
        f'<path d="{path}"/>{heads}</g>'
    )


def _box(number: int, box: Box, place: Point, href: str) -> str:
    x, y = place
    kinds = " ".join(filter(None, ["box", _kinds(box.mark), "group" if box.is_group else ""]))
    top = y - (len(box.lines) - 1) * LINE / 2 + 4
    texts = "".join(
        f'<text x="{x:.1f}" y="{top + at * LINE:.1f}" text-anchor="middle">{escape(text)}</text>'
        for at, text in enumerate(box.lines)
    )
    inside = (
        f'<title>{escape(box.title)}</title><rect x="{x - box.width / 2:.1f}" y="{y - box.height / 2:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}" rx="6"/>{texts}'
    )
    if not href:
        return f'<g class="{kinds}">{inside}</g>'
    label = escape("; ".join(box.lines))
    return f'<a class="{kinds}" href="{escape(href)}{box.seen}" data-box="{number}" aria-label="{label}">{inside}</a>'


def _kinds(mark: Mark) -> str:
    return f"marked {mark}" if mark else ""


def _at(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def _head(tip: Point, base: Point) -> str:
    """The three corners of an arrow head."""
    angle = atan2(base[1] - tip[1], base[0] - tip[0])
    length = max(1.0, ((base[0] - tip[0]) ** 2 + (base[1] - tip[1]) ** 2) ** 0.5)
    sides = [
        (tip[0] + length * cos(angle + turn) / cos(turn), tip[1] + length * sin(angle + turn) / cos(turn))
        for turn in (-_ARROW_WIDTH, _ARROW_WIDTH)
    ]
    return " ".join(map(_at, (tip, *sides)))


def _text(x: float, y: float, text: str, kind: str) -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" xml:space="preserve"{css}>{escape(text)}</text>'
