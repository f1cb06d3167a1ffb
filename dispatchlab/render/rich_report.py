"""The report on a scenario for a terminal: the verdict, what it stands for, snapshots, the counterexample and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dispatchlab.analysis.report import Report
from dispatchlab.explore.result import Counterexample, Exploration, Verdict
from dispatchlab.model.operator_view import NO_KERNEL, OperatorView
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import TABLES
from dispatchlab.render.formatting import seconds
from dispatchlab.render.key_names import key_names
from dispatchlab.render.page import Page, commas, words
from dispatchlab.render.rich_operator import print_operator
from dispatchlab.render.styles import (
    ACTUAL,
    BAD,
    DIFF_STYLES,
    EXPECTED,
    FIRST_STYLES,
    GOOD,
    QUIET,
    TITLE,
    VERDICT_STYLES,
    WARNING,
)
from dispatchlab.render.text import (
    FLAWS,
    conflict_text,
    counts,
    never_accepted_text,
    reasons,
    reductions_text,
    replayed_text,
    step_text,
)

_FIELD = 16


def print_report(
    console: Console,
    report: Report,
    *,
    snapshots: Sequence[tuple[str, Sequence[OperatorView]]] = (),
    torch: str = "",
) -> None:
    """Print a report: the verdict first, the reason last.

    Args:
        console: where to.
        report: what was found.
        snapshots: operators after some sequence, each with a title that names it.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
    """
    page = Page(console, torch=torch)
    _print_verdict(page, report)
    for title, views in snapshots:
        page.title(title)
        for view in views:
            page.blank()
            print_operator(console, view, torch=torch, hint="")
    if report.exploration.counterexample is not None:
        _print_counterexample(page, report.exploration.counterexample, report.registrations)


# -- the verdict and what it stands for


def _verdict_words(report: Report) -> list[Text]:
    found = report.exploration
    verdict = words(report.verdict_text, f"bold {VERDICT_STYLES[found.verdict]}")
    as_expected = words("as expected", GOOD) if report.as_expected else words("NOT as expected", BAD)
    expected = [] if report.as_expected else words(f"({report.expected} is expected)")
    verdict[-1].append(",")
    return [*verdict, *as_expected, *expected]


def _print_verdict(page: Page, report: Report) -> None:
    style = VERDICT_STYLES[report.exploration.verdict]
    with page.framed(style):
        page.flow(_verdict_words(report))
        if report.claim:
            page.line(report.claim, "italic")
        page.blank()
        for title, content, colour in _fields(report, report.exploration):
            page.field(title, [word for line in content for word in words(line, colour)], width=_FIELD)


def _fields(report: Report, found: Exploration) -> Iterator[tuple[str, Sequence[str], str]]:
    numbers = dict(counts(found))
    yield (
        "stands for" if found.verdict is Verdict.ORDER_INDEPENDENT else "orders",
        [f"{numbers.pop('orders')} orders of {_counted(found.registrations, 'registration')}"],
        "",
    )
    yield "explored", [", ".join(f"{number} {title}" for title, number in numbers.items())], ""
    if found.counterexample is None or found.conflicts:
        conflicts = [conflict_text(conflict, found) for conflict in found.conflicts]
        for number, conflict in enumerate(conflicts):
            yield "" if number else "conflicts", [conflict], WARNING
    if found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        for number, never in enumerate(never_accepted_text(found, report.registrations)):
            yield "" if number else "never accepted", [never], WARNING
    if found.replayed:
        yield "replayed", [replayed_text(found)], ""
    for note in found.notes:
        yield "note", [note], ""
    if report.scenario:
        yield "scenario", [report.scenario], ""
    yield "engine", [f"{report.engine}, {report.semantics}"], ""
    reductions = f", reductions: {reductions_text(found)}" if found.walk == "graph" else ""
    yield "walk", [f"{found.walk}{reductions}, {seconds(found.elapsed_s)}"], ""


# -- the counterexample


def _print_counterexample(page: Page, counterexample: Counterexample, registrations: Sequence[str]) -> None:
    page.title(f"{counterexample.flaw}: {FLAWS[counterexample.flaw]}", BAD)
    _print_sequences(page, counterexample, registrations)
    _print_differences(page, counterexample.diff)
    page.blank()
    for reason in reasons(counterexample):
        page.flow(words(reason), indent=7, first=Text("  why: ", TITLE))


def _print_sequences(page: Page, counterexample: Counterexample, registrations: Sequence[str]) -> None:
    expected, actual = counterexample.expected_sequence, counterexample.actual_sequence
    if expected == actual:
        page.field("sequence", words(format_sequence(actual)), width=10, indent=2, style=TITLE)
        for step in actual:
            page.flow(words(step_text(step, registrations)), indent=7, first=Text("    "))
        return
    page.blank()
    parted = next((at for at, (one, other) in enumerate(zip_longest(expected, actual)) if one != other), 0)
    half = (page.width - 6) // 2
    columns = [
        [_cells(page, f"expected: {format_sequence(expected)}", half, EXPECTED)],
        [_cells(page, f"actual: {format_sequence(actual)}", half, ACTUAL)],
    ]
    for column, sequence in zip(columns, (expected, actual), strict=True):
        column += [_step(page, sequence, at, registrations, half) for at in range(max(len(expected), len(actual)))]
    for at, (left, right) in enumerate(zip(*columns, strict=True)):
        for number, (one, other) in enumerate(zip_longest(left, right, fillvalue=Text())):
            marked = at - 1 == parted and number == 0
            gutter = Text("> " if marked else "  ", BAD)
            gap = Text(" " * (half - cell_len(one.plain)) + "  ")
            page.flow([Text.assemble(gutter, one, gap, gutter, other)], first=Text())


def _cells(page: Page, text: str, width: int, style: str, indent: int = 0) -> list[Text]:
    """The lines of a cell; its other lines hang."""
    return page.lines(words(text, style), indent=indent, first=Text(), width=width)


def _step(page: Page, sequence: StepSequence, at: int, registrations: Sequence[str], width: int) -> list[Text]:
    if at >= len(sequence):
        return [Text("(nothing)", QUIET)] if not sequence and at == 0 else [Text()]
    step = sequence[at]
    return _cells(page, step_text(step, registrations), width, WARNING if step < 0 else "", 3)


# -- what differs


def _print_differences(page: Page, diff: str) -> None:
    """The rows of tables that differ by what differs, the rest of the diff line by line."""
    sections: list[tuple[str, list[str], bool]] = []
    for title, lines in _sections(diff):
        of_table = title.endswith(tuple(f", {table}" for table in TABLES))
        if sections and sections[-1][1] == lines:  # the table, and the slots that follow it
            sections[-1] = (f"{sections[-1][0]} and {title.rpartition(', ')[2]}", lines, of_table)
        else:
            sections.append((title, lines, of_table))
    for title, lines, of_table in sections:
        page.title(title)
        if of_table:
            _print_rows(page, lines)
            continue
        for line in lines:
            style = DIFF_STYLES.get(line[:3], FIRST_STYLES.get(line[:1], QUIET))
            page.flow(words(line[1:], style), indent=6, first=Text(f"  {line[:1]} ", style))


def _sections(diff: str) -> Iterator[tuple[str, list[str]]]:
    """The sections of a diff with their titles; what a diff of outcomes says is one section."""
    title, lines = "what differs", list[str]()
    for line in diff.splitlines():
        if line.startswith("--- "):
            if lines:
                yield title, lines
            title, lines = line[4:].removeprefix("expected: "), []
        elif not line.startswith(("+++ ", "@@ ")):
            lines.append(line)
    if lines:
        yield title, lines


def _print_rows(page: Page, lines: Sequence[str]) -> None:
    sides: dict[str, dict[str, str]] = {"-": {}, "+": {}}
    for line in lines:
        if line[:1] in sides:
            key, _, entry = line[1:].partition(": ")
            sides[line[0]][key] = entry
    groups: dict[tuple[str, str], list[str]] = {}
    for key in dict.fromkeys([*sides["-"], *sides["+"]]):
        change = (sides["-"].get(key, NO_KERNEL), sides["+"].get(key, NO_KERNEL))
        groups.setdefault(change, []).append(key)
    for (expected, actual), keys in groups.items():
        page.flow(commas(key_names(keys), TITLE), indent=4, first=Text("  "))
        page.flow(page.source(expected), indent=13, first=Text("    expected ", EXPECTED))
        page.flow(page.source(actual), indent=13, first=Text("    actual   ", ACTUAL))


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
