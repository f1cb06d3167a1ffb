"""The report on a scenario as blocks: on a terminal the verdict, what it stands for, what differs and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

from dispatchlab.model.operator_view import NO_KERNEL, OperatorView
from dispatchlab.model.snapshot import TABLES
from dispatchlab.prover.result import Counterexample, Exploration, Verdict
from dispatchlab.questions.dump.operator_blocks import operator_screen
from dispatchlab.questions.order.json_view import ReportWithSnapshots
from dispatchlab.questions.order.page import VERDICT_MOODS, Explored, permute_page, sides_of
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.report_text import (
    FLAWS,
    conflict_text,
    counts,
    import_lines,
    never_accepted_text,
    reasons,
    reductions_text,
    report_lines,
)
from dispatchlab.questions.order.snapshots import Snapshots
from dispatchlab.questions.order.snapshots_blocks import snapshot_lines, snapshot_screen
from dispatchlab.views import blocks as b
from dispatchlab.views.blocks import (
    Block,
    Difference,
    Frame,
    Line,
    Mood,
    Section,
    bad,
    good,
    quiet,
    source,
    strong,
)
from dispatchlab.views.formatting import counted, key_names, seconds
from dispatchlab.views.source_locations import fallback_of_file
from dispatchlab.views.view import View

_FIELD = 16

Views: TypeAlias = Sequence[tuple[str, Sequence[OperatorView]]]


def report_view(
    report: Report, *, snapshots: Views = (), torch: str = "", steps: Snapshots | None = None
) -> View[ReportWithSnapshots] | View[Report]:
    """How a report is shown.

    Args:
        report: what was found.
        snapshots: operators after some sequence, each with a title that names it, for a terminal.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
        steps: the snapshots after each step, where they are shown.
    """
    if steps is None:
        return View(
            report, lines=report_lines, screen=partial(_screen, snapshots=snapshots), document=_page, torch=torch
        )
    return View(
        ReportWithSnapshots(report, steps),
        lines=lambda both: (*report_lines(both.report), Line(), *snapshot_lines(both.snapshots)),
        screen=lambda both: (*_screen(both.report, snapshots=()), *snapshot_screen(both.snapshots)),
        document=lambda both: permute_page((Explored(both.report, snapshots=both.snapshots),)),
        torch=torch,
    )


def _page(report: Report) -> b.Document:
    return permute_page((Explored(report),))


def _screen(report: Report, *, snapshots: Views) -> Iterator[Block]:
    """The verdict, the counterexample and its reason; then what differs, what was explored, and the operators."""
    found, verdict, facts = report.exploration, tuple(_verdict(report)), tuple(_facts(report))
    counterexample = found.counterexample
    imports = [] if report.imports is None or not report.imports.findings else [*import_lines(report.imports)]
    if counterexample is None:
        yield Frame((*verdict, Line(), *facts), VERDICT_MOODS[found.verdict])
    else:
        yield Frame(verdict, VERDICT_MOODS[found.verdict])
        yield from _counterexample(counterexample, report.registrations)
    if imports:
        yield Section("Orders of imports", tuple(imports))
    if counterexample is not None:
        yield from _differences(counterexample.diff)
        yield Section("what was explored", facts)
    for title, views in snapshots:
        operators = (block for view in views for block in (Line(), *operator_screen(view, hint="")))
        yield Section(title, tuple(operators))


# -- the verdict and what it stands for


def _verdict(report: Report) -> Iterator[Block]:
    as_expected = good("as expected") if report.as_expected else bad("NOT as expected")
    expected = f" ({report.not_expected})" if report.not_expected else ""
    yield b.Verdict(report.verdict_text, VERDICT_MOODS[report.exploration.verdict], (", ", as_expected, expected))
    if report.claim:
        yield Line(report.claim, "emphasis")


def _facts(report: Report) -> Iterator[Block]:
    for title, content, mood in _fields(report, report.exploration):
        yield Line(content, mood, label=quiet(title), width=_FIELD)


def _fields(report: Report, found: Exploration) -> Iterator[tuple[str, str, Mood]]:
    numbers = dict(counts(found))
    yield (
        "stands for" if found.verdict is Verdict.ORDER_INDEPENDENT else "orders",
        f"{numbers.pop('orders')} orders of {counted(found.registrations, 'registration')}",
        "",
    )
    yield "explored", ", ".join(f"{number} {title}" for title, number in numbers.items()), ""
    if found.counterexample is None or found.conflicts:
        for number, conflict in enumerate(found.conflicts):
            yield "" if number else "conflicts", conflict_text(conflict, found), "warn"
    if found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        for number, never in enumerate(never_accepted_text(found, report.registrations)):
            yield "" if number else "never accepted", never, "warn"
    for note in found.notes:
        yield "note", note, ""
    if report.scenario:
        yield "scenario", report.scenario, ""
    yield "engine", f"{report.engine}, {report.semantics}", ""
    reductions = f", reductions: {reductions_text(found)}" if found.walk == "graph" else ""
    yield "walk", f"{found.walk}{reductions}, {seconds(found.elapsed_s)}", ""


# -- the counterexample


def _counterexample(counterexample: Counterexample, registrations: Sequence[str]) -> Iterator[Block]:
    why: list[Block] = [Line(reason, indent=2, label=strong("why: "), hang=5) for reason in reasons(counterexample)]
    lines: list[Block] = [Line(), sides_of(counterexample, registrations), *([Line(), *why] if why else [])]
    yield Section(f"{counterexample.flaw}: {FLAWS[counterexample.flaw]}", tuple(lines), mood="bad")


# -- what differs


def _differences(diff: str) -> Iterator[Section]:
    """The rows of tables that differ by what differs, the rest of the diff line by line."""
    sections: list[tuple[str, list[str], bool]] = []
    for title, rows in _sections(diff):
        of_table = title.endswith(tuple(f", {table}" for table in TABLES))
        if sections and sections[-1][1] == rows:  # the table, and the slots that follow it
            sections[-1] = (f"{sections[-1][0]} and {title.rpartition(', ')[2]}", rows, of_table)
        else:
            sections.append((title, rows, of_table))
    for title, rows, of_table in sections:
        yield Section(title, tuple(_rows(rows)) if of_table else (Difference("\n".join(rows)),))


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


def _rows(rows: Sequence[str]) -> Iterator[Line]:
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
        yield Line(", ".join(key_names(keys)), "strong", indent=2)
        yield Line(source(expected), indent=4, label=good("expected"), width=9)
        yield Line(source(actual), indent=4, label=bad("actual"), width=9)
