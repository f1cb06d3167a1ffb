"""The report on scenarios as one document: the verdict, its cause and fix, both orders, and what differs after them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import TABLES
from dispatchlab.prover.checker import diff_sections
from dispatchlab.prover.result import Counterexample, Expectation, Exploration, Verdict
from dispatchlab.questions.order.report import Explored, Report
from dispatchlab.questions.order.report_text import counts, reductions_text, sequence_names, step_text
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted, digits, readable, seconds
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.questions.order.reasons import Reason

VERDICT_MOODS: dict[Verdict, b.Mood] = {
    Verdict.ORDER_INDEPENDENT: "good",
    Verdict.NO_VIOLATION_FOUND: "warn",
    Verdict.ORDER_DEPENDENT: "bad",
    Verdict.INCOMPLETE: "warn",
    Verdict.NONDETERMINISTIC: "bad",
    Verdict.CRASHED: "bad",
}
"""What a verdict is for its reader."""

_NO_VIOLATION = (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)
_DECIDED = (*_NO_VIOLATION, Verdict.ORDER_DEPENDENT)

_MOST_LINES = 13
_PROGRAM = "A program that shows it wherever PyTorch is installed; --save FILE.py keeps it."


def report_view(report: Report, *, details: bool = False) -> View[object]:
    """Return the view of the report on one scenario, with details of the exploration."""
    return explored_view(Explored(report), details=details)


def explored_view(
    one: Explored, *, program: str = "", torch: str = "", details: bool = False, is_last: bool = True
) -> View[object]:
    """Return the view of a scenario.

    Args:
        one: the report, with further things to show.
        program: a program that shows a violation; empty without one.
        torch: the PyTorch version of the source locations; empty if unknown.
        details: also show the details of the exploration.
        is_last: whether no other scenario follows.
    """
    value: object = one.report
    if one.snapshots is not None:
        found = as_json(one.report)
        assert isinstance(found, dict)
        value = {**found, "snapshots": one.snapshots}
    after = (b.Line(), b.Line(f"# {_PROGRAM}"), b.Code(program)) if program else () if is_last else (b.Line(),)
    return View(
        value,
        document=lambda _: permute_document([one], after=after, details=details),
        torch=torch,
        whole=details,
    )


def failure_text(report: Report) -> str:
    """Return the text of a failing test: the verdict with its cause in the first line, and at most 15 lines."""
    head, *lines = report_view(report).text().splitlines()
    cause = report.reason.cause if report.reason is not None else report.verdict_text
    others = (line for line in lines if line and not line.startswith("cause: "))
    lines = [f"{report.exploration.verdict}: {cause}", head, *others]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], "..."]
    accepts = report.exploration.verdict is Verdict.ORDER_DEPENDENT
    accept = f"; if it is right, write `expect: order-dependent` into {report.scenario}" if accepts else ""
    return "\n".join([*lines, f"all of it: dispatchlab permute {report.scenario}{accept}"])


@as_json.register
def _(report: Report) -> dict[str, object]:
    found = report.exploration
    own = fields_of(report, without=("exploration", "registrations"), registration_texts=report.registrations)
    notes = *found.notes, *report.notes
    return own | fields_of(found, orders=digits(found.orders), standing=report.standing, notes=notes)


@as_json.register
def _(value: Counterexample) -> dict[str, object]:
    expected, actual = map(format_sequence, (value.expected_sequence, value.actual_sequence))
    return fields_of(value, expected_sequence=expected, actual_sequence=actual)


def permute_document(
    explored: Sequence[Explored],
    *,
    failed: Sequence[str] = (),
    summary: str = "",
    interrupted: bool = False,
    after: Sequence[b.Block] = (),
    details: bool = True,
) -> b.Document:
    """Return the report on one scenario or several.

    Args:
        explored: the explored scenarios.
        failed: a sentence for each scenario that could not be explored.
        summary: the line that ends the reports of several scenarios.
        interrupted: whether Ctrl-C ended the work.
        after: what to show after one scenario.
        details: also show the details of the exploration.
    """
    blocks: list[b.Block] = [b.Line("Interrupted: this is what was covered until then.", "bad")] * interrupted
    if len(explored) == 1 and not failed:
        (only,) = explored
        title = only.report.scenario or "registrations"
        return b.Document("permute", title, (*blocks, *_blocks(only, details=details), *after))
    blocks += [b.Line(summary), *([b.Section("Not explored", tuple(map(b.Line, failed)))] if failed else [])]
    rows = (_row(f"#s{at}", one.report) for at, one in enumerate(explored))
    heads = ("scenario", "claim", "verdict", "as expected", "registrations", "sets", "orders", "elapsed")
    blocks += b.part(
        "Overview", heads, rows, marked=(at for at, one in enumerate(explored) if not one.report.as_expected)
    )
    parts = tuple(
        b.Folded(one.report.scenario, tuple(_blocks(one)), is_open=not one.report.as_expected, anchor=f"s{at}")
        for at, one in sorted(enumerate(explored), key=lambda item: item[1].report.as_expected)
    )
    return b.Document("permute", counted(len(explored), "scenario"), (*blocks, b.Section("Scenarios", parts)))


def _row(href: str, report: Report) -> b.Row:
    found = report.exploration
    return (
        b.Cell(b.Span(report.scenario or report.claim, href=href), "code"),
        report.claim,
        b.Cell(report.verdict_text, "name"),
        b.mark("yes", "good") if report.as_expected else b.mark("no", "bad"),
        found.registrations,
        found.sets,
        b.Cell(readable(found.orders), "number", str(found.orders)[:4000]),
        b.Cell(seconds(found.elapsed_s), "number", f"{found.elapsed_s * 1e6:.0f}"),
    )


def line_of(report: Report) -> b.Line:
    """Return one run as a line, for a list of many expected runs."""
    refused = f" ({len(report.refusals):,} refused)" if report.refusals else ""
    verdict = b.Span(report.verdict_text, VERDICT_MOODS[report.exploration.verdict])
    return b.Line((f"{report.scenario}: ", verdict, ", ", _expected(report), refused))


def reason_lines(reason: Reason, *, indent: int = 0) -> Iterator[b.Line]:
    """Yield the cause, a line for each fix, and the details; a field of a scenario in a fix is never wrapped."""
    yield b.Line(reason.cause, indent=indent, label=b.strong("cause: "), hang=7)
    for line in reason.fix.splitlines():
        parts = (b.Span(text, kind="fix") if at % 2 else text for at, text in enumerate(re.split("(`.*?`)", line)))
        yield b.Line(tuple(parts), indent=indent, label=b.strong("fix: "), hang=5)
    if reason.details:
        yield b.Line(". ".join(reason.details), indent=indent, label=b.quiet("detail: "), hang=8)


def _expected(report: Report) -> b.Span:
    if report.as_expected:
        return b.good("as expected")
    refused = report.expected is Expectation.ORDER_INDEPENDENT and report.exploration.verdict in _NO_VIOLATION
    return b.bad(f"NOT as expected: {'a registration is refused' if refused else report.expected}")


def _blocks(one: Explored, *, details: bool = True) -> Iterator[b.Block]:
    """Return one scenario: verdict, reason, both orders, differences; then the operators and the exploration."""
    report, found = one.report, one.report.exploration
    yield b.Verdict(report.verdict_text, VERDICT_MOODS[found.verdict], (", ", _expected(report)))
    if report.reason is not None:
        yield from reason_lines(report.reason)
    yield b.Line(report.claim, "emphasis", label=b.quiet("claim: "), hang=7)
    example = found.counterexample
    if example is not None:
        yield sides_of(example, report.registrations)
        yield from _differences(example.diff)
    elif texts := (
        *report.refusals,
        *(f"refused in every order: {at} {report.registrations[at]}" for at in found.never_accepted),
    ):
        yield b.Section("Refused", tuple(b.Line(text, "warn", indent=2) for text in texts))
    if one.snapshots is not None:
        from dispatchlab.questions.order.snapshots_blocks import snapshot_blocks

        yield b.Section("Snapshots at every step", tuple(snapshot_blocks(one.snapshots)))
    for title, views in one.seen:
        from dispatchlab.questions.dump.operator_blocks import operator_blocks

        blocks = tuple(block for view in views for block in operator_blocks(view))
        yield b.Section(f"{title[:1].upper()}{title[1:]}", blocks)
    walked = found.notes if details or found.verdict not in _DECIDED or found.modules is not None else ()
    for note in (*walked, *report.notes, *one.notes):
        first, *more = note.splitlines()
        yield b.Line(first, label=b.quiet("note: "), hang=6)
        yield from [b.Code("\n".join(more), indent=2)] * bool(more)
    if details:
        listed = b.Items(tuple(b.code(f"{at} {text}") for at, text in enumerate(report.registrations)))
        yield b.Folded("What was explored", (b.Facts(tuple(_facts(report, found))), listed))


def _facts(report: Report, found: Exploration) -> Iterator[tuple[str, str]]:
    if found.counterexample is not None:
        from dispatchlab.questions.order.reasons import FLAWS

        yield "counterexample", f"{found.counterexample.flaw}, {FLAWS[found.counterexample.flaw]}"
    yield from (("also", text) for text in (report.reason.more if report.reason is not None else ()))
    yield "registrations", f"{found.registrations:,}"
    yield from counts(found)
    yield "engine", f"{report.engine}, {report.semantics}"
    yield "walk", found.walk
    if found.walk == "graph":
        yield "reductions", reductions_text(found)
    yield "elapsed", seconds(found.elapsed_s)


def sides_of(found: Counterexample, registrations: Sequence[str]) -> b.Sides:
    """Return the two sequences of a counterexample side by side, or one sequence if it gave two results."""
    one, other = found.expected_sequence, found.actual_sequence
    if one == other:
        return b.Sides((_side("order:", other, registrations),))
    names = sequence_names(found)
    parted = next((at for at, (left, right) in enumerate(zip_longest(one, other)) if left != right), 0)
    left = _side(f"{names[0]} (-):", one, registrations, "bad")
    right = _side(f"{names[1]} (+):", other, registrations, "good")
    return b.Sides((left, right), parted)


def _side(title: str, sequence: StepSequence, registrations: Sequence[str], mood: b.Mood = "") -> b.Side:
    steps = (b.Span(step_text(step, registrations), "warn" if step < 0 else "") for step in sequence)
    return b.Side(f"{title} {format_sequence(sequence)}", mood, tuple(steps))


# -- what differs


def _differences(diff: str) -> Iterator[b.Section]:
    """Return the sections of a diff; rows with the same entry are one line."""
    sections: list[tuple[str, list[str]]] = []
    for title, rows in diff_sections(diff):
        if sections and sections[-1][1] == rows:  # the table, and the slots that follow it
            sections[-1] = (f"{sections[-1][0]} and {title.rpartition(', ')[2]}", rows)
        else:
            sections.append((title, rows))
    for title, rows in sections:
        if title == "invariants" and len(sections) > 1:  # which the cause says
            continue
        if title.endswith(TABLES):
            from dispatchlab.questions.order.snapshots import Row
            from dispatchlab.questions.order.snapshots_blocks import grouped_rows
            from dispatchlab.views.source_locations import fallback_of_file

            split = ((row[:1], *row[1:].partition(": ")[::2]) for row in rows if row[:1] in ("-", "+"))
            grouped = grouped_rows([Row(mark, fallback_of_file(entry), key) for mark, key, entry in split])
            rows = [f"{row.mark}{row.key}: {row.text}" for row in grouped]
        yield b.Section(f"differs: {title}", (b.Difference("\n".join(rows)),))
