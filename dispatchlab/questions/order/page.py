"""The page of `permute`: what was explored, what was found, the picture of states, and the table of each state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from dispatchlab.model.dump_format import DumpError
from dispatchlab.model.operator_view import OperatorView, view_of
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.result import Counterexample, Exploration, Verdict
from dispatchlab.questions.dump.operator_blocks import operator_page
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.report_text import (
    FLAWS,
    conflict_text,
    counts,
    import_lines,
    never_accepted_text,
    reasons,
    reductions_text,
    step_text,
)
from dispatchlab.questions.order.snapshots import Snapshots
from dispatchlab.questions.order.snapshots_blocks import snapshot_sections
from dispatchlab.questions.order.state_graph import Node, RowDifference, StateGraph
from dispatchlab.questions.order.state_graph_text import mermaid_text, set_text
from dispatchlab.views import blocks as b
from dispatchlab.views.blocks import (
    Block,
    Cell,
    Code,
    Difference,
    Document,
    Facts,
    Folded,
    Line,
    Mood,
    Section,
    Side,
    Sides,
    Span,
    Table,
    bad,
    good,
    mark,
    strong,
)
from dispatchlab.views.formatting import counted, key_names, readable, seconds
from dispatchlab.views.source_locations import fallback_of_file, held

_MOST_TABLES = 1500  # of operators; a picture with more leads to none
VERDICT_MOODS: dict[Verdict, Mood] = {
    Verdict.ORDER_INDEPENDENT: "good",
    Verdict.NO_VIOLATION_FOUND: "warn",
    Verdict.ORDER_DEPENDENT: "bad",
    Verdict.INCOMPLETE: "warn",
    Verdict.NONDETERMINISTIC: "bad",
    Verdict.CRASHED: "bad",
}
"""What a verdict is for its reader."""


@dataclass(frozen=True, slots=True)
class Explored:
    """One scenario of a report.

    Args:
        report: what was found.
        graph: its states; None when they are not drawn.
        not_drawn: why they are not; empty when nobody asked for them.
        operators: the operators with everything registered, in the order of the file; often none.
        names: a short name for each registration.
        notes: what else a reader should know.
        snapshots: what each step leads to, where that was asked for.
    """

    report: Report
    graph: StateGraph | None = None
    not_drawn: str = ""
    operators: tuple[OperatorView, ...] = ()
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    snapshots: Snapshots | None = None


def permute_page(
    explored: Sequence[Explored],
    *,
    failed: Sequence[str] = (),
    summary: str = "",
    interrupted: bool = False,
) -> Document:
    """The report on one scenario or several.

    Args:
        explored: the scenarios that were explored.
        failed: why others could not be, a sentence each.
        summary: the line that ends the reports of several scenarios.
        interrupted: it was interrupted, and there is no more than this.
    """
    warnings = (Line("Interrupted: this is what was covered until then.", "bad"),) * interrupted
    if len(explored) == 1 and not failed:
        (only,) = explored
        title = only.report.scenario or only.report.claim
        return Document("permute", title, (*warnings, *_lead(only.report), *_sections(only, "s0")))
    troubles = (Section("Not explored", tuple(map(Line, failed)), "not-explored"),) if failed else ()
    sections = (*troubles, _overview(explored), _each(explored))
    return Document("permute", counted(len(explored), "scenario"), (*warnings, Line(summary), *sections))


def _overview(explored: Sequence[Explored]) -> Section:
    rows = tuple(_overview_row(f"#s{at}", one.report) for at, one in enumerate(explored))
    heads = ("scenario", "claim", "verdict", "as expected", "registrations", "sets", "orders", "elapsed")
    marked = frozenset(at for at, one in enumerate(explored) if not one.report.as_expected)
    return Section("Overview", (Table("Scenarios", heads, rows, marked),), "overview")


def _overview_row(href: str, report: Report) -> b.Row:
    found = report.exploration
    return (
        Cell(Span(report.scenario or report.claim, href=href), "code"),
        report.claim,
        Cell(report.verdict_text, "name"),
        mark("yes", "good") if report.as_expected else mark("no", "bad"),
        found.registrations,
        found.sets,
        Cell(readable(found.orders), "number", str(found.orders)[:4000]),
        Cell(seconds(found.elapsed_s), "number", f"{found.elapsed_s * 1e6:.0f}"),
    )


def _each(explored: Sequence[Explored]) -> Section:
    """The scenarios one by one; those that are not as expected are open, and come first."""
    parts = tuple(
        Folded(
            (strong(one.report.scenario or one.report.claim), " ", _verdict(one.report)),
            (*_lead(one.report), *_sections(one, f"s{at}")),
            is_open=not one.report.as_expected,
            anchor=f"s{at}",
        )
        for at, one in sorted(enumerate(explored), key=lambda item: item[1].report.as_expected)
    )
    return Section("Scenarios", parts, "scenarios")


def _verdict(report: Report) -> Span:
    return mark(report.verdict_text, VERDICT_MOODS[report.exploration.verdict])


def _lead(report: Report) -> Iterator[Block]:
    found = report.exploration
    failed = f"NOT as expected: {report.not_expected}"
    expected = f"expected: {report.expected}, {'as expected' if report.as_expected else failed}"
    yield Line(report.claim, "emphasis")
    mood = VERDICT_MOODS[found.verdict]
    yield b.Verdict(report.verdict_text, mood, (" ", (good if report.as_expected else bad)(expected)))
    yield Facts((*counts(found), ("registrations", found.registrations), ("elapsed", seconds(found.elapsed_s))))


def _sections(one: Explored, anchor: str) -> Iterator[Section]:
    report, found = one.report, one.report.exploration
    if found.counterexample is not None:
        example = found.counterexample
        body = [*counterexample_blocks(example, report, one.graph)]
        if example.diff:
            is_open = not any(isinstance(block, Table) for block in body)
            body.append(Folded("The whole difference", (Difference(example.diff),), is_open=is_open))
        yield Section("Counterexample", tuple(body), f"{anchor}-counterexample")
    if report.imports is not None and report.imports.findings:
        yield Section("Orders of imports", tuple(import_lines(report.imports)), f"{anchor}-imports")
    if found.conflicts or found.never_accepted:
        yield Section("Refused", tuple(_refused(report, found)), f"{anchor}-refused")
    yield Section("Registrations", (registration_table(report, one.names),), f"{anchor}-registrations")
    if one.graph is not None:
        yield Section("States", tuple(_states(one.graph)), f"{anchor}-states")
    if one.snapshots is not None:
        yield from snapshot_sections(one.snapshots, anchor)
    if one.operators:
        tables = (block for view in one.operators for block in operator_page(view))
        order = Line("In the order of the file.", "quiet")
        yield Section("With everything registered", (order, *tables), f"{anchor}-operators")
    yield Section("How it was explored", tuple(_run(one)), f"{anchor}-run")


def counterexample_blocks(found: Counterexample, report: Report, graph: StateGraph | None) -> Iterator[Block]:
    """A counterexample: its flaw, its sequences, why they disagree, and the slots that differ, where there are states.

    Args:
        found: the counterexample.
        report: the report that it is of.
        graph: the states, where they are drawn.
    """
    yield Line((strong(str(found.flaw)), f": {FLAWS[found.flaw]}."))
    yield sides_of(found, report.registrations)
    yield from (Line(f"Why: {reason}") for reason in reasons(found))
    if graph is not None and graph.violation is not None and graph.violation.rows:
        yield _slot_table(graph.violation.rows)


def sides_of(found: Counterexample, registrations: Sequence[str]) -> Sides:
    """The two sequences of a counterexample beside one another; one alone where the same gave two results."""
    expected, actual = found.expected_sequence, found.actual_sequence

    def side(title: str, sequence: StepSequence, mood: Mood) -> Side:
        steps = (Span(step_text(step, registrations), "warn" if step < 0 else "") for step in sequence)
        return Side(f"{title}: {format_sequence(sequence)}", mood, tuple(steps))

    if expected == actual:
        return Sides((side("sequence", actual, ""),))
    parted = next((at for at, (one, other) in enumerate(zip_longest(expected, actual)) if one != other), 0)
    return Sides((side("expected", expected, "good"), side("actual", actual, "bad")), parted)


def _slot_table(differing: Sequence[RowDifference]) -> Table:
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in differing:
        change = fallback_of_file(row.expected), fallback_of_file(row.actual)
        alike.setdefault((row.operator, *change), []).append(row.key)
    rows = tuple(
        (", ".join(key_names(keys)), Cell(operator, "name"), Cell(held(one), "code"), Cell(held(other), "code"))
        for (operator, one, other), keys in alike.items()
    )
    heads = ("keys", "operator", "after the expected sequence", "after the actual sequence")
    return Table("Slots that differ", heads, rows)


def _refused(report: Report, found: Exploration) -> Iterator[Block]:
    rows = tuple(
        (", ".join(map(str, conflict.members)), Cell(conflict.kind, "name"), conflict_text(conflict, found))
        for conflict in found.conflicts
    )
    heads = ("registrations", "kind", "what the engine says")
    yield Table("Registrations that exclude one another", heads, rows)
    yield from (Line(f"Never accepted: {text}") for text in never_accepted_text(found, report.registrations))


def registration_table(report: Report, names: Sequence[str] = ()) -> Table:
    """The registrations of a report.

    Args:
        report: what was found.
        names: a short name for each; none are shown when there are none.
    """
    texts = report.registrations
    rows = tuple(
        (Cell(str(at), sort=at), Cell(name, "name"), Cell(text, "code"))
        for at, (name, text) in enumerate(zip(names or map(str, range(len(texts))), texts, strict=True))
    )
    return Table("Registrations in the order of the file", ("number", "short name", "registration"), rows)


def _run(one: Explored) -> Iterator[Block]:
    report, found = one.report, one.report.exploration
    done = [("engine", f"{report.engine}, {report.semantics}"), ("walk", found.walk)]
    done += [("reductions", reductions_text(found))] * (found.walk == "graph")
    yield Facts(tuple(done))
    notes = [*found.notes, *one.notes, *([one.not_drawn] if one.not_drawn else [])]
    yield from (Line(f"Note: {note}") for note in notes)


# -- states


def _states(graph: StateGraph) -> Iterator[Block]:
    """What is seen in the states, with the graph as text."""
    yield from map(Line, graph.notes)
    yield Folded("The graph of states, as Mermaid text", (Code(mermaid_text(graph)),))
    if sum(map(len, graph.sights)) > _MOST_TABLES:
        yield Line("The tables of these states are left out: there are too many.", "quiet")
        return
    nodes_of: dict[int, list[Node]] = {}
    for node in graph.nodes:
        nodes_of.setdefault(node.seen, []).append(node)
    tables = tuple(
        Folded(
            _sets_text(graph, nodes_of[number]),
            (*_of_groups(graph, nodes_of[number]), *(block for snapshot in seen for block in _operator(snapshot))),
        )
        for number, seen in enumerate(graph.sights)
        if number in nodes_of
    )
    yield Folded(f"What is seen in the states: {len(tables):,} different tables or kernels", tables)


_SETS_SHOWN = 6


def _sets_text(graph: StateGraph, nodes: Sequence[Node]) -> str:
    sets = [each for node in nodes for each in (node.sets or (node.members,))]
    shown = "; ".join(set_text(graph, each) for each in sets[:_SETS_SHOWN])
    more = f"; and {len(sets) - _SETS_SHOWN:,} more sets" if len(sets) > _SETS_SHOWN else ""
    return f"Registered: {shown}{more}"


def _of_groups(graph: StateGraph, nodes: Sequence[Node]) -> Iterator[Line]:
    """Whose kernels are shown where sets with one table are together."""
    for node in nodes:
        if node.sets:
            first = set_text(graph, node.sets[0])
            text = f"The kernels are those of the set {first}; the other sets have the same table."
            yield Line(text, "quiet")


def _operator(snapshot: Snapshot) -> Iterator[Block]:
    try:
        view = view_of(snapshot)
    except DumpError:  # an engine of its own prints what it likes
        yield Code(f"{snapshot.dump}{snapshot.table}")
        return
    yield from operator_page(view)
