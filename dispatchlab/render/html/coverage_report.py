"""The report of `coverage`: how a backend runs each operator, and what further registrations would change."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.registry.coverage import CoverageReport, Covered, Way, WhatIf
from dispatchlab.render.html.elements import Html, element, joined
from dispatchlab.render.html.page import Section, page
from dispatchlab.render.html.parts import Cell, Row, data_table, facts, held, paragraphs, short_debug

_MEANING = {
    Way.DIRECT: "a kernel at the key itself",
    Way.COMPOSITE: "a kernel at an alias key that covers it",
    Way.FALLBACK: "the backend fallback of the key",
    Way.AMBIGUOUS: "two kernels could be meant, and a call raises",
    Way.MISSING: "nothing, and a call raises",
}


def coverage_page(report: CoverageReport) -> str:
    """The coverage of a backend."""
    found = report.coverage
    return page("coverage", f"{found.key} in {found.registry}", _lead(report), [*_sections(report)])


def _lead(report: CoverageReport) -> Html:
    found = report.coverage
    runs = sum(len(found.by(way)) for way in (Way.DIRECT, Way.COMPOSITE, Way.FALLBACK))
    counted = [("operators", len(found.operators)), ("can run", runs), ("fall through", found.fallthrough)]
    return joined((paragraphs([report.no_answer] * bool(report.no_answer), kind="warn"), facts(counted)))


def _sections(report: CoverageReport) -> Iterator[Section]:
    found = report.coverage
    total = max(1, len(found.operators))
    ways = [
        (
            Cell(str(way), "name"),
            _MEANING[way],
            len(found.by(way)),
            Cell(f"{100 * len(found.by(way)) / total:.1f} %", "number", len(found.by(way))),
            element("meter", min=0, max=total, value=len(found.by(way)), aria_label=f"{way}: part of all operators"),
            ", ".join(f"{key} {number:,}" for key, number in found.sources(way)) if way is Way.COMPOSITE else "",
        )
        for way in Way
    ]
    heads: tuple[str, ...] = ("way", "what runs", "operators", "part", "as a bar", "registered at")
    yield Section("ways", "How calls are served", data_table(f"Operators by what {found.key} runs", heads, ways))
    for number, one in enumerate(report.suppositions):
        title = f"What if {one.text}{f' ({one.operator})' if one.operator else ''}"
        yield Section(f"what-if-{number}", title, _supposed(one))
    if report.moved:
        rows = [
            (Cell(str(one.before), "name"), Cell(str(one.after), "name"), one.operators, Cell(one.example, "name"))
            for one in report.moved
        ]
        heads = ("before", "after", "operators", "such as")
        yield Section("moved", "With all of it", data_table(f"How {found.key} is served then", heads, rows))
    heads = ("operator", "way", "registered at", "falls through", "kernel")
    listed = [each for each in found.operators if not report.listed or each.filled.way in report.listed]
    yield Section("operators", "Operators", data_table("Operators", heads, map(_covered, listed)))


def _covered(one: Covered) -> Row:
    return (
        Cell(one.operator, "name"),
        Cell(str(one.filled.way), "name", list(Way).index(one.filled.way)),
        Cell("" if one.filled.source is None else str(one.filled.source), "name"),
        "yes" if one.filled.fallthrough else "",
        Cell(short_debug(one.debug), "code"),
    )


def _supposed(one: WhatIf) -> Html:
    if one.refused:
        return element("p", f"Refused: {one.refused}", class_="bad")
    rows = [(Cell(row.key, "name"), Cell(held(row.before), "code"), Cell(held(row.after), "code")) for row in one.rows]
    return joined(
        (
            paragraphs(map(short_debug, one.consequences)),
            data_table("Rows of its table that change", ("key", "before", "after"), rows),
        )
    )
