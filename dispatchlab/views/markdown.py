"""Blocks as Markdown, as GitHub shows it in pull requests: headings, lists, tables, and parts that open on request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import assert_never

from dispatchlab.escape import printable
from dispatchlab.views import blocks as b
from dispatchlab.views.source_locations import short_debug

_MOST_ROWS = 50
"""How many rows of a table are shown: a pull request takes 65,536 characters."""


def markdown_document(document: b.Document) -> str:
    """Write a document as Markdown."""
    title = f"## dispatchlab {document.command}: {_escaped(document.title)}"
    return _joined((title, *_blocks(document.blocks, 3)))


def markdown_of(blocks: Iterable[b.Block]) -> str:
    """Blocks as Markdown, without a title."""
    return _joined(_blocks(blocks, 3))


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _blocks(blocks: Iterable[b.Block], level: int) -> Iterator[str]:
    """Each block as a part that an empty line ends; lines that belong together are a part, too."""
    lines: list[b.Line] = []
    for block in blocks:
        if isinstance(block, b.Line) and block.content:
            lines.append(block)
            continue
        yield _lines(lines)
        lines = []
        if not isinstance(block, b.Line):
            yield from _block(block, level)
    yield _lines(lines)


def _lines(lines: list[b.Line]) -> str:
    """Lines as a list, nested as they are indented; lines without an indent are paragraphs."""
    parts = []
    around: list[int] = []  # the indents of the items that the next one is in
    for line in lines:
        text = _inline((*((line.label, " ") if line.label else ()), line.content), bold=line.mood)
        around = [indent for indent in around if indent < line.indent]
        parts.append(f"{'  ' * len(around)}- {text}" if line.indent else f"\n{text}\n")
        around += [line.indent] if line.indent else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).strip("\n")


def _block(block: b.Block, level: int) -> Iterator[str]:
    match block:
        case b.Line():
            yield _lines([block])
        case b.Section():
            yield f"{'#' * level} {_escaped(block.title)}"
            yield from _blocks(block.blocks, level + 1)
        case b.Verdict():
            yield f"**{_escaped(block.text)}**{_inline(block.beside)}"
        case b.Facts():
            yield "\n".join(f"- {_escaped(title)}: {_cell(value)}" for title, value in block.pairs)
        case b.Table():
            yield from _table(block)
        case b.Folded():
            yield f"<details{' open' if block.is_open else ''}><summary>{_inline(block.title, tags=True)}</summary>"
            yield from _blocks(block.blocks, level)
            yield "</details>"
        case b.Items():
            bullets = (f"{number}." if block.ordered else "-" for number in range(1, len(block.items) + 1))
            yield "\n".join(
                f"{bullet} {_inline(item, bold='warn' if at == block.marked else '')}"
                for at, (bullet, item) in enumerate(zip(bullets, block.items, strict=True))
            )
        case b.Code():
            yield _fenced(block.text)
        case b.Difference():
            yield _fenced(block.diff, "diff")
        case b.Sides():
            for side in block.sides:
                steps = (
                    f"{at + 1}. {_inline(b.Span(step.text, 'bad' if at == block.marked else step.mood))}"
                    for at, step in enumerate(side.steps)
                )
                yield "\n".join((f"**{_escaped(side.title)}**\n", *steps))
        case _:
            assert_never(block)


def _table(table: b.Table) -> Iterator[str]:
    if not table.rows:
        yield f"{_escaped(table.caption)}: none."
        return
    if table.caption:
        yield f"{_escaped(table.caption)} ({len(table.rows):,})"
    rows = [[_escaped(head) for head in table.heads], ["---"] * len(table.heads)]
    rows += [[_cell(cell) for cell in row] for row in table.rows[:_MOST_ROWS]]
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
    if len(table.rows) > _MOST_ROWS:
        yield f"and {len(table.rows) - _MOST_ROWS:,} more"


def _cell(cell: b.Inline | int | b.Cell) -> str:
    kind, content = (cell.kind, cell.content) if isinstance(cell, b.Cell) else ("", cell)
    match content:
        case int():
            return f"{content:,}"
        case b.Stack():
            return "<br>".join(_piece(line, kind) for line in content.lines)
        case b.Folded():
            return _inline(content.title)
        case _:
            return _piece(content, kind)


def _piece(content: b.Inline, kind: str) -> str:
    """What a cell shows; a text of a program as code."""
    if isinstance(content, str) and kind in ("name", "code"):
        return _code(content)
    return _inline(content)


def _inline(content: b.Inline, *, bold: str = "", tags: bool = False) -> str:
    """Inline text.

    Args:
        content: the text.
        bold: the mood of what has none of its own.
        tags: use HTML, as inside of an element.
    """
    match content:
        case str():
            content = b.Span(content, "strong" if bold in _BOLD else "")
        case b.Span():
            pass
        case b.Meter():
            return ""
        case _:
            return "".join(_inline(piece, bold=bold, tags=tags) for piece in content)
    stands_out = content.mood in _BOLD and content.kind in ("words", "mark") and content.text.strip()
    if tags:
        text = escape(printable(content.text))
        return f"<b>{text}</b>" if stands_out else text
    if content.kind in ("words", "mark"):
        text = _escaped(content.text)
    else:
        text = _code(short_debug(content.text) if content.kind == "source" else content.text)
    if stands_out:
        before, core, after = re.fullmatch(r"(\s*)(.*?)(\s*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        text = f"{before}**{core}**{after}"
    return f"[{text}]({content.href})" if content.href else text


_BOLD = ("strong", "bad", "warn")
_SPECIAL = re.compile(r"[\\`*\[\]<|~$]|(?<!\w)_|_(?!\w)")
_AT_THE_START = re.compile(r"^(\s*[0-9]*)([-+=#.)](?=[\s=#-])|>)")
_ENTITIES = str.maketrans({"&": "&amp;", "@": "&#64;"})


def _escaped(text: str) -> str:
    """A text whose characters mean nothing to Markdown or HTML."""
    one_line = " ".join(printable(text).split("\n"))
    escaped = _SPECIAL.sub(r"\\\g<0>", one_line).translate(_ENTITIES)
    return _AT_THE_START.sub(r"\1\\\2", escaped)


def _code(text: str) -> str:
    """A text as code on one line, also in a table."""
    shown = " ".join(printable(text).split())
    if not shown:
        return ""
    if "|" in shown or "`" in shown:
        return f"<code>{_escaped(shown)}</code>"  # a row of a table ends cells at `|` even in code
    return f"`{shown}`"


def _fenced(text: str, language: str = "") -> str:
    """A text as it is, in a fence that is longer than any in it."""
    longest = max((len(fence) for fence in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{printable(text).rstrip()}\n{fence}"
