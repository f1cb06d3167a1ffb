"""Coverage of a backend as text, as JSON and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dispatchlab.escape import printable
from dispatchlab.registry.coverage import CoverageReport, Covered, Way, WhatIf
from dispatchlab.render.as_json import as_json, fields_of, json_text

if TYPE_CHECKING:
    from rich.console import Console

_ROWS_SHOWN = 12


def coverage_text(report: CoverageReport) -> str:
    """The counts, the requested lists, and what each supposed registration would do."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: CoverageReport) -> Iterator[str]:
    found = report.coverage
    if report.no_answer:
        yield report.no_answer
    yield f"{found.key} in {found.registry}: {_operators(len(found.operators))}"
    for way in Way:
        number = len(found.by(way))
        if number or way in (Way.DIRECT, Way.COMPOSITE, Way.MISSING):
            yield f"  {way}: {number:,}{_of(report, way)}"
    if found.fallthrough:
        yield f"  ({found.fallthrough:,} of them fall through to the next key)"
    for way in report.listed:
        yield ""
        for each in found.by(way):
            yield _covered(each)
    for one in report.suppositions:
        yield ""
        yield from _supposed(one)
    if report.moved:
        yield ""
        yield f"{found.key} with all of it:"
        for moved in report.moved:
            yield f"  {moved.before} -> {moved.after}: {_operators(moved.operators)}, such as {moved.example}"


def _operators(number: int) -> str:
    return f"{number:,} operator{'' if number == 1 else 's'}"


def _of(report: CoverageReport, way: Way) -> str:
    sources = report.coverage.sources(way) if way is Way.COMPOSITE else ()
    return f" ({', '.join(f'{key} {number:,}' for key, number in sources)})" if sources else ""


def _covered(one: Covered) -> str:
    filled = one.filled
    source = f" at {filled.source}" if filled.way is Way.COMPOSITE else ""
    debug = f", {printable(one.debug)}" if one.debug else ""
    return f"{one.operator}: {filled.way}{source}{', falls through' if filled.fallthrough else ''}{debug}"


def _supposed(one: WhatIf) -> Iterator[str]:
    yield f"what if {one.text}{f' ({one.operator})' if one.operator else ''}:"
    if one.refused:
        yield f"  refused: {printable(one.refused)}"
        return
    for consequence in one.consequences:
        yield f"  {printable(consequence)}"
    for row in one.rows[:_ROWS_SHOWN]:
        yield f"  {row.key}: {printable(row.before) or 'nothing'} -> {printable(row.after) or 'nothing'}"
    if len(one.rows) > _ROWS_SHOWN:
        yield f"  and {len(one.rows) - _ROWS_SHOWN} more rows"
    if not one.rows:
        yield "  no row of its table changes"


def coverage_json(report: CoverageReport) -> str:
    """All of it; `version` says which fields there are."""
    found = report.coverage
    value = {
        "registry": found.registry,
        "no_answer": report.no_answer or None,
        "key": found.key,
        "counts": {way: len(found.by(way)) for way in Way},
        "fallthrough": found.fallthrough,
        "sources": dict(found.sources(Way.COMPOSITE)),
        "operators": found.operators,
        "what_if": report.suppositions,
        "moved": report.moved,
    }
    return json_text(value, indent=1)


@as_json.register
def _(value: Covered) -> dict[str, object]:
    return {"operator": value.operator, **fields_of(value.filled), "debug": value.debug}


@as_json.register
def _(value: WhatIf) -> dict[str, object]:
    return fields_of(value, operator=value.operator or None, refused=value.refused or None)


def print_coverage(console: Console, report: CoverageReport, *, torch: str = "") -> None:
    """Print a bar for each way, then what `coverage_text` says of the rest.

    Args:
        console: where to.
        report: what is covered.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
    """
    from rich.text import Text

    from dispatchlab.render.page import Page, words
    from dispatchlab.render.styles import QUIET, TITLE, WARNING

    page = Page(console, torch=torch)
    found = report.coverage
    if report.no_answer:
        page.line(report.no_answer, f"bold {WARNING}")
    page.line(f"{found.key} in {found.registry}: {_operators(len(found.operators))}", TITLE)
    styles = _way_styles()
    total = max(1, len(found.operators))
    for way in Way:
        number = len(found.by(way))
        if not number and way is Way.AMBIGUOUS:
            continue
        share = Text(f"  {way!s:<10}{number:>6,} {100 * number / total:>3.0f} %  ")
        page.flow([], first=share.append(page.bar(number / total, _BAR), styles[way]))
        page.flow(words(_of(report, way).strip(" ()"), QUIET), indent=4)
    if found.fallthrough:
        page.line(f"({found.fallthrough:,} of them fall through to the next key)", QUIET, indent=2)
    rest = list(_lines(report))
    for line in rest[rest.index("") :] if "" in rest else []:
        if not line:
            page.blank()
            continue
        indent = len(line) - len(line.lstrip())
        page.line(line, "" if indent else TITLE if line.endswith(":") else "", indent=indent)


_BAR = 30


def _way_styles() -> dict[Way, str]:
    from dispatchlab.render.styles import BAD, COMPOSITE, FALLBACK, KERNEL

    return {
        Way.DIRECT: KERNEL,
        Way.COMPOSITE: COMPOSITE,
        Way.FALLBACK: FALLBACK,
        Way.AMBIGUOUS: BAD,
        Way.MISSING: "red",
    }
