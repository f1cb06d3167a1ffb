"""Readiness for PyTorch 2 as text, as JSON and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dispatchlab.analysis.readiness import Answer, Aspect, Cell, Readiness
from dispatchlab.escape import printable
from dispatchlab.render.as_json import json_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from dispatchlab.render.page import Page

MARKS = {Answer.YES: "yes", Answer.NO: "NO", Answer.NOT_NEEDED: "-", Answer.UNKNOWN: "?"}
"""How an answer is shown in a table."""
_HEADS = {
    Aspect.CPU: "cpu",
    Aspect.CUDA: "cuda",
    Aspect.BACKENDS: "more",
    Aspect.FAKE: "fake",
    Aspect.AUTOGRAD: "grad",
    Aspect.FUNCTIONALIZE: "func",
    Aspect.VMAP: "vmap",
    Aspect.AUTOCAST: "cast",
    Aspect.DTENSOR: "dten",
    Aspect.EXPORT: "expt",
    Aspect.INDUCTOR: "indc",
    Aspect.SCHEMA: "schm",
    Aspect.TAGS: "tags",
}
_EXAMPLES = 3
_FEW = 3
"""How many operators are shown with every reason unasked."""
_NAME = 40


def summary(found: Readiness) -> str:
    """The result in one line, as on a badge."""
    total, gaps, open_ = len(found.rows), len(found.with_gaps), len(found.undecided)
    text = f"readiness of {', '.join(found.packages)}: {found.ready} of {total} operators ready"
    rest = [f"{gaps} with gaps"] * bool(gaps) + [f"{open_} that only a run can decide"] * bool(open_)
    return ", ".join([text, *rest])


def readiness_text(found: Readiness, *, complete: bool = False) -> str:
    """The summary, the table, and the gaps with the call that closes each."""
    return "".join(f"{printable(line)}\n" for line in _lines(found, complete=complete))


def _lines(found: Readiness, *, complete: bool) -> Iterator[str]:
    yield summary(found)
    yield f"PyTorch {found.torch}; looked at: {', '.join(found.required) or 'nothing'}"
    yield ""
    width = min(_NAME, max(len(row.operator) for row in found.rows))
    yield f"{'':<{width}}  {' '.join(f'{_HEADS[one]:<4}' for one in Aspect)}".rstrip()
    for row in found.rows:
        marks = " ".join(f"{MARKS[cell.answer]:<4}" for cell in row.cells).rstrip()
        if len(row.operator) > width:
            yield row.operator
        yield f"{row.operator if len(row.operator) <= width else '':<{width}}  {marks}"
    yield ""
    yield "yes: it has it; NO: it lacks it; -: not needed; ?: only a run can decide"
    yield (
        "more: other backends; func: functionalization of what it writes; dten: DTensor; expt: export; indc: Inductor; "
        "schm: what the schema says of aliases"
    )
    if complete or len(found.rows) <= _FEW:
        for row in found.rows:
            yield ""
            yield f"{row.operator}:"
            for cell in row.cells:
                yield f"  {cell.aspect:<13} {cell.answer}, {_because(cell)}"
                yield from _closing(cell, indent=16)
    else:
        yield from _gaps(found)


def _because(cell: Cell) -> str:
    match cell.answer:
        case Answer.YES:
            return f"through {cell.reason}"
        case _:
            return f"because {cell.reason}"


def _closing(cell: Cell, *, indent: int) -> Iterator[str]:
    if cell.closes:
        yield f"{'':<{indent}}{cell.closes}"
        yield f"{'':<{indent}}{cell.link}"


def gaps_of(found: Readiness) -> list[tuple[tuple[Aspect, str], list[tuple[str, Cell]]]]:
    """Each gap once, with the operators that have it; those of the columns that count first."""
    groups: dict[tuple[Aspect, str], list[tuple[str, Cell]]] = {}
    for row in found.rows:
        for cell in row.cells:
            if cell.answer is Answer.NO:
                groups.setdefault((cell.aspect, cell.reason), []).append((row.operator, cell))
    order = (*found.required, *(one for one in Aspect if one not in found.required))
    return sorted(groups.items(), key=lambda item: order.index(item[0][0]))


def _gaps(found: Readiness) -> Iterator[str]:
    groups = gaps_of(found)
    for (aspect, reason), members in groups:
        names = ", ".join(name for name, _ in members[:_EXAMPLES])
        more = len(members) - _EXAMPLES
        yield ""
        yield f"{aspect} ({len(members)}): {reason}"
        yield f"  {names}{f' and {more} more' if more > 0 else ''}"
        yield from _closing(members[0][1], indent=2)
    if not groups:
        yield ""
        yield "nothing is lacking"


def readiness_json(found: Readiness) -> str:
    """All cells; `version` says which fields there are."""
    value = {
        "packages": found.packages,
        "torch": found.torch,
        "summary": summary(found),
        "ready": found.ready,
        "with_gaps": tuple(row.operator for row in found.with_gaps),
        "undecided": tuple(row.operator for row in found.undecided),
        "required": found.required,
        "operators": tuple(
            {"operator": row.operator, "cells": {str(cell.aspect): _cell_json(cell) for cell in row.cells}}
            for row in found.rows
        ),
        "notes": found.notes,
    }
    return json_text(value, indent=1)


def _cell_json(cell: Cell) -> dict[str, object]:
    return {
        "answer": cell.answer,
        "reason": cell.reason,
        "closes": cell.closes or None,
        "documentation": cell.link or None,
        "by_run": cell.by_run,
    }


def print_readiness(console: Console, found: Readiness, *, complete: bool = False) -> None:
    """Print the same with colours; where the table is too wide, the columns of each operator by their answer."""
    from rich.text import Text

    from dispatchlab.render.page import Page
    from dispatchlab.render.styles import QUIET, TITLE

    page = Page(console, torch=found.torch, whole=complete)
    lines = list(_lines(found, complete=complete))
    table, rest = lines[3 : lines.index("", 3)], lines[lines.index("", 3) :]
    page.line(lines[0], TITLE)
    page.line(lines[1])
    page.blank()
    if max(map(len, table)) <= page.width:
        page.exact(Text(table[0], QUIET))
        for line in table[1:]:
            page.exact(_coloured(line, within=len(table[0]) - _COLUMNS_WIDE))
    else:
        _print_by_answer(page, found)
    for line in rest:
        if line:
            page.line(line.strip(), indent=len(line) - len(line.lstrip()))
        else:
            page.blank()


_COLUMNS_WIDE = 5 * len(Aspect) - 1
"""How wide the columns of the table are; each takes four letters and a blank."""


def _styles() -> dict[Answer, str]:
    from dispatchlab.render.styles import BAD, KERNEL, QUIET

    return {Answer.YES: KERNEL, Answer.NO: BAD, Answer.NOT_NEEDED: QUIET, Answer.UNKNOWN: QUIET}


def _coloured(line: str, *, within: int) -> Text:
    """A line of the table with its marks in colours."""
    from rich.text import Text

    styles = {MARKS[answer]: style for answer, style in _styles().items()}
    drawn = Text(printable(line))
    for begin in range(within, len(line), 5):
        mark = line[begin : begin + 4].strip()
        if mark in styles:
            drawn.stylize(styles[mark], begin, begin + len(mark))
    return drawn


def _print_by_answer(page: Page, found: Readiness) -> None:
    from rich.text import Text

    from dispatchlab.render.styles import TITLE

    for row in found.rows:
        page.line(printable(row.operator), TITLE)
        for answer, style in _styles().items():
            names = [str(cell.aspect) for cell in row.cells if cell.answer is answer]
            if names:
                words = [Text(name) for name in ", ".join(names).split()]
                page.field(MARKS[answer], words, width=5, style=style, indent=2)
