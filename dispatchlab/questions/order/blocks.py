"""The report on scenarios as one document: the verdict, what it stands for, what differs and why, and what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from dispatchlab.model.operator_view import NO_KERNEL
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import TABLES
from dispatchlab.prover.result import Counterexample, Exploration, Verdict
from dispatchlab.questions.dump.operator_blocks import operator_blocks
from dispatchlab.questions.order.report import Explored, Report
from dispatchlab.questions.order.report_text import (
    FLAWS,
    conflict_text,
    counts,
    never_accepted_text,
    reasons,
    reductions_text,
    step_text,
)
from dispatchlab.questions.order.snapshots_blocks import snapshot_blocks
from dispatchlab.views import blocks as b
from dispatchlab.views.formatting import counted, key_names, readable, seconds
from dispatchlab.views.source_locations import fallback_of_file

VERDICT_MOODS: dict[Verdict, b.Mood] = {
    Verdict.ORDER_INDEPENDENT: "good",
    Verdict.NO_VIOLATION_FOUND: "warn",
    Verdict.ORDER_DEPENDENT: "bad",
    Verdict.INCOMPLETE: "warn",
    Verdict.NONDETERMINISTIC: "bad",
    Verdict.CRASHED: "bad",
}
"""What a verdict is for its reader."""


def permute_document(
    explored: Sequence[Explored],
    *,
    failed: Sequence[str] = (),
    summary: str = "",
    interrupted: bool = False,
    after: Sequence[b.Block] = (),
) -> b.Document:
    """The report on one scenario or several.

    Args:
        explored: the scenarios that were explored.
        failed: why others could not be, a sentence each.
        summary: the line that ends the reports of several scenarios.
        interrupted: it was interrupted, and there is no more than this.
        after: what stands behind one scenario.
    """
    blocks: list[b.Block] = [b.Line("Interrupted: this is what was covered until then.", "bad")] * interrupted
    if len(explored) == 1 and not failed:
        (only,) = explored
        return b.Document("permute", only.report.scenario or only.report.claim, (*blocks, *_blocks(only), *after))
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


def _blocks(one: Explored) -> Iterator[b.Block]:
    """One scenario: the verdict, the counterexample and its reason; then what was explored, and the operators."""
    report, found = one.report, one.report.exploration
    as_expected = b.good("as expected") if report.as_expected else b.bad("NOT as expected")
    expected = f" ({report.not_expected})" if report.not_expected else ""
    yield b.Verdict(report.verdict_text, VERDICT_MOODS[found.verdict], (", ", as_expected, expected))
    yield b.Line(report.claim, "emphasis", hang=0)
    example = found.counterexample
    if example is not None:
        why = tuple(b.Line(reason, indent=2, label=b.strong("why: "), hang=5) for reason in reasons(example))
        sides = sides_of(example, report.registrations)
        yield b.Section(f"{example.flaw}: {FLAWS[example.flaw]}", (sides, *why), mood="bad")
        yield from _differences(example.diff)
    texts = [conflict_text(conflict, found) for conflict in found.conflicts]
    texts += [f"never accepted: {text}" for text in never_accepted_text(found, report.registrations)]
    if texts:
        yield b.Section("Refused", tuple(b.Line(text, "warn", indent=2) for text in texts))
    if one.snapshots is not None:
        yield b.Section("Snapshots at every step", tuple(snapshot_blocks(one.snapshots)))
    for title, views in one.seen:
        blocks = tuple(block for view in views for block in operator_blocks(view))
        yield b.Section(f"{title[:1].upper()}{title[1:]}", blocks)
    registrations = b.Items(tuple(b.code(f"{at} {text}") for at, text in enumerate(report.registrations)))
    listed = b.Folded(f"Registrations ({len(report.registrations):,})", (registrations,))
    notes = (b.Line(note, label=b.quiet("note: ")) for note in (*found.notes, *one.notes))
    yield b.Section("What was explored", (b.Facts(tuple(_facts(report, found))), *notes, listed))


def _facts(report: Report, found: Exploration) -> Iterator[tuple[str, str]]:
    numbers = dict(counts(found))
    title = "stands for" if found.verdict is Verdict.ORDER_INDEPENDENT else "orders"
    yield title, f"{numbers.pop('orders')} orders of {counted(found.registrations, 'registration')}"
    yield "explored", ", ".join(f"{number} {title}" for title, number in numbers.items())
    yield "engine", f"{report.engine}, {report.semantics}"
    reductions = f", reductions: {reductions_text(found)}" if found.walk == "graph" else ""
    yield "walk", f"{found.walk}{reductions}, {seconds(found.elapsed_s)}"


def sides_of(found: Counterexample, registrations: Sequence[str]) -> b.Sides:
    """The two sequences of a counterexample beside one another; one alone where the same gave two results."""
    expected, actual = found.expected_sequence, found.actual_sequence
    if expected == actual:
        return b.Sides((_side("sequence:", actual, registrations),))
    parted = next((at for at, (one, other) in enumerate(zip_longest(expected, actual)) if one != other), 0)
    sides = _side("expected:", expected, registrations, "good"), _side("actual:", actual, registrations, "bad")
    return b.Sides(sides, parted)


def _side(title: str, sequence: StepSequence, registrations: Sequence[str], mood: b.Mood = "") -> b.Side:
    steps = (b.Span(step_text(step, registrations), "warn" if step < 0 else "") for step in sequence)
    return b.Side(f"{title} {format_sequence(sequence)}", mood, tuple(steps))


# -- what differs


def _differences(diff: str) -> Iterator[b.Section]:
    """The rows of tables that differ by what differs, the rest of the diff line by line."""
    sections: list[tuple[str, list[str], bool]] = []
    for title, rows in _sections(diff):
        of_table = title.endswith(tuple(f", {table}" for table in TABLES))
        if sections and sections[-1][1] == rows:  # the table, and the slots that follow it
            sections[-1] = (f"{sections[-1][0]} and {title.rpartition(', ')[2]}", rows, of_table)
        else:
            sections.append((title, rows, of_table))
    for title, rows, of_table in sections:
        if of_table:
            yield b.Section(title, (b.Table("", ("keys", "expected and actual"), tuple(_rows(rows))),))
        else:
            yield b.Section(title, (b.Difference("\n".join(rows)),))


def _sections(diff: str) -> Iterator[tuple[str, list[str]]]:
    """The sections of a diff with their titles; what a diff of outcomes says is one section."""
    title, rows = "what differs", list[str]()
    for row in diff.splitlines():
        if row.startswith("--- "):
            if rows:
                yield title, rows
            title, rows = row[4:].removeprefix("expected: "), []
        elif not row.startswith(("+++ ", "@@ ")):
            rows.append(row)
    if rows:
        yield title, rows


def _rows(rows: Sequence[str]) -> Iterator[b.Row]:
    sides: dict[str, dict[str, str]] = {"-": {}, "+": {}}
    for row in rows:
        if row[:1] in sides:
            key, _, entry = row[1:].partition(": ")
            sides[row[0]][key] = fallback_of_file(entry)
    groups: dict[tuple[str, str], list[str]] = {}
    for key in dict.fromkeys([*sides["-"], *sides["+"]]):
        change = (sides["-"].get(key, NO_KERNEL), sides["+"].get(key, NO_KERNEL))
        groups.setdefault(change, []).append(key)
    for (expected, actual), keys in groups.items():
        lines = ((b.good("expected "), b.source(expected)), (b.bad("actual   "), b.source(actual)))
        yield (", ".join(key_names(keys)), b.Cell(b.Stack(lines), "code"))
