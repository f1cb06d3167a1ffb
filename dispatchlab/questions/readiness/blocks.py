"""Readiness for PyTorch 2 as blocks: the operators by what they have, and the gaps with the calls that close them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dispatchlab.questions.readiness.operator_readiness import Answer, Aspect, Readiness, Row
from dispatchlab.questions.readiness.operator_readiness import Cell as Known
from dispatchlab.views.as_json import as_json
from dispatchlab.views.blocks import (
    Block,
    Cell,
    Facts,
    Folded,
    Line,
    Matrix,
    Mood,
    Page,
    Section,
    Span,
    Stack,
    Table,
    Verdict,
    code,
    mark,
)
from dispatchlab.views.view import View

_ANSWERS: dict[Answer, tuple[str, Mood]] = {
    Answer.NO: ("NO", "bad"),
    Answer.UNKNOWN: ("?", "warn"),
    Answer.NOT_NEEDED: ("-", "quiet"),
    Answer.YES: ("yes", "good"),
}
"""How an answer is shown in a table, the most harmful first."""
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


def readiness_view(found: Readiness, *, complete: bool = False) -> View[Readiness]:
    """How readiness is shown.

    Args:
        found: what the operators have.
        complete: show every reason.
    """
    return View(
        found, lines=partial(_lines, complete=complete), page=_page, indent=1, torch=found.torch, whole=complete
    )


def summary(found: Readiness) -> str:
    """The result in one line, as on a badge."""
    total, gaps, open_ = len(found.rows), len(found.with_gaps), len(found.undecided)
    text = f"readiness of {', '.join(found.packages)}: {found.ready} of {total} operators ready"
    rest = [f"{gaps} with gaps"] * bool(gaps) + [f"{open_} that only a run can decide"] * bool(open_)
    return ", ".join([text, *rest])


@as_json.register
def _(value: Readiness) -> object:
    return as_json(
        {
            "packages": value.packages,
            "torch": value.torch,
            "summary": summary(value),
            "ready": value.ready,
            "with_gaps": tuple(row.operator for row in value.with_gaps),
            "undecided": tuple(row.operator for row in value.undecided),
            "required": value.required,
            "operators": tuple(
                {"operator": row.operator, "cells": {str(cell.aspect): _cell_json(cell) for cell in row.cells}}
                for row in value.rows
            ),
            "notes": value.notes,
        }
    )


def _cell_json(cell: Known) -> dict[str, object]:
    return {
        "answer": cell.answer,
        "reason": cell.reason,
        "closes": cell.closes or None,
        "documentation": cell.link or None,
        "by_run": cell.by_run,
    }


# -- lines: the summary, the table, and the gaps with the call that closes each


def _lines(found: Readiness, *, complete: bool) -> Iterator[Block]:
    yield Line(summary(found), "strong")
    yield Line(f"PyTorch {found.torch}; looked at: {', '.join(found.required) or 'nothing'}")
    yield Line()
    yield _matrix(found)
    yield Line()
    yield Line("yes: it has it; NO: it lacks it; -: not needed; ?: only a run can decide")
    yield Line(
        "more: other backends; func: functionalization of what it writes; dten: DTensor; expt: export; indc: Inductor; "
        "schm: what the schema says of aliases"
    )
    if complete or len(found.rows) <= _FEW:
        for row in found.rows:
            yield Line()
            yield Line(f"{row.operator}:")
            for cell in row.cells:
                why = "through" if cell.answer is Answer.YES else "because"
                label = f"{cell.aspect:<13} "
                yield Line(f"{cell.answer}, {why} {cell.reason}", indent=2, label=label, width=len(label))
                yield from _closing(cell, indent=16)
    else:
        yield from _gap_lines(found)


def _matrix(found: Readiness) -> Matrix:
    return Matrix(
        "Operators by what they have",
        "operator",
        tuple((_HEADS[aspect], str(aspect)) for aspect in Aspect),
        tuple((row.operator, tuple(mark(*_ANSWERS[cell.answer]) for cell in row.cells)) for row in found.rows),
        tuple(mark(*answer) for answer in _ANSWERS.values()),
        frozenset(at for at, row in enumerate(found.rows) if row in found.with_gaps),
    )


def _closing(cell: Known, *, indent: int) -> Iterator[Line]:
    if cell.closes:
        yield Line(cell.closes, indent=indent)
        yield Line(cell.link, indent=indent)


def _gaps(found: Readiness) -> list[tuple[tuple[Aspect, str], list[tuple[str, Known]]]]:
    """Each gap once, with the operators that have it; those of the columns that count first."""
    groups: dict[tuple[Aspect, str], list[tuple[str, Known]]] = {}
    for row in found.rows:
        for cell in row.cells:
            if cell.answer is Answer.NO:
                groups.setdefault((cell.aspect, cell.reason), []).append((row.operator, cell))
    order = (*found.required, *(aspect for aspect in Aspect if aspect not in found.required))
    return sorted(groups.items(), key=lambda item: order.index(item[0][0]))


def _gap_lines(found: Readiness) -> Iterator[Line]:
    groups = _gaps(found)
    for (aspect, reason), members in groups:
        names = ", ".join(name for name, _ in members[:_EXAMPLES])
        more = len(members) - _EXAMPLES
        yield Line()
        yield Line(f"{aspect} ({len(members)}): {reason}")
        yield Line(f"{names}{f' and {more} more' if more > 0 else ''}", indent=2)
        yield from _closing(members[0][1], indent=2)
    if not groups:
        yield Line()
        yield Line("nothing is lacking")


# -- a page: the same with every reason


def _page(found: Readiness) -> Page:
    is_bad = bool(found.with_gaps)
    text = "gaps in what is looked at" if is_bad else "not decided without a run" if found.undecided else "ready"
    facts = Facts(
        (
            ("operators", len(found.rows)),
            ("ready", found.ready),
            ("with gaps", len(found.with_gaps)),
            ("undecided", len(found.undecided)),
            ("PyTorch", found.torch),
        )
    )
    lead = (
        Verdict(text, "bad" if is_bad else "warn" if found.undecided else "good"),
        facts,
        Line(summary(found)),
        Line(f"Looked at: {', '.join(found.required) or 'nothing'}.", "quiet"),
    )
    legend = (
        "yes: it has it. NO: it lacks it. -: not needed. ?: only a run can decide, such as --inputs asks for. "
        "Each operator's reasons are below."
    )
    notes = (Section("Notes", tuple(map(Line, found.notes)), "notes"),) if found.notes else ()
    sections = (
        Section("Operators", (_matrix(found), Line(legend, "quiet")), "operators"),
        Section("Gaps", (_gap_table(found),), "gaps"),
        Section("Reasons", tuple(map(_reasons, found.rows)), "reasons"),
        *notes,
    )
    return Page("readiness", ", ".join(found.packages), lead, sections)


def _gap_table(found: Readiness) -> Table:
    gaps = _gaps(found)
    rows = tuple(
        (
            Cell(str(aspect), "name"),
            len(members),
            Cell(reason, "prose"),
            Cell(_call(members[0][1]), "prose"),
            Cell(Stack(tuple(name for name, _ in members)), "code"),
        )
        for (aspect, reason), members in gaps
    )
    required = frozenset(at for at, ((aspect, _), _members) in enumerate(gaps) if aspect in found.required)
    heads = ("column", "operators", "what is lacking", "what closes it, for the first", "operators that lack it")
    return Table("Gaps, those that are looked at first", heads, rows, required)


def _call(cell: Known) -> Stack:
    if not cell.closes:
        return Stack(())
    documentation = (Span("its documentation", href=cell.link),) if cell.link else ()
    return Stack((code(cell.closes), *documentation))


def _reasons(row: Row) -> Folded:
    cells = tuple(
        (
            Cell(str(cell.aspect), "name"),
            Cell(mark(str(cell.answer), _ANSWERS[cell.answer][1]), "", list(_ANSWERS).index(cell.answer)),
            "a run" if cell.by_run else "what is registered",
            Cell(cell.reason, "prose"),
            Cell(_call(cell), "prose"),
        )
        for cell in row.cells
    )
    heads = ("column", "answer", "decided by", "through what, or why", "what closes it")
    return Folded(row.operator, (Table(f"What {row.operator} has", heads, cells),))
