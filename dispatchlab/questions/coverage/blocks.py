"""Coverage of a backend as a document: how it runs each operator."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.registries.backend_coverage import CoverageReport, Covered, Way
from dispatchlab.registries.debug_text import owner
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View

_MEANING = {
    Way.DIRECT: "a kernel at the key itself",
    Way.COMPOSITE: "a kernel at an alias key that covers it",
    Way.FALLBACK: "the backend fallback of the key, which coverage does not call",
    Way.AMBIGUOUS: "two kernels match, so a call raises",
    Way.MISSING: "no kernel for the operator, or none for its out overload: a call raises",
}
_MOODS: dict[Way, b.Mood] = {
    Way.DIRECT: "kernel",
    Way.COMPOSITE: "composite",
    Way.FALLBACK: "fallback",
}


def coverage_view(report: CoverageReport, *, torch: str = "") -> View[CoverageReport]:
    """Return the view of coverage.

    Args:
        report: the coverage.
        torch: the PyTorch version of the source locations; empty if unknown.
    """
    title = f"{report.coverage.key} in {report.coverage.registry}"
    return View(report, document=lambda _: b.Document("coverage", title, tuple(_blocks(report))), indent=1, torch=torch)


@as_json.register
def _(value: CoverageReport) -> dict[str, object]:
    found = value.coverage
    return fields_of(value, without=("coverage",)) | fields_of(
        found,
        counts={way: len(found.by(way)) for way in Way},
        fallthrough=found.fallthrough,
        stale=found.stale,
        sources=dict(found.sources(Way.COMPOSITE)),
    )


def _blocks(report: CoverageReport) -> Iterator[b.Block]:
    found = report.coverage
    yield b.Verdict(counted(len(found.operators), "operator"), "strong")
    if report.no_answer:
        yield b.Line(report.no_answer, "warn")
    if found.fallthrough:
        raises = any(one.filled.fallthrough for one in found.by(Way.MISSING))
        then = f"raises, as no key is below {found.key}" if raises else "goes on to the next key"
        count = counted(found.fallthrough, "operator")
        yield b.Line(f"fallthrough at {found.key}: {count}; a call {then}", "bad" if raises else "quiet")
    total = max(1, len(found.operators))
    if found.stale:
        yield b.Line(f"calls of {counted(found.stale, 'operator')} run another kernel than the table says", "bad")
    yield b.Table("", ("way", "operators", "part", "what runs"), tuple(_way(report, way, total) for way in Way))
    rows = tuple(_row(one) for one in found.operators if not report.listed or one.filled.way in report.listed)
    table = b.Table("", ("operator", "way", "kernel"), rows)
    ways = " and ".join(map(str, report.listed)) or "of all ways; --list WAY lists those of one way"
    title = f"{len(rows):,}, {ways}"
    yield b.Section("Operators", (b.Folded(title, (table,), is_open=bool(report.listed)),))


def _way(report: CoverageReport, way: Way, total: int) -> b.Row:
    number = len(report.coverage.by(way))
    sources = report.coverage.sources(way) if way is Way.COMPOSITE else ()
    at = ", ".join(f"{key} {count:,}" for key, count in sources)
    meter = b.Meter(number, total, f"{way}: part of all operators", _MOODS.get(way, "bad"))
    part = b.Cell((f"{100 * number / total:.1f} %", meter), "number", number)
    return (b.Cell(str(way), "name"), number, part, f"{_MEANING[way]}{f': {at}' if at else ''}")


def _row(one: Covered) -> b.Row:
    filled = one.filled
    at = f" at {filled.source}" if filled.way is Way.COMPOSITE else ""
    through = ", falls through" if filled.fallthrough else ""
    says = "" if filled.stale is None else owner(filled.stale.says) if filled.stale.says else "nothing"
    stale = f", a stale slot: the table says {says}" if says else f": calls {one.needs}" * bool(one.needs)
    return (b.Cell(one.operator, "name"), f"{filled.way}{at}{through}{stale}", b.Cell(b.source(one.debug), "code"))
