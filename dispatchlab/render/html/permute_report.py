"""The report of `permute`: what was explored, what was found, the picture of states, and the table of each state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dispatchlab.analysis.report import Report
from dispatchlab.analysis.state_graph import Node, StateGraph
from dispatchlab.explore.result import Counterexample, Exploration, Verdict
from dispatchlab.model.dump_format import DumpError
from dispatchlab.model.operator_view import OperatorView, view_of
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.render.formatting import readable, seconds
from dispatchlab.render.html.elements import Child, Html, breakable, element, joined, trusted
from dispatchlab.render.html.page import Section, page
from dispatchlab.render.html.parts import (
    Cell,
    Mood,
    data_table,
    difference,
    facts,
    folded,
    held,
    keys_text,
    operator_table,
    paragraphs,
    summary_list,
    verdict,
)
from dispatchlab.render.state_graph.layout import laid_out
from dispatchlab.render.state_graph.picture import picture_of, set_text
from dispatchlab.render.state_graph.svg import svg_in_page
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

_MOST_TABLES = 1500  # of operators; a picture with more leads to none
_MOODS: dict[Verdict, Mood] = {
    Verdict.ORDER_INDEPENDENT: "good",
    Verdict.NO_VIOLATION_FOUND: "warn",
    Verdict.ORDER_DEPENDENT: "bad",
    Verdict.INCOMPLETE: "warn",
    Verdict.NONDETERMINISTIC: "bad",
    Verdict.CRASHED: "bad",
}


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
    """

    report: Report
    graph: StateGraph | None = None
    not_drawn: str = ""
    operators: tuple[OperatorView, ...] = ()
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def permute_report(
    explored: Sequence[Explored],
    *,
    failed: Sequence[str] = (),
    summary: str = "",
    interrupted: bool = False,
) -> str:
    """The report on one scenario or several.

    Args:
        explored: the scenarios that were explored.
        failed: why others could not be, a sentence each.
        summary: the line that ends the reports of several scenarios.
        interrupted: it was interrupted, and there is no more than this.
    """
    warnings = [element("p", "Interrupted: this is what was covered until then.", class_="bad")] * interrupted
    if len(explored) == 1 and not failed:
        (only,) = explored
        lead = joined((warnings, _lead(only.report)))
        return page("permute", only.report.scenario or only.report.claim, lead, [*_sections(only, "s0")])
    troubles = [Section("not-explored", "Not explored", paragraphs(failed))] if failed else []
    lead = joined((warnings, element("p", summary)))
    return page("permute", _title(explored), lead, [*troubles, _overview(explored), *_each(explored)])


def _title(explored: Sequence[Explored]) -> str:
    return f"{len(explored):,} scenario{'' if len(explored) == 1 else 's'}"


def _overview(explored: Sequence[Explored]) -> Section:
    rows = [
        (
            Cell(element("a", breakable(each.report.scenario or each.report.claim), href=f"#s{at}"), "code"),
            each.report.claim,
            Cell(each.report.verdict_text, "name"),
            verdict("yes", "good") if each.report.as_expected else verdict("no", "bad"),
            each.report.exploration.registrations,
            each.report.exploration.sets,
            Cell(readable(each.report.exploration.orders), "number", str(each.report.exploration.orders)[:4000]),
            Cell(
                seconds(each.report.exploration.elapsed_s), "number", f"{each.report.exploration.elapsed_s * 1e6:.0f}"
            ),
        )
        for at, each in enumerate(explored)
    ]
    heads: tuple[str, ...] = (
        "scenario",
        "claim",
        "verdict",
        "as expected",
        "registrations",
        "sets",
        "orders",
        "elapsed",
    )
    bad = [at for at, each in enumerate(explored) if not each.report.as_expected]
    return Section("overview", "Overview", data_table("Scenarios", heads, rows, bad=bad))


def _each(explored: Sequence[Explored]) -> Iterator[Section]:
    """The scenarios one by one; those that are not as expected are open, and come first."""
    parts = [
        folded(
            joined((element("b", each.report.scenario or each.report.claim), " ", _verdict(each.report))),
            _lead(each.report),
            (joined((element("h3", part.title), part.body)) for part in _sections(each, f"s{at}")),
            is_open=not each.report.as_expected,
            anchor=f"s{at}",
        )
        for at, each in sorted(enumerate(explored), key=lambda item: item[1].report.as_expected)
    ]
    yield Section("scenarios", "Scenarios", joined(parts))


def _verdict(report: Report) -> Html:
    found = report.exploration.verdict
    return verdict(report.verdict_text, _MOODS[found])


def _lead(report: Report) -> Html:
    found = report.exploration
    expected = element(
        "span",
        f"expected: {report.expected}, {'as expected' if report.as_expected else 'NOT as expected'}",
        class_="good" if report.as_expected else "bad",
    )
    return joined(
        (
            element("p", report.claim, class_="claim"),
            element("p", _verdict(report), " ", expected),
            facts([*counts(found), ("registrations", found.registrations), ("elapsed", seconds(found.elapsed_s))]),
        )
    )


def _sections(one: Explored, anchor: str) -> Iterator[Section]:
    report, found = one.report, one.report.exploration
    if found.counterexample is not None:
        body = _counterexample(found.counterexample, report, one.graph)
        yield Section(f"{anchor}-counterexample", "Counterexample", body)
    if found.conflicts or found.never_accepted:
        yield Section(f"{anchor}-refused", "Refused", _refused(report, found))
    yield Section(f"{anchor}-registrations", "Registrations", _registrations(one))
    if one.graph is not None:
        yield Section(f"{anchor}-states", "States", _states(one.graph, anchor))
    if one.operators:
        yield Section(
            f"{anchor}-operators",
            "With everything registered",
            joined((paragraphs(["In the order of the file."], kind="quiet"), map(operator_table, one.operators))),
        )
    yield Section(f"{anchor}-run", "How it was explored", _run(one))


def _counterexample(found: Counterexample, report: Report, graph: StateGraph | None) -> Html:
    parts: list[Child] = [element("p", element("b", str(found.flaw)), f": {FLAWS[found.flaw]}.")]
    expected, actual = found.expected_sequence, found.actual_sequence
    if expected == actual:
        parts.append(_steps("Sequence", actual, actual, report.registrations))
    else:
        sides = (
            _steps("Expected", expected, actual, report.registrations),
            _steps("Actual", actual, expected, report.registrations),
        )
        parts.append(element("div", sides, class_="sides"))
    parts.append(paragraphs(f"Why: {reason}" for reason in reasons(found)))
    rows = graph.violation.rows if graph is not None and graph.violation is not None else ()
    if rows:
        heads: tuple[str, ...] = ("keys", "operator", "after the expected sequence", "after the actual sequence")
        alike: dict[tuple[str, str, str], list[str]] = {}
        for row in rows:
            alike.setdefault((row.operator, row.expected, row.actual), []).append(row.key)
        cells = [
            (keys_text(keys), Cell(operator, "name"), Cell(held(one), "code"), Cell(held(other), "code"))
            for (operator, one, other), keys in alike.items()
        ]
        parts.append(data_table("Slots that differ", heads, cells))
    if found.diff:
        parts.append(folded("The whole difference", difference(found.diff), is_open=not rows))
    return joined(parts)


def _steps(title: str, sequence: StepSequence, other: StepSequence, registrations: Sequence[str]) -> Html:
    """A sequence, with the step marked from which on the other one is not the same."""
    parting = next((at for at, (one, two) in enumerate(zip(sequence, other, strict=False)) if one != two), len(other))
    steps = [
        element("li", step_text(step, registrations), class_="parts" if at == parting and sequence != other else None)
        for at, step in enumerate(sequence)
    ]
    shown = element("ol", steps, class_="steps") if steps else element("p", "(nothing)", class_="quiet")
    return element("div", element("p", element("b", f"{title}: {format_sequence(sequence)}")), shown)


def _refused(report: Report, found: Exploration) -> Html:
    never = never_accepted_text(found, report.registrations)
    rows = [
        (
            ", ".join(map(str, each.members)),
            Cell(each.kind, "name"),
            conflict_text(each, found),
        )
        for each in found.conflicts
    ]
    heads: tuple[str, ...] = ("registrations", "kind", "what the engine says")
    return joined(
        (
            data_table("Registrations that exclude one another", heads, rows),
            paragraphs(f"Never accepted: {text}" for text in never),
        )
    )


def _registrations(one: Explored) -> Html:
    names = one.names or tuple(map(str, range(len(one.report.registrations))))
    rows = [
        (Cell(str(at), sort=at), Cell(name, "name"), Cell(text, "code"))
        for at, (name, text) in enumerate(zip(names, one.report.registrations, strict=True))
    ]
    return data_table("Registrations in the order of the file", ("number", "short name", "registration"), rows)


def _run(one: Explored) -> Html:
    report, found = one.report, one.report.exploration
    done = [("engine", f"{report.engine}, {report.semantics}"), ("walk", found.walk)]
    done += [("reductions", reductions_text(found))] * (found.walk == "graph")
    done += [("replayed", replayed_text(found))] * bool(found.replayed)
    notes = [*found.notes, *one.notes, *([one.not_drawn] if one.not_drawn else [])]
    return joined((summary_list(done), paragraphs(f"Note: {note}" for note in notes)))


# -- states


def _states(graph: StateGraph, anchor: str) -> Html:
    """The picture, and what is seen in its states; whoever does not see the picture reads the table of states."""
    with_tables = sum(map(len, graph.sights)) <= _MOST_TABLES
    picture = svg_in_page(
        laid_out(picture_of(graph)),
        label=f"States and the steps between them: {len(graph.nodes):,} boxes",
        href=f"#{anchor}-table-" if with_tables else "",
    )
    nodes_of: dict[int, list[Node]] = {}
    for node in graph.nodes:
        nodes_of.setdefault(node.seen, []).append(node)
    parts: list[Child] = [
        paragraphs(graph.notes),
        paragraphs(
            [
                "A line to the right is a registration, and back its release. The expected sequence of a "
                "counterexample is green, the actual one red, what both take is yellow."
            ],
            kind="quiet",
        ),
        element(
            "div", trusted(picture), class_="picture", tabindex=0, role="region", aria_label="Picture of the states"
        ),
    ]
    if not with_tables:
        parts.append(element("p", "The tables of these states are left out: there are too many.", class_="quiet"))
        return joined(parts)
    tables = [
        folded(
            _sets_text(graph, nodes_of[number]),
            paragraphs(_of_groups(graph, nodes_of[number]), kind="quiet"),
            map(_operator, seen),
            anchor=f"{anchor}-table-{number}",
        )
        for number, seen in enumerate(graph.sights)
        if number in nodes_of
    ]
    parts.append(folded(f"What is seen in the states: {len(tables):,} different tables or kernels", tables))
    return joined(parts)


_SETS_SHOWN = 6


def _sets_text(graph: StateGraph, nodes: Sequence[Node]) -> str:
    sets = [each for node in nodes for each in (node.sets or (node.members,))]
    shown = "; ".join(set_text(graph, each, ()) for each in sets[:_SETS_SHOWN])
    more = f"; and {len(sets) - _SETS_SHOWN:,} more sets" if len(sets) > _SETS_SHOWN else ""
    return f"Registered: {shown}{more}"


def _of_groups(graph: StateGraph, nodes: Sequence[Node]) -> Iterator[str]:
    """Whose kernels are shown where sets with one table are together."""
    for node in nodes:
        if node.sets:
            first = set_text(graph, node.sets[0], ())
            yield f"The kernels are those of the set {first}; the other sets have the same table."


def _operator(snapshot: Snapshot) -> Html:
    try:
        return operator_table(view_of(snapshot))
    except DumpError:  # an engine of its own prints what it likes
        return element("pre", snapshot.dump, snapshot.table)
