"""The golden file of a scenario: its findings, and its operators after all registrations."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.dump_format import parse_table, row_text
from dispatchlab.model.operator_view import NO_KERNEL
from dispatchlab.model.sequence import format_sequence
from dispatchlab.model.snapshot import NOTHING_REGISTERED, TABLES, Snapshot
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.questions.dump.operator_text import operator_text
from dispatchlab.questions.order.fixes import replay
from dispatchlab.questions.order.reasons import FLAWS
from dispatchlab.questions.order.report import Report, report_of
from dispatchlab.questions.order.report_text import counts, sequence_names, step_text
from dispatchlab.questions.order.snapshots import snapshots_of
from dispatchlab.questions.order.snapshots_blocks import snapshot_lines
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.views.blocks import Block, Code, Difference, Line
from dispatchlab.views.text import text_of


def golden(scenario: Scenario) -> tuple[Report, str]:
    """Explore a scenario on the lab engine, and return the report and the text of its golden file."""
    engine = LabEngine(scenario.semantics)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are overridden: scenarios are about that
        about = scenario.registrations, scenario.operators
        found = explore(engine, *about, order=scenario.order, modules=scenario.modules)
        report = report_of(scenario, engine, found)
        _, operators = replay(engine, scenario, range(len(scenario.registrations)))
    text = golden_text(report, operators.values(), keys=[str(key) for key in scenario.keys])
    if scenario.snapshots:
        text = f"{text.rstrip()}\n{text_of((Line(), *snapshot_lines(snapshots_of(engine, scenario))))}"
    return report, text


def golden_text(report: Report, operators: Iterable[Snapshot], *, keys: Collection[str] = ()) -> str:
    """Return the text of a golden file: the findings, and the operators with all possible registrations in force.

    Args:
        report: the report; values that differ between runs are not used.
        operators: the operators after registration in the order of the file.
        keys: the rows of the tables to show; empty for all.
    """
    found = report.exploration
    text = text_of(
        (
            Line(f"claim: {report.claim}"),
            Line(f"expected: {report.expected}"),
            *_findings(_with_keys(found, keys), report),
        )
    )
    return text + "".join(f"\n{seen_text(snapshot, keys)}" for snapshot in operators)


def _findings(found: Exploration, report: Report) -> Iterator[Block]:
    """Return the findings: verdict and counts; then the refused registrations, or both orders with the reason."""
    yield Line(f"verdict: {report.verdict_text}")
    yield from (Line(f"{title}: {number}") for title, number in counts(found))
    if found.counterexample is None or found.conflicts:
        yield from _listed("conflicts", report.refusals)
    if found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        yield from _listed("never accepted", [f"{at} {report.registrations[at]}" for at in found.never_accepted])
    example, reason = found.counterexample, report.reason
    if example is None or reason is None:
        return
    yield Line(f"counterexample: {example.flaw}, {FLAWS[example.flaw]}")
    yield Line(f"cause: {reason.cause}")
    yield from (Line(f"also: {text}") for text in reason.more)
    yield from (Line(f"fix: {fix}") for fix in reason.fix.splitlines())
    yield from (Line(f"detail: {text}") for text in reason.details)
    one, other = example.expected_sequence, example.actual_sequence
    names = sequence_names(example)
    for title, sequence in {"order": one}.items() if one == other else zip(names, (one, other), strict=True):
        yield Line(f"{title}: {format_sequence(sequence)}")
        yield from (Line(step_text(step, report.registrations), indent=2) for step in sequence)
    if example.diff:
        yield Line("diff:")
        diff = re.sub(r"^--- expected: ", f"--- {names[0]}: ", example.diff, flags=re.MULTILINE)
        yield Difference(re.sub(r"^\+\+\+ actual: ", f"+++ {names[1]}: ", diff, flags=re.MULTILINE), indent=2)


def _listed(title: str, texts: Sequence[str]) -> Iterator[Block]:
    yield Line(f"{title}:{'' if texts else ' none'}")
    yield from (Code(text, indent=2) for text in texts)


def _with_keys(found: Exploration, keys: Collection[str]) -> Exploration:
    """Return the counterexample with only the rows of these keys in its diff."""
    counterexample = found.counterexample
    if counterexample is None or not keys:
        return found
    kept: list[str] = []
    in_table = False
    for line in counterexample.diff.splitlines(keepends=True):
        if line.startswith(("--- ", "+++ ")):
            in_table = line.rstrip().endswith(tuple(f", {title}" for title in TABLES))
        elif in_table and line[1:].partition(":")[0] not in keys:
            continue
        kept.append(line)
    return replace(found, counterexample=replace(counterexample, diff="".join(kept)))


def seen_text(snapshot: Snapshot, keys: Collection[str]) -> str:
    """Return an operator with Python's entries for it."""
    if not snapshot.python:
        return _with_slots(snapshot, keys)
    text = _with_slots(snapshot, keys) if snapshot.exists else f"name: {snapshot.operator}\n"
    return f"{text}\nPython:\n{snapshot.python}"


def _with_slots(snapshot: Snapshot, keys: Collection[str]) -> str:
    if not snapshot.exists:
        return f"name: {snapshot.operator}\n{NOTHING_REGISTERED} it\n"
    text = operator_text(snapshot, keys=keys)
    if snapshot.slots is None or snapshot.slots == snapshot.table:
        return text
    table, held = parse_table(snapshot.table), parse_table(snapshot.slots)
    rows = [row_text(key, str(entry)) for key, entry in held.items() if table.get(key) != entry]
    rows += [row_text(key, NO_KERNEL) for key in table if key not in held]
    shown = [row for row in rows if not keys or row.partition(":")[0] in keys]
    if not shown:
        return text
    return f"{text}\nslots that calls use, where they differ from the table:\n{''.join(shown)}"
