"""What programs need of a backend, as blocks."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.model.program_run import MISSING
from dispatchlab.questions.coverage.program_coverage import NeededKernel, ProgramCoverage, ProgramOnDevice
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Block, Cell, Document, Facts, Line, Row, Section, Table
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View

_MOST = 0.8


def program_coverage_view(found: ProgramCoverage) -> View[ProgramCoverage]:
    """How the kernels that programs need are shown."""
    return View(found, lines=_lines, screen=_screen, document=_page, indent=1)


@as_json.register
def _(value: ProgramCoverage) -> object:
    return as_json({**fields_of(value), "missing": len(value.missing), "saved": value.saved})


def _lines(found: ProgramCoverage) -> Iterator[Block]:
    yield from _head(found)
    for one in found.kernels:
        yield Line()
        yield Line(f"{one.operator}: {counted(one.calls, 'call')}, {one.served_by}{', core' if one.is_core else ''}")
        if one.schema:
            yield Line(one.schema, "quiet", indent=2)
        if one.variants:
            yield Line(f"serves {', '.join(one.variants)}", "quiet", indent=2)
        if one.parts:
            yield Line(f"decomposes into {', '.join(one.parts)}", "quiet", indent=2)


def _screen(found: ProgramCoverage) -> Iterator[Block]:
    yield from _head(found)
    if found.kernels:
        yield Line()
        yield _table(found)


def _head(found: ProgramCoverage) -> Iterator[Line]:
    of = "with a fallback to the CPU" if found.has_fallback else "without a fallback"
    yield Line(f"{found.device} with the kernels of {found.registry}, {of}:", "strong")
    yield from _recorded(found)
    for one in found.programs:
        yield from _program(one, found)
    if found.kernels or found.tags:
        yield from _sentences(found)


def _recorded(found: ProgramCoverage) -> Iterator[Line]:
    if found.trace:
        yield Line(
            f"the calls are those of {found.trace}: what a kernel for another composite takes is not seen", indent=2
        )


def _sentences(found: ProgramCoverage) -> Iterator[Line]:
    """How many kernels, which first, and which a decomposition saves."""
    yield Line(_needed(found), "strong")
    if found.saved:
        have = "has a decomposition" if len(found.saved) == 1 else "have decompositions"
        of = f"{len(found.saved)} of them {have} in torch._decomp, made of the others"
        yield Line(f"{of}: {', '.join(found.saved)}")


def _needed(found: ProgramCoverage) -> str:
    """The sentence that says how many kernels, and which first."""
    tagged = f" with the tag {' and '.join(found.tags)}" if found.tags else ""
    if not found.needed:
        return f"no kernel{tagged} is needed" if tagged else "the fallback serves every call"
    first, missing = found.first_for(_MOST), len(found.missing)
    there = len(found.needed) - missing
    parts = f"{missing} to be written, {there} there" if there else "all to be written"
    if not missing:
        parts = "all there"
    number = counted(len(found.needed), "kernel")
    unseen = any(one.error or one.unserved for one in found.programs)
    if unseen or found.tags:
        verb = "is" if len(found.needed) == 1 else "are"
        what = f"{number}{tagged} {verb} needed{' as far as is seen' if unseen else ''}"
    else:
        runs = "this program" if len(found.programs) == 1 else "these programs"
        what = f"{number} {'makes' if len(found.needed) == 1 else 'make'} {runs} run"
    return f"{what} ({parts}); the first {first} of them take {_MOST:.0%} of their calls"


def _program(one: ProgramOnDevice, found: ProgramCoverage) -> Iterator[Line]:
    number = counted(one.calls, "call")
    if one.stops_at:
        yield Line(f"{one.program}: raises at {one.stops_at}; {number} in all", "bad", indent=2)
    elif not one.calls:
        text = (
            f"{one.program}: no call reaches the device; have the program name {found.device}, or give --default-device"
        )
        yield Line(text, "warn", indent=2)
    elif not one.unserved and not one.error:
        yield Line(f"{one.program}: runs; {number}", "good", indent=2)
    if one.unserved:
        text = f"{one.program}: no kernel of the CPU can stand in for {one.unserved}: what follows is not seen"
        yield Line(text, "warn", indent=2)
    if one.error:
        yield Line(f"{one.program}: raises {one.error.splitlines()[0]}: what follows is not seen", "warn", indent=2)


def _table(found: ProgramCoverage) -> Table:
    heads = ("operator", "calls", "served by", "core", "serves as well", "decomposes into", "schema")
    marked = frozenset(at for at, one in enumerate(found.kernels) if one.served_by == MISSING)
    return Table("Kernels, most needed first", heads, tuple(map(_row, found.kernels)), marked)


def _row(one: NeededKernel) -> Row:
    return (
        Cell(one.operator, "name"),
        Cell(f"{one.calls:,}", "number", one.calls),
        one.served_by,
        "yes" if one.is_core else "",
        Cell(", ".join(one.variants), "name"),
        Cell(", ".join(one.parts), "name"),
        Cell(one.schema.removeprefix(one.operator), "code"),
    )


def _page(found: ProgramCoverage) -> Document:
    facts = Facts(
        (
            ("kernels", len(found.needed)),
            ("to be written", len(found.missing)),
            ("calls", sum(one.calls for one in found.programs)),
        )
    )
    sections = (
        Section("Programs", tuple(line for one in found.programs for line in _program(one, found)), "programs"),
        Section(
            "Kernels", ((*_recorded(found), *_sentences(found), _table(found)) if found.kernels else ()), "kernels"
        ),
    )
    return Document("coverage", f"{found.device} with the kernels of {found.registry}", (facts, *sections))
