"""Blocks for a terminal: words are wrapped and never broken, source locations are links, moods are colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import assert_never

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from dispatchlab.escape import printable
from dispatchlab.views import blocks as b
from dispatchlab.views.lines import Page
from dispatchlab.views.styles import BAD, DIFF_STYLES, FIRST_STYLES, MOOD_STYLES, QUIET
from dispatchlab.views.text import plain, table_lines

_BAR = 30
_OF_A_STEP = str.maketrans("+-", "-+")  # what a step adds is no defect


def draw(console: Console, blocks: Iterable[b.Block], *, torch: str = "", whole: bool = False) -> None:
    """Print blocks.

    Args:
        console: where to.
        blocks: what is shown.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
        whole: shorten nothing.
    """
    page = Page(console, torch=torch, whole=whole)
    draw_on(page, blocks)
    page.flush()


def draw_on(page: Page, blocks: Iterable[b.Block], *, indent: int = 0) -> None:
    """Print blocks below others.

    Args:
        page: where to.
        blocks: what is shown.
        indent: how far they stand to the right.
    """
    for block in blocks:
        _draw(page, block, indent)


def _draw(page: Page, block: b.Block, indent: int) -> None:
    match block:
        case b.Line():
            _line(page, block, indent)
        case b.Section():
            page.title(block.title, MOOD_STYLES[block.mood])
            draw_on(page, block.blocks, indent=indent)
        case b.Verdict():
            verdict = page.words(block.text, f"bold {MOOD_STYLES[block.mood].removeprefix('bold ')}")
            beside = inline_words(page, block.beside)
            if verdict and beside and not plain(block.beside)[:1].isspace():
                verdict[-1] = Text.assemble(verdict[-1], beside.pop(0))
            page.flow([*verdict, *beside], indent=indent)
        case b.Facts():
            width = max((len(title) for title, _ in block.pairs), default=0) + 2
            for title, value in block.pairs:
                content = f"{value:,}" if isinstance(value, int) else value
                _line(page, b.Line(content, label=b.Span(title, "quiet"), width=width), indent)
        case b.Table():
            draw_on(page, table_lines(block, whole=page.whole), indent=indent)
        case b.Folded():
            _line(page, b.Line(block.title, "strong"), indent)
            if page.whole or block.is_open:
                draw_on(page, block.blocks, indent=indent + 2)
        case b.Items():
            for number, item in enumerate(block.items, 1):
                _line(page, b.Line((f"{number}. " if block.ordered else "", item), indent=2), indent)
        case b.Code():
            for row in block.text.splitlines():
                _line(page, b.Line(row, indent=block.indent), indent)
        case b.Difference():
            for row in block.diff.splitlines():
                first = row[:1].translate(_OF_A_STEP) if block.is_step else row[:1]
                style = DIFF_STYLES.get(row[:3], FIRST_STYLES.get(first, QUIET))
                page.flow(page.words(row[1:], style), indent=indent + 6, first=Text(f"  {row[:1]} ", style))
        case b.Sides():
            _sides(page, block)
        case _:
            assert_never(block)


def _sides(page: Page, sides: b.Sides) -> None:
    if len(sides.sides) == 1:
        (only,) = sides.sides
        _line(page, b.Line(only.title, "strong", indent=2), 0)
        for step in only.steps:
            _line(page, b.Line(step, indent=4, hang=3), 0)
        return
    half = (page.width - 6) // 2
    columns = [
        [
            page.lines(page.words(side.title, MOOD_STYLES[side.mood]), first=Text(), width=half),
            *(page.lines(inline_words(page, step), indent=3, first=Text(), width=half) for step in side.steps),
            *([] if side.steps else [[Text("(nothing)", QUIET)]]),
        ]
        for side in sides.sides
    ]
    for at, (left, right) in enumerate(zip_longest(*columns, fillvalue=[Text()])):
        for number, (one, other) in enumerate(zip_longest(left, right, fillvalue=Text())):
            gutter = Text("> " if number == 0 and at - 1 == sides.marked else "  ", BAD)
            gap = Text(" " * (half - cell_len(one.plain)) + "  ")
            page.flow([Text.assemble(gutter, one, gap, gutter, other)], first=Text())


def _line(page: Page, line: b.Line, indent: int) -> None:
    if not line.content and not line.label:
        page.blank()
        return
    begin = indent + line.indent
    start = begin + min(line.width, page.width // 3 + 2)  # a column of labels takes a third of the page at most
    first = Text(" " * begin)
    for word in inline_pieces(page, line.label, line.mood):
        first.append_text(word)
    if line.width and line.content and cell_len(first.plain.rstrip()) + 1 > start:
        start = begin + line.hang  # this label is too long for the column
        first.append("" if first.plain.endswith(" ") else " ")
    first.append(" " * (start - cell_len(first.plain)))
    page.flow(
        inline_words(page, line.content, line.mood), indent=start if line.width else begin + line.hang, first=first
    )


def inline_words(page: Page, content: b.Inline, mood: b.Mood = "") -> list[Text]:
    """The words of inline text; pieces without a blank between them are one word.

    Args:
        page: what they stand on.
        content: the text.
        mood: the mood of what has none of its own.
    """
    made: list[Text] = []
    glued = False
    for piece in _spans(content, mood):
        if isinstance(piece, b.Meter):
            bar = page.bar(piece.part / max(1, piece.whole), _BAR)
            words, text = [Text(bar, MOOD_STYLES[piece.mood])] * bool(bar), bar
        else:
            style, text = MOOD_STYLES[piece.mood], piece.text
            words = page.source(text, style) if piece.kind == "source" else page.words(text, style)
            if piece.href:
                words = [Text(word.plain, Style.parse(style) + Style(link=piece.href)) for word in words]
        if made and words and glued and not text[:1].isspace():
            made[-1] = Text.assemble(made[-1], words.pop(0))
        made += words
        glued = not text[-1:].isspace() if text else glued
    return made


def inline_pieces(page: Page, content: b.Inline, mood: b.Mood = "") -> Iterator[Text]:
    """The same with its blanks as they are, for what stands in a column of its own."""
    for piece in _spans(content, mood):
        if isinstance(piece, b.Span):
            yield Text(printable(piece.text), MOOD_STYLES[piece.mood])


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
