"""The report of `readiness`: the operators by what they have, the gaps with the calls that close them, every reason."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.analysis.readiness import Answer, Aspect, Readiness, Row
from dispatchlab.analysis.readiness import Cell as Said
from dispatchlab.render.html.elements import Html, breakable, element, joined
from dispatchlab.render.html.page import Section, page
from dispatchlab.render.html.parts import Cell, Mood, data_table, facts, folded, lines, paragraphs, verdict
from dispatchlab.render.readiness import MARKS, gaps_of, summary

_MOODS: dict[Answer, Mood] = {Answer.YES: "good", Answer.NO: "bad", Answer.NOT_NEEDED: "", Answer.UNKNOWN: "warn"}
_ORDER = (Answer.NO, Answer.UNKNOWN, Answer.NOT_NEEDED, Answer.YES)


def readiness_report(found: Readiness) -> str:
    """What the operators of some packages have."""
    sections = [
        Section("operators", "Operators", joined((_table(found), paragraphs([_LEGEND], kind="quiet")))),
        Section("gaps", "Gaps", _gaps(found)),
        Section("reasons", "Reasons", joined(_reasons(row) for row in found.rows)),
    ]
    if found.notes:
        sections.append(Section("notes", "Notes", paragraphs(found.notes)))
    return page("readiness", ", ".join(found.packages), joined(_lead(found)), sections)


_LEGEND = (
    "yes: it has it. NO: it lacks it. -: not needed. ?: only a run can decide, such as --inputs asks for. "
    "Each operator's reasons are below."
)


def _lead(found: Readiness) -> Iterator[Html]:
    bad = bool(found.with_gaps)
    text = "gaps in what is looked at" if bad else "not decided without a run" if found.undecided else "ready"
    yield element("p", verdict(text, "bad" if bad else "warn" if found.undecided else "good"))
    yield facts(
        (
            ("operators", f"{len(found.rows):,}"),
            ("ready", f"{found.ready:,}"),
            ("with gaps", f"{len(found.with_gaps):,}"),
            ("undecided", f"{len(found.undecided):,}"),
            ("PyTorch", found.torch),
        )
    )
    yield element("p", summary(found))
    yield element("p", f"Looked at: {', '.join(found.required) or 'nothing'}.", class_="quiet")


def _table(found: Readiness) -> Html:
    rows = [(Cell(row.operator, "name"), *(_mark(cell) for cell in row.cells)) for row in found.rows]
    bad = [at for at, row in enumerate(found.rows) if row in found.with_gaps]
    return data_table("Operators by what they have", ("operator", *map(str, Aspect)), rows, bad=bad)


def _mark(cell: Said) -> Cell:
    return Cell(verdict(MARKS[cell.answer], _MOODS[cell.answer]), "", _ORDER.index(cell.answer))


def _gaps(found: Readiness) -> Html:
    rows = [
        (
            Cell(str(aspect), "name"),
            len(members),
            Cell(breakable(reason), "prose"),
            Cell(_call(members[0][1]), "prose"),
            Cell(lines(name for name, _ in members), "code"),
        )
        for (aspect, reason), members in gaps_of(found)
    ]
    required = [at for at, ((aspect, _), _members) in enumerate(gaps_of(found)) if aspect in found.required]
    heads = ("column", "operators", "what is lacking", "what closes it, for the first", "operators that lack it")
    return data_table("Gaps, those that are looked at first", heads, rows, bad=required)


def _call(cell: Said) -> Html:
    if not cell.closes:
        return element("span", "")
    parts = [element("div", element("code", breakable(cell.closes)))]
    if cell.link:
        parts.append(element("div", element("a", "its documentation", href=cell.link)))
    return joined(parts)


def _reasons(row: Row) -> Html:
    cells = [
        (
            Cell(str(cell.aspect), "name"),
            Cell(verdict(str(cell.answer), _MOODS[cell.answer]), "", _ORDER.index(cell.answer)),
            Cell("a run" if cell.by_run else "what is registered"),
            Cell(breakable(cell.reason), "prose"),
            Cell(_call(cell), "prose"),
        )
        for cell in row.cells
    ]
    heads = ("column", "answer", "decided by", "through what, or why", "what closes it")
    return folded(row.operator, data_table(f"What {row.operator} has", heads, cells))
