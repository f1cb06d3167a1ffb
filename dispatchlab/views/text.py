"""Blocks as plain text, the contract: a line for each line, nothing wrapped unless a width is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import assert_never

from dispatchlab.escape import printable
from dispatchlab.views import blocks as b


def text_of(blocks: Iterable[b.Block], *, width: int | None = None) -> str:
    """Blocks as text.

    Args:
        blocks: what is shown.
        width: where lines are wrapped; None for nowhere.
    """
    return "".join(f"{printable(row)}\n" for row in rows_of(blocks, width))


def plain(content: b.Inline) -> str:
    """Inline text without anything but its characters."""
    match content:
        case str():
            return content
        case b.Span():
            return content.text
        case b.Meter():
            return ""
        case b.Names():
            return ", ".join(content.names)
        case _:
            return "".join(map(plain, content))


def rows_of(blocks: Iterable[b.Block], width: int | None = None) -> Iterator[str]:
    """The rows of text, without their line feeds."""
    for block in blocks:
        yield from _rows(block, width)


def _rows(block: b.Block, width: int | None) -> Iterator[str]:
    match block:
        case b.Line():
            yield from line_rows(block, width)
        case b.Section():
            yield ""
            yield block.title
            yield from rows_of(block.blocks, width)
        case b.Frame():
            yield from rows_of(block.blocks, width) if width is None or block.most is None else _cut_rows(block, width)
        case b.Verdict():
            yield f"{block.text}{plain(block.beside)}"
        case b.Facts():
            yield from (f"{title}: {_fact(value)}" for title, value in block.pairs)
        case b.Table():
            yield from rows_of(table_lines(block), width)
        case b.Matrix():
            yield from rows_of(matrix_lines(block), width)
        case b.Folded():
            yield plain(block.title)
            yield from (f"  {row}".rstrip() for row in rows_of(block.blocks, width))
        case b.Items():
            for number, item in enumerate(block.items, 1):
                yield f"  {f'{number}. ' if block.ordered else ''}{plain(item)}"
        case b.Code():
            yield from _indented(block.text, block.indent)
        case b.Difference():
            yield from _indented(block.diff, block.indent)
        case b.Sides():
            for side in block.sides:
                yield side.title
                yield from (f"  {step.text}" for step in side.steps)
        case b.Picture():
            pass
        case _:
            assert_never(block)


def line_rows(line: b.Line, width: int | None, *, broken: bool = True) -> list[str]:
    """The rows of a line.

    Args:
        line: the line.
        width: how wide they may be; None for one row.
        broken: whether a word that is longer than a row is broken.
    """
    first = f"{' ' * line.indent}{plain(line.label):<{line.width}}"
    content = printable(plain(line.content))
    if width is None or not content:
        return [f"{first}{content}"]
    rest = line.indent + (line.width or line.hang)
    return wrap(
        content,
        max(width, rest + 24),
        initial_indent=first,
        subsequent_indent=" " * rest,
        break_on_hyphens=False,
        break_long_words=broken,
    )


_CUT = " ..."


def _cut_rows(frame: b.Frame, width: int) -> Iterator[str]:
    for _, rows in cut_lines(frame, width):
        yield from rows


def cut_lines(frame: b.Frame, width: int, *, broken: bool = True) -> list[tuple[b.Line, list[str]]]:
    """The lines of a frame with their rows, the longest of them cut as far as it has to be.

    Args:
        frame: has lines alone.
        width: how wide rows may be.
        broken: whether a word that is longer than a row is broken.
    """
    lines = [line for line in frame.blocks if isinstance(line, b.Line)]
    made = [line_rows(line, width, broken=broken) for line in lines]
    while frame.most is not None and sum(map(len, made)) > frame.most and max(map(len, made)) > 1:
        at = max(range(len(made)), key=lambda at: (len(made[at]), at))
        rows = made[at][:-1]
        kept = rows[-1].removesuffix(_CUT)[: width - len(_CUT)].rstrip(" ,;")
        made[at] = [*rows[:-1], f"{kept}{_CUT}"]
    return list(zip(lines, made, strict=True))


def table_lines(table: b.Table) -> Iterator[b.Line]:
    """A table as lines: its columns below one another, the last one as long as it is."""
    rows = [tuple(_cell_text(cell) for cell in row) for row in table.rows]
    shown = [table.heads, *rows] if any(table.heads) else rows
    widths = [max(len(row[at]) for row in shown) for at in range(len(table.heads) - 1)] if shown else []
    for row in shown:
        *front, last = row
        label = "".join(f"{text:<{width}}  " for text, width in zip(front, widths, strict=True))
        yield b.Line(last, label=label, width=len(label))


_LONGEST_NAME = 40


def matrix_lines(matrix: b.Matrix) -> Iterator[b.Line]:
    """A matrix as lines: its answers below one another; a long name stands on a line of its own."""
    heads = tuple(b.quiet(short) for short, _ in matrix.columns)
    width = min(_LONGEST_NAME, max((len(name) for name, _ in matrix.rows), default=0))
    column = max((len(span.text) for span in (*heads, *matrix.order)), default=0) + 1
    for name, spans in (("", heads), *matrix.rows):
        if len(name) > width:
            yield b.Line(name)
        first = f"{name if len(name) <= width else '':<{width}}  "
        *front, last = spans
        padded = ((span, " " * (column - len(span.text))) for span in front)
        yield b.Line(label=(first, *padded, last))


def table_of(matrix: b.Matrix) -> b.Table:
    """A matrix as a table that can be sorted by its answers."""
    heads = (matrix.head, *(title for _, title in matrix.columns))
    ranks = {span.text: rank for rank, span in enumerate(matrix.order)}
    rows = (
        (b.Cell(name, "name"), *(b.Cell(span, "", ranks[span.text]) for span in spans)) for name, spans in matrix.rows
    )
    return b.Table(matrix.caption, heads, tuple(rows), matrix.marked)


def _cell_text(cell: b.Inline | int | b.Cell) -> str:
    content = cell.content if isinstance(cell, b.Cell) else cell
    match content:
        case int():
            return f"{content:,}"
        case b.Stack():
            return "; ".join(map(plain, content.lines))
        case b.Folded():
            return plain(content.title)
        case _:
            return plain(content)


def _fact(value: b.Inline | int) -> str:
    return f"{value:,}" if isinstance(value, int) else plain(value)


def _indented(text: str, indent: int) -> Iterator[str]:
    return (f"{' ' * indent}{line}".rstrip(" ") if indent else line for line in text.splitlines())
