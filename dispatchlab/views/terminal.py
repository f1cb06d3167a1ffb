"""Blocks for a terminal: lines break only between words, source locations are links, moods are colours.

A word is the text between blanks: a key, a path with its line, a type with its argument. A word that is longer than a
line is printed unchanged, and the terminal wraps it, so that it can still be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import assert_never

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

from dispatchlab.escape import printable
from dispatchlab.views import blocks as b
from dispatchlab.views.source_locations import link_of, located, short_paths
from dispatchlab.views.styles import BAD, DIFF_STYLES, FIRST_STYLES, MOOD_STYLES, QUIET
from dispatchlab.views.text import table_lines

_BAR = 30
_NARROWEST = 24
_WIDEST = 160


def draw(console: Console, blocks: Iterable[b.Block], *, torch: str = "", whole: bool = False) -> None:
    """Print blocks.

    Args:
        console: where to.
        blocks: the blocks to show.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
        whole: shorten nothing.
    """
    page = _Page(console, torch=torch, whole=whole)
    page.put_all(blocks)
    page.flush()


class _Page:
    """The lines of a terminal, written all at once, as a console takes long for a line."""

    def __init__(self, console: Console, *, torch: str, whole: bool) -> None:
        self._console = console
        self._torch = torch
        self._links = console.is_terminal and console.file.isatty()
        self._bar = (
            "#" if console.options.ascii_only or not console.is_terminal else "\N{BOX DRAWINGS HEAVY HORIZONTAL}"
        )
        self._whole = whole
        self._lines: list[Text] = []
        self._width = min(console.width, _WIDEST)

    def flush(self) -> None:
        """Write the collected text."""
        if self._console.color_system is None:
            segments = [Segment("".join(f"{line.plain}\n" for line in self._lines))]
        else:
            segments = [segment for line in self._lines for segment in line.render(self._console, end="\n")]
        self._console.print(Segments(segments), soft_wrap=True, end="")

    def put_all(self, blocks: Iterable[b.Block], *, indent: int = 0) -> None:
        """Put blocks below others, indented by so much."""
        for block in blocks:
            self._put(block, indent)

    def _put(self, block: b.Block, indent: int) -> None:
        match block:
            case b.Line():
                self._put_line(block, indent)
            case b.Section():
                self._lines.append(Text())
                self._flow(self._inline(b.Span(block.title, block.mood)), 0)
                self.put_all(block.blocks, indent=indent)
            case b.Verdict():
                style = f"bold {MOOD_STYLES[block.mood].removeprefix('bold ')}"
                self._flow(Text(printable(block.text), style).append_text(self._inline(block.beside)), indent)
            case b.Facts():
                width = max((len(title) for title, _ in block.pairs), default=0) + 2
                for title, value in block.pairs:
                    content = f"{value:,}" if isinstance(value, int) else value
                    self._put_line(b.Line(content, label=b.Span(title, "quiet"), width=width), indent)
            case b.Table():
                self.put_all(table_lines(block, whole=self._whole), indent=indent)
            case b.Folded():
                self._put_line(b.Line(block.title, "strong"), indent)
                if self._whole or block.is_open:
                    self.put_all(block.blocks, indent=indent + 2)
            case b.Items():
                for item in block.items:
                    self._put_line(b.Line(item, indent=2), indent)
            case b.Code():
                for row in block.text.splitlines():
                    self._put_line(b.Line(row, indent=block.indent), indent)
            case b.Difference():
                for row in block.diff.splitlines():
                    style = DIFF_STYLES.get(row[:3], FIRST_STYLES.get(row[:1], QUIET))
                    text = Text(short_paths(printable(row[1:])), style)
                    self._flow(text, indent + 6, first=Text(f"  {row[:1]} ", style))
            case b.Sides():
                self._put_sides(block)
            case _:
                assert_never(block)

    def _put_line(self, line: b.Line, indent: int) -> None:
        begin = indent + line.indent
        start = begin + min(line.width, self._width // 3 + 2)  # a column of labels takes a third of the page at most
        first = Text(" " * begin).append_text(self._inline(line.label, line.mood))
        if line.width and line.content and cell_len(first.plain.rstrip()) + 1 > start:
            start = begin + line.hang  # this label is too long for the column
            first.append("" if first.plain.endswith(" ") else " ")
        first.append(" " * (start - cell_len(first.plain)))
        hang = start if line.width else begin + line.hang
        self._flow(self._inline(line.content, line.mood), hang, first=first)

    def _put_sides(self, sides: b.Sides) -> None:
        half = (self._width - 6) // 2
        words = [word for side in sides.sides for step in side.steps for word in self._inline(step).plain.split()]
        if len(sides.sides) == 1 or any(cell_len(word) > half - 3 for word in words):
            for side in sides.sides:
                self._put_line(b.Line(side.title, "strong", 2), 0)
                for at, step in enumerate(side.steps):
                    mark = b.bad("> ") if at == sides.marked else b.Span("  ")
                    self._put_line(b.Line((mark, step), indent=2, hang=5), 0)
            return
        columns = []
        for side in sides.sides:
            texts = [self._inline(b.Span(side.title, side.mood)), *map(self._inline, side.steps)]
            texts += [] if side.steps else [Text("(nothing)", QUIET)]
            columns.append([_wrapped(text, half - 3) for text in texts])
        for at, pair in enumerate(zip_longest(*columns, fillvalue=[Text()])):
            for number, (one, other) in enumerate(zip_longest(*pair, fillvalue=Text())):
                gutter = Text("> " if number == 0 and at - 1 == sides.marked else "  ", BAD)
                left, right = (Text("   ").append_text(text) if number else text for text in (one, other))
                gap = " " * (half - cell_len(left.plain)) + "  "
                self._add(Text.assemble(gutter, left, gap, gutter, right))

    def _flow(self, content: Text, indent: int, *, first: Text | None = None) -> None:
        """Add text as lines, the first line after `first`, the others indented."""
        begin = Text(" " * indent) if first is None else first
        if indent >= self._width // 2:
            indent = min(indent, max(self._width - _NARROWEST, 2))
        lines = _wrapped(content, self._width - indent, taken=cell_len(begin.plain) - indent)
        for number, line in enumerate(lines):
            self._add(Text.assemble(Text(" " * indent) if number else begin, line))

    def _add(self, line: Text) -> None:
        line.plain = line.plain.replace(_UNBROKEN, " ")
        line.rstrip()
        self._lines.append(line)

    def _inline(self, content: b.Inline, mood: b.Mood = "") -> Text:
        made = Text()
        for piece in _spans(content, mood):
            style = MOOD_STYLES[piece.mood]
            if isinstance(piece, b.Meter):
                made.append(" " + self._bar * round(piece.part / max(1, piece.whole) * _BAR), style)
            elif piece.kind == "source" and not piece.text.strip():
                made.append("(no debug text)", QUIET)
            elif piece.kind == "source":
                for number, found in enumerate(located(printable(piece.text))):
                    address = link_of(found, self._torch) if self._links else ""
                    made.append(" " if number else "")
                    made.append(found.text, Style.parse(style) + Style(link=address) if address else style)
            else:
                text = short_paths(printable(piece.text))
                text = text.replace(" ", _UNBROKEN) if piece.kind == "fix" else text
                made.append(text, Style.parse(style) + Style(link=piece.href) if piece.href else style)
        return made


def _wrapped(content: Text, width: int, *, taken: int = 0) -> list[Text]:
    """Return the lines of a text, which end between words; part of the first line is taken."""
    begins: list[int] = []
    start = 0
    for word in _WORD.finditer(content.plain):
        is_first = not begins
        needed = cell_len(content.plain[start : word.end()]) + (taken if is_first else 0)
        if needed > width and (word.start() > start or (is_first and taken > 0)):
            start = word.start()
            begins.append(start)
    return list(content.divide(begins))


_WORD = re.compile(r"\S+")
_UNBROKEN = "\ue000"
"""Stands for a blank at which no line ends."""


def _spans(content: b.Inline, mood: b.Mood) -> Iterator[b.Span | b.Meter]:
    match content:
        case str():
            yield b.Span(content, mood)
        case b.Span(text, mood=""):
            yield b.Span(text, mood, content.kind, content.href)
        case b.Span() | b.Meter():
            yield content
        case _:
            for piece in content:
                yield from _spans(piece, mood)
