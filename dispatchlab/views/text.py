"""Blocks as plain text, without wrapped lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from dispatchlab.escape import printable
from dispatchlab.views import blocks as b


def text_of(blocks: Iterable[b.Block], *, whole: bool = False) -> str:
    """Write blocks as text.

    Args:
        blocks: the blocks to show.
        whole: show every row of a table that has a limit.
    """
    return "".join(f"{printable(row)}\n" for row in rows_of(blocks, whole=whole))


def plain(content: b.Inline) -> str:
    """Return the characters of inline text."""
    match content:
        case str():
            return content
        case b.Span():
            return content.text
        case b.Meter():
            return ""
        case _:
            return "".join(map(plain, content))


def rows_of(blocks: Iterable[b.Block], *, whole: bool = True) -> Iterator[str]:
    """Return the rows of text, without their line feeds."""
    for block in blocks:
        yield from _rows(block, whole=whole)


def _rows(block: b.Block, *, whole: bool) -> Iterator[str]:
    match block:
        case b.Line():
            row = f"{' ' * block.indent}{plain(block.label):<{block.width}}{printable(plain(block.content))}"
            yield row if plain(block.content) or not block.label else row.rstrip()
        case b.Section():
            yield ""
            yield block.title
            yield from rows_of(block.blocks, whole=whole)
        case b.Verdict():
            yield f"{block.text}{plain(block.beside)}"
        case b.Facts():
            yield from (f"{title}: {value_text(value)}" for title, value in block.pairs)
        case b.Table():
            yield from rows_of(table_lines(block, whole=whole), whole=whole)
        case b.Folded():
            yield plain(block.title)
            if whole or block.is_open:
                yield from (f"  {row}".rstrip() for row in rows_of(block.blocks, whole=whole))
        case b.Items():
            yield from (f"  {plain(item)}" for item in block.items)
        case b.Code():
            yield from _indented(block.text, block.indent)
        case b.Difference():
            yield from _indented(block.diff, block.indent)
        case b.Sides():
            for side in block.sides:
                yield side.title
                yield from (f"  {step.text}" for step in side.steps)
        case _:
            assert_never(block)


_WIDEST = 48  # a column with a longer text stands below its row
_USUAL = 32  # a longer text takes more than its column


def table_lines(table: b.Table, *, whole: bool = True) -> Iterator[b.Line]:
    """Return a table as lines: short columns side by side, long columns below their row.

    Args:
        table: the table.
        whole: show all rows of a table that has a limit.
    """
    rows = table.rows if whole or table.most is None else table.rows[: table.most]
    cells = [[_cell_lines(cell, whole=whole) for cell in row] for row in rows]
    columns = range(len(table.heads))
    longest = [max((_length(line) for row in cells for line in row[at]), default=0) for at in columns]
    below = [at for at in columns[1:] if longest[at] > _WIDEST or any(len(row[at]) > 1 for row in cells)]
    if below == [columns[-1]] and all(len(row[-1]) < 2 for row in cells):
        below = []  # what comes last on a line is as long as it is
    below = [*columns[below[0] :]] if below else []
    is_pair = below == [1] and len(columns) == 2 and longest[0] <= _USUAL
    below = [] if is_pair else below
    shown = [at for at in columns if at not in below and any(row[at] and plain(row[at][0]) for row in cells)]
    lengths = {at: [_length(row[at][0]) for row in cells if row[at]] for at in shown}
    widths = [max([len(table.heads[at]), *(one for one in lengths[at] if one <= _USUAL)]) for at in shown]
    if any(table.heads) and len(shown) > 1:
        yield _columns([b.quiet(table.heads[at]) for at in shown], widths)
    for number, row in enumerate(cells):
        mood: b.Mood = "warn" if number in table.marked else ""
        yield _columns([row[at][0] if row[at] else "" for at in shown], widths, mood)
        for at in below:
            yield from (b.Line(line, "quiet", indent=6) for line in row[at] if plain(line))
        if is_pair:
            yield from (
                b.Line(line, "quiet", indent=2, label="", width=widths[0] + 2) for line in row[1][1:] if plain(line)
            )
    if len(rows) < len(table.rows):
        yield b.Line(f"... and {len(table.rows) - len(rows):,} more: see --all", "quiet", indent=2)


def _length(content: b.Inline) -> int:
    """Return the length of a text on a terminal, which shortens sources."""
    match content:
        case b.Span(kind="source"):
            from dispatchlab.views.source_locations import short_debug

            return min(len(short_debug(content.text)), _WIDEST)
        case tuple():
            return sum(map(_length, content))
        case _:
            return len(plain(content))


def _columns(texts: list[b.Inline], widths: list[int], mood: b.Mood = "") -> b.Line:
    """Return texts side by side, without padding the last one."""
    padded = [(text, " " * max(2, width + 2 - len(plain(text)))) for text, width in zip(texts, widths, strict=True)]
    return b.Line(texts[-1], mood, indent=2, label=tuple(padded[:-1]), width=sum(widths[:-1]) + 2 * len(widths[:-1]))


def _cell_lines(cell: b.Inline | int | b.Cell, *, whole: bool) -> tuple[b.Inline, ...]:
    """Return the lines of a cell."""
    content = cell.content if isinstance(cell, b.Cell) else cell
    match content:
        case int():
            return (f"{content:,}",)
        case b.Stack():
            return content.lines
        case b.Folded():
            return tuple(rows_of(content.blocks)) if whole else (content.title,)
        case _:
            return (content,)


def value_text(value: b.Inline | int) -> str:
    """Return a fact's value as text."""
    return f"{value:,}" if isinstance(value, int) else plain(value)


def _indented(text: str, indent: int) -> Iterator[str]:
    return (f"{' ' * indent}{line}".rstrip(" ") if indent else line for line in text.splitlines())
