"""Coverage of a backend as blocks: how it runs each operator, and what further registrations would change."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.records.backend_coverage import CoverageReport, Covered, Way, WhatIf
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Block, Cell, Document, Facts, Line, Meter, Mood, Row, Section, Table, source
from dispatchlab.views.formatting import counted
from dispatchlab.views.source_locations import held, short_debug
from dispatchlab.views.view import View

_ROWS_SHOWN = 12
_MEANING = {
    Way.DIRECT: "a kernel at the key itself",
    Way.COMPOSITE: "a kernel at an alias key that covers it",
    Way.FALLBACK: "the backend fallback of the key",
    Way.AMBIGUOUS: "two kernels could be meant, and a call raises",
    Way.MISSING: "nothing, and a call raises",
}
_MOODS: dict[Way, Mood] = {
    Way.DIRECT: "kernel",
    Way.COMPOSITE: "composite",
    Way.FALLBACK: "fallback",
    Way.AMBIGUOUS: "bad",
    Way.MISSING: "bad",
}


def coverage_view(report: CoverageReport, *, torch: str = "") -> View[CoverageReport]:
    """How coverage is shown.

    Args:
        report: what is covered.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
    """
    return View(report, lines=_lines, screen=_screen, document=_page, indent=1, torch=torch)


@as_json.register
def _(value: CoverageReport) -> object:
    found = value.coverage
    return as_json(
        {
            "registry": found.registry,
            "no_answer": value.no_answer or None,
            "key": found.key,
            "counts": {way: len(found.by(way)) for way in Way},
            "fallthrough": found.fallthrough,
            "sources": dict(found.sources(Way.COMPOSITE)),
            "operators": found.operators,
            "what_if": value.suppositions,
            "moved": value.moved,
        }
    )


@as_json.register
def _(value: Covered) -> dict[str, object]:
    return {"operator": value.operator, **fields_of(value.filled), "debug": value.debug}


@as_json.register
def _(value: WhatIf) -> dict[str, object]:
    return fields_of(value, operator=value.operator or None, refused=value.refused or None)


# -- lines: the counts, the requested lists, and what each supposed registration would do


def _lines(report: CoverageReport) -> Iterator[Block]:
    yield from _head(report)
    for way in Way:
        number = len(report.coverage.by(way))
        if number or way in (Way.DIRECT, Way.COMPOSITE, Way.MISSING):
            sources = _sources(report, way)
            yield Line(f"{way}: {number:,}{f' ({sources})' if sources else ''}", indent=2)
    yield from _rest(report)


def _screen(report: CoverageReport) -> Iterator[Block]:
    """The same, with a bar for each way."""
    found = report.coverage
    yield from _head(report)
    total = max(1, len(found.operators))
    for way in Way:
        number = len(found.by(way))
        if number or way is not Way.AMBIGUOUS:
            label = f"{way!s:<10}{number:>6,} {100 * number / total:>3.0f} %  "
            yield Line(Meter(number, total, str(way), _MOODS[way]), label=label, width=len(label), indent=2)
        if sources := _sources(report, way):
            yield Line(sources, "quiet", indent=4, hang=0)
    yield from _rest(report)


def _head(report: CoverageReport) -> Iterator[Line]:
    if report.no_answer:
        yield Line(report.no_answer, "warn")
    found = report.coverage
    yield Line(f"{found.key} in {found.registry}: {counted(len(found.operators), 'operator')}", "strong")


def _sources(report: CoverageReport, way: Way) -> str:
    """The alias keys whose kernels serve calls."""
    sources = report.coverage.sources(way) if way is Way.COMPOSITE else ()
    return ", ".join(f"{key} {number:,}" for key, number in sources)


def _rest(report: CoverageReport) -> Iterator[Line]:
    found = report.coverage
    if found.fallthrough:
        yield Line(f"({found.fallthrough:,} of them fall through to the next key)", "quiet", indent=2)
    for way in report.listed:
        yield Line()
        yield from map(_covered, found.by(way))
    for supposed in report.suppositions:
        yield Line()
        yield from _supposed(supposed)
    if report.moved:
        yield Line()
        yield Line(f"{found.key} with all of it:", "strong")
        for moved in report.moved:
            number = counted(moved.operators, "operator")
            yield Line(f"{moved.before} -> {moved.after}: {number}, such as {moved.example}", indent=2)


def _covered(one: Covered) -> Line:
    filled = one.filled
    at = f" at {filled.source}" if filled.way is Way.COMPOSITE else ""
    debug = (", ", source(one.debug)) if one.debug else ""
    return Line((f"{one.operator}: {filled.way}{at}{', falls through' if filled.fallthrough else ''}", debug))


def _supposed(one: WhatIf) -> Iterator[Line]:
    yield Line(f"{_what_if(one)}:", "strong")
    if one.refused:
        yield Line(f"refused: {one.refused}", indent=2)
        return
    for consequence in one.consequences:
        yield Line(consequence, indent=2)
    for row in one.rows[:_ROWS_SHOWN]:
        yield Line(f"{row.key}: {row.before or 'nothing'} -> {row.after or 'nothing'}", indent=2)
    if len(one.rows) > _ROWS_SHOWN:
        yield Line(f"and {len(one.rows) - _ROWS_SHOWN} more rows", indent=2)
    if not one.rows:
        yield Line("no row of its table changes", indent=2)


def _what_if(one: WhatIf) -> str:
    return f"what if {one.text}{f' ({one.operator})' if one.operator else ''}"


# -- a page


def _page(report: CoverageReport) -> Document:
    found = report.coverage
    runs = sum(len(found.by(way)) for way in (Way.DIRECT, Way.COMPOSITE, Way.FALLBACK))
    facts = Facts((("operators", len(found.operators)), ("can run", runs), ("fall through", found.fallthrough)))
    lead = (*([Line(report.no_answer, "warn")] if report.no_answer else ()), facts)
    return Document("coverage", f"{found.key} in {found.registry}", (*lead, *_sections(report)))


def _sections(report: CoverageReport) -> Iterator[Section]:
    found = report.coverage
    total = max(1, len(found.operators))
    ways = tuple(_way(report, way, len(found.by(way)), total) for way in Way)
    heads: tuple[str, ...] = ("way", "what runs", "operators", "part", "registered at")
    table = Table(f"Operators by what {found.key} runs", heads, ways)
    yield Section("How calls are served", (table,), "ways")
    for number, one in enumerate(report.suppositions):
        title = _what_if(one)
        yield Section(f"{title[0].upper()}{title[1:]}", tuple(_consequences(one)), f"what-if-{number}")
    if report.moved:
        moved = tuple(
            (Cell(str(one.before), "name"), Cell(str(one.after), "name"), one.operators, Cell(one.example, "name"))
            for one in report.moved
        )
        table = Table(f"How {found.key} is served then", ("before", "after", "operators", "such as"), moved)
        yield Section("With all of it", (table,), "moved")
    heads = ("operator", "way", "registered at", "falls through", "kernel")
    listed = (one for one in found.operators if not report.listed or one.filled.way in report.listed)
    yield Section("Operators", (Table("Operators", heads, tuple(map(_row, listed))),), "operators")


def _way(report: CoverageReport, way: Way, number: int, total: int) -> Row:
    meter = Meter(number, total, f"{way}: part of all operators", _MOODS[way])
    part = Cell((meter, f" {100 * number / total:.1f} %"), "number", number)
    return (Cell(str(way), "name"), _MEANING[way], number, part, _sources(report, way))


def _row(one: Covered) -> Row:
    return (
        Cell(one.operator, "name"),
        Cell(str(one.filled.way), "name", list(Way).index(one.filled.way)),
        Cell("" if one.filled.source is None else str(one.filled.source), "name"),
        "yes" if one.filled.fallthrough else "",
        Cell(source(one.debug), "code"),
    )


def _consequences(one: WhatIf) -> Iterator[Block]:
    if one.refused:
        yield Line(f"Refused: {one.refused}", "bad")
        return
    yield from (Line(short_debug(consequence)) for consequence in one.consequences)
    rows = tuple(
        (Cell(row.key, "name"), Cell(held(row.before), "code"), Cell(held(row.after), "code")) for row in one.rows
    )
    yield Table("Rows of its table that change", ("key", "before", "after"), rows)
