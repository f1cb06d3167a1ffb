"""Readiness for PyTorch 2 as blocks: the operators by what they have, and the gaps with the calls that close them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dispatchlab.questions.readiness.operator_readiness import RUN_ONLY, Answer, Aspect, Cell, Failure, Readiness, Row
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json
from dispatchlab.views.formatting import first_of
from dispatchlab.views.view import View

_ANSWERS: dict[Answer, tuple[str, b.Mood]] = {
    Answer.NO: ("NO", "bad"),
    Answer.UNKNOWN: ("?", "warn"),
    Answer.NOT_NEEDED: ("-", "quiet"),
    Answer.REGISTERED: ("reg", "quiet"),
    Answer.YES: ("yes", "good"),
}
"""How an answer is shown in a table, the most harmful first."""
_HEADS = {
    Aspect.BACKENDS: "more",
    Aspect.DYNAMIC_SHAPES: "dyn",
    Aspect.AUTOGRAD: "grad",
    Aspect.SECOND_ORDER: "grd2",
    Aspect.FUNCTIONALIZE: "func",
    Aspect.AUTOCAST: "cast",
    Aspect.DTENSOR: "dten",
    Aspect.EXPORT: "expt",
    Aspect.EXPORT_DYNAMIC: "expd",
    Aspect.INDUCTOR: "indc",
    Aspect.AOT_PACKAGE: "aotp",
    Aspect.REPEAT: "rept",
    Aspect.STRIDES: "strd",
    Aspect.EMPTY: "zero",
    Aspect.TEST_SCHEMA: "schm",
    Aspect.TEST_AUTOGRAD_REGISTRATION: "areg",
    Aspect.TEST_FAKETENSOR: "ftns",
    Aspect.TEST_AOT_DISPATCH_DYNAMIC: "aotd",
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
    rest += [f"{len(found.registered)} registered and not run"] * bool(found.registered)
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
            "registered": tuple(row.operator for row in value.registered),
            "required": value.required,
            "known": None if value.known is None else tuple(map(_failure_json, sorted(value.known))),
            "new_failures": tuple(map(_failure_json, value.new_failures)),
            "fixed": tuple(map(_failure_json, value.fixed)),
            "operators": tuple(
                {"operator": row.operator, "cells": {str(cell.aspect): _cell_json(cell) for cell in row.cells}}
                for row in value.rows
            ),
            "notes": value.notes,
        }
    )


def _failure_json(failure: Failure) -> dict[str, object]:
    return {"operator": failure[0], "column": failure[1]}


def _cell_json(cell: Cell) -> dict[str, object]:
    return {
        "answer": cell.answer,
        "reason": cell.reason,
        "closes": cell.closes or None,
        "documentation": cell.link or None,
        "by_run": cell.by_run,
    }


# -- lines: the summary, the table, and the gaps with the call that closes each


def _lines(found: Readiness, *, complete: bool) -> Iterator[b.Block]:
    yield b.Line(summary(found), "strong")
    yield b.Line(f"PyTorch {found.torch}; looked at: {', '.join(found.required) or 'nothing'}")
    yield from _baseline_lines(found)
    yield b.Line()
    yield _matrix(found)
    yield b.Line()
    yield b.Line(_LEGEND)
    heads = {aspect: head for aspect, head in _HEADS.items() if aspect in _shown(found)}
    yield b.Line("; ".join(f"{head}: {aspect}" for aspect, head in heads.items()))
    if complete or len(found.rows) <= _FEW:
        for row in found.rows:
            yield b.Line()
            yield b.Line(f"{row.operator}:")
            for cell in row.cells:
                why = "through" if cell.answer in (Answer.YES, Answer.REGISTERED) else "because"
                label = f"{cell.aspect:<26} "
                yield b.Line(f"{cell.answer}, {why} {cell.reason}", indent=2, label=label, width=len(label))
                yield from _closing(cell, indent=29)
    else:
        yield from _gap_lines(found)


_LEGEND = (
    "yes: a run shows that it works; reg: what it needs is registered, and no run shows that it works; NO: it lacks "
    "it; -: not needed; ?: only a run can decide"
)


def _shown(found: Readiness) -> tuple[Aspect, ...]:
    """The columns of the table: those that only runs decide are left out where nothing was run."""
    columns = (aspect for aspect in Aspect if aspect in found.required or aspect not in RUN_ONLY)
    return tuple(Aspect) if any(cell.by_run for row in found.rows for cell in row.cells) else tuple(columns)


def _matrix(found: Readiness) -> b.Matrix:
    return b.Matrix(
        "Operators by what they have",
        "operator",
        tuple((_HEADS.get(aspect, str(aspect)), str(aspect)) for aspect in _shown(found)),
        tuple(
            (row.operator, tuple(b.mark(*_ANSWERS[row.cell(aspect).answer]) for aspect in _shown(found)))
            for row in found.rows
        ),
        tuple(b.mark(*answer) for answer in _ANSWERS.values()),
        frozenset(at for at, row in enumerate(found.rows) if row in found.with_gaps),
    )


def _baseline_lines(found: Readiness) -> Iterator[b.Line]:
    if found.known is None:
        return
    for failures, text in ((found.new_failures, "new failures"), (found.fixed, "known failures that fail no more")):
        names = ", ".join(f"{operator} {column}" for operator, column in failures)
        yield b.Line(f"{text}: {names or 'none'}")


def _closing(cell: Cell, *, indent: int) -> Iterator[b.Line]:
    if cell.closes:
        yield b.Line(cell.closes, indent=indent)
        yield b.Line(cell.link, indent=indent)


def _gaps(found: Readiness) -> list[tuple[Aspect, str, list[tuple[str, Cell]]]]:
    """Each gap once, with the operators that have it; those of the columns that count first.

    What a run says is the same gap on other inputs: the reason is that of the first operator.
    """
    groups: dict[tuple[Aspect, str], list[tuple[str, Cell]]] = {}
    for row in found.rows:
        for cell in row.cells:
            if cell.answer is Answer.NO:
                said = cell.reason.partition("): ")[2] if cell.reason.startswith("on (") else ""
                said = said.replace(row.operator.replace("::", "."), "")
                groups.setdefault((cell.aspect, said or cell.reason), []).append((row.operator, cell))
    order = (*found.required, *(aspect for aspect in Aspect if aspect not in found.required))
    gaps = [(aspect, members[0][1].reason, members) for (aspect, _), members in groups.items()]
    return sorted(gaps, key=lambda gap: order.index(gap[0]))


def _gap_lines(found: Readiness) -> Iterator[b.Line]:
    groups = _gaps(found)
    for aspect, reason, members in groups:
        first = ", the first" if len(members) > 1 and reason.startswith("on (") else ""
        yield b.Line()
        yield b.Line(f"{aspect} ({len(members)}){first}: {reason}")
        yield b.Line(first_of([name for name, _ in members], _EXAMPLES), indent=2)
        yield from _closing(members[0][1], indent=2)
    if not groups:
        yield b.Line()
        yield b.Line("nothing is lacking")


# -- a page: the same with every reason


def _page(found: Readiness) -> b.Page:
    is_bad = bool(found.with_gaps)
    is_open = bool(found.undecided or found.registered)
    text = "gaps in what is looked at" if is_bad else "not decided without a run" if is_open else "ready"
    facts = b.Facts(
        (
            ("operators", len(found.rows)),
            ("ready", found.ready),
            ("with gaps", len(found.with_gaps)),
            ("undecided", len(found.undecided)),
            ("registered and not run", len(found.registered)),
            ("PyTorch", found.torch),
        )
    )
    lead: tuple[b.Block, ...] = (
        b.Verdict(text, "bad" if is_bad else "warn" if is_open else "good"),
        facts,
        b.Line(summary(found)),
        b.Line(f"Looked at: {', '.join(found.required) or 'nothing'}.", "quiet"),
        *_baseline_lines(found),
    )
    legend = f"{_LEGEND}. Each operator's reasons are below."
    notes = (b.Section("Notes", tuple(map(b.Line, found.notes)), "notes"),) if found.notes else ()
    sections = (
        b.Section("Operators", (_matrix(found), b.Line(legend, "quiet")), "operators"),
        b.Section("Gaps", (_gap_table(found),), "gaps"),
        b.Section("Reasons", tuple(map(_reasons, found.rows)), "reasons"),
        *notes,
    )
    return b.Page("readiness", ", ".join(found.packages), lead, sections)


def _gap_table(found: Readiness) -> b.Table:
    gaps = _gaps(found)
    rows = tuple(
        (
            b.Cell(str(aspect), "name"),
            len(members),
            b.Cell(reason, "prose"),
            b.Cell(_call(members[0][1]), "prose"),
            b.Cell(b.Stack(tuple(name for name, _ in members)), "code"),
        )
        for aspect, reason, members in gaps
    )
    required = frozenset(at for at, (aspect, _, _members) in enumerate(gaps) if aspect in found.required)
    heads = ("column", "operators", "what is lacking", "what closes it, for the first", "operators that lack it")
    return b.Table("Gaps, those that are looked at first", heads, rows, required)


def _call(cell: Cell) -> b.Stack:
    if not cell.closes:
        return b.Stack(())
    documentation = (b.Span("its documentation", href=cell.link),) if cell.link else ()
    return b.Stack((b.code(cell.closes), *documentation))


def _reasons(row: Row) -> b.Folded:
    cells = tuple(
        (
            b.Cell(str(cell.aspect), "name"),
            b.Cell(b.mark(str(cell.answer), _ANSWERS[cell.answer][1]), "", list(_ANSWERS).index(cell.answer)),
            "a run" if cell.by_run else "what is registered",
            b.Cell(cell.reason, "prose"),
            b.Cell(_call(cell), "prose"),
        )
        for cell in row.cells
    )
    heads = ("column", "answer", "decided by", "through what, or why", "what closes it")
    return b.Folded(row.operator, (b.Table(f"What {row.operator} has", heads, cells),))
