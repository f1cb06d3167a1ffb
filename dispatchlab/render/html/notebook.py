"""What notebooks show of a value: a fragment with looks of its own, for light and dark pages, without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.analysis.report import Report
from dispatchlab.analysis.state_graph import StateGraph
from dispatchlab.analysis.upgrade import UpgradeReport
from dispatchlab.call.explain import CallExplanation, Hop
from dispatchlab.model.operator_view import OUTRANKED, OperatorView
from dispatchlab.model.sequence import format_sequence
from dispatchlab.render.explain import argument_text, left_out_text, set_text
from dispatchlab.render.html.elements import Child, Html, element, joined, trusted
from dispatchlab.render.html.parts import Cell, Row, data_table, held, keys_text, lines, operator_table, short_debug
from dispatchlab.render.html.upgrade_report import upgrade_lead, upgrade_sections, upgrade_title
from dispatchlab.render.state_graph import svg
from dispatchlab.render.text import FLAWS, conflict_text, counts, reasons, step_text
from dispatchlab.render.upgrade import change_texts, summary_rows

_MOST_ROWS = 20
_STYLE = """\
.dispatchlab { font-size: 0.95em; line-height: 1.45 }
.dispatchlab table { border-collapse: collapse; margin: 0.5em 0; font-size: 0.95em }
.dispatchlab caption { text-align: left; opacity: 0.85; padding: 0.2em 0 }
.dispatchlab th, .dispatchlab td { text-align: left; vertical-align: top; padding: 0.2em 1em 0.2em 0.3em;
  border-bottom: 1px solid rgba(128, 128, 128, 0.35); background: none }
.dispatchlab tbody th { font-weight: normal }
.dispatchlab .name, .dispatchlab .code, .dispatchlab code { font-family: monospace; background: none }
.dispatchlab .number { text-align: right }
.dispatchlab .verdict { font-weight: bold; border: 2px solid currentColor; border-radius: 0.4em; padding: 0 0.5em }
.dispatchlab ol { margin: 0.3em 0; padding-left: 2.2em }
.dispatchlab details { margin: 0.3em 0 }
.dispatchlab dl div { display: flex; flex-direction: row-reverse; justify-content: flex-end; gap: 0.6em }
.dispatchlab dd { margin: 0; min-width: 3em }
.dispatchlab svg { max-width: 100%; height: auto }
"""


def check_html(report: Report, names: Sequence[str], graph: StateGraph | None = None) -> str:
    """A verdict with its counts, the registrations, the counterexample, and the states.

    Args:
        report: what was found.
        names: a short name for each registration.
        graph: the states, where they are drawn.
    """
    found = report.exploration
    counted = ", ".join(f"{title}: {number}" for title, number in counts(found))
    parts: list[Child] = [
        element("p", element("span", report.verdict_text, class_="verdict"), f" {report.claim}"),
        element("p", f"{counted}. Engine: {report.engine}, {report.semantics}."),
        _registrations(report, names),
    ]
    example = found.counterexample
    if example is not None:
        parts.append(element("p", element("b", str(example.flaw)), f": {FLAWS[example.flaw]}."))
        sides = dict.fromkeys((example.expected_sequence, example.actual_sequence))
        rows = [
            (
                Cell(format_sequence(sequence), "name"),
                Cell(lines(step_text(step, report.registrations) for step in sequence), "code"),
            )
            for sequence in sides
        ]
        parts.append(data_table("Sequences, the expected one first", ("sequence", "steps"), rows))
        parts += [element("p", f"Why: {reason}") for reason in reasons(example)]
        if graph is not None and graph.violation is not None and graph.violation.rows:
            parts.append(_rows(graph))
    parts += [element("p", conflict_text(each, found)) for each in found.conflicts]
    parts += [element("p", f"Note: {note}") for note in found.notes]
    if graph is not None:
        parts.append(trusted(svg(graph)))
    return _fragment(parts)


def _registrations(report: Report, names: Sequence[str]) -> Html:
    rows = [
        (str(at), Cell(name, "name"), Cell(text, "code"))
        for at, (name, text) in enumerate(zip(names, report.registrations, strict=True))
    ]
    return _folded("Registrations", ("number", "short name", "registration"), rows)


def _rows(graph: StateGraph) -> Html:
    assert graph.violation is not None
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in graph.violation.rows:
        alike.setdefault((row.operator, row.expected, row.actual), []).append(row.key)
    rows = [
        (keys_text(keys), Cell(operator, "name"), Cell(held(one), "code"), Cell(held(other), "code"))
        for (operator, one, other), keys in alike.items()
    ]
    return data_table("Slots that differ", ("keys", "operator", "expected", "actual"), rows)


def operator_html(view: OperatorView) -> str:
    """An operator by its kernels."""
    return _fragment([element("p", element("b", view.name)), operator_table(view)])


def explanation_html(found: CallExplanation, *, no_answer: str = "") -> str:
    """A call from its arguments to its last kernel."""
    rows = [(str(number), *_hop(hop)) for number, hop in enumerate(found.hops, 1)]
    heads = ("step", "goes to", "kernel", "left out on the way", "what lost")
    parts: list[Child] = [
        element("p", element("b", no_answer)) if no_answer else None,
        element("p", element("code", found.schema)),
        element("ul", (element("li", argument_text(argument)) for argument in found.arguments)),
        data_table("The way of the call", heads, rows),
        element("p", found.end),
    ]
    return _fragment(parts)


def _hop(hop: Hop) -> Iterator[Child | Cell]:
    yield Cell(joined((element("b", f"{hop.kind} \u2192 {hop.key}"), element("div", f"of {set_text(hop.keys)}"))))
    kernel = hop.kernel
    if kernel is None:
        yield f"nothing can run: {hop.refusal}"
    else:
        text = f"{short_debug(kernel.debug) or '(no debug text)'} [{kernel.reason}]"
        stale = [] if kernel.stale is None else [element("div", f"the slot is stale: it should hold {kernel.stale}")]
        yield Cell(joined((text, stale)), "code")
    yield Cell(lines(short_debug(left_out_text(left)) for left in hop.left_out), "code")
    beaten = kernel.beaten if kernel is not None else ()
    yield Cell(
        [
            element("div", f"{short_debug(one.debug)} at {one.source}{'' if one.why == OUTRANKED else f': {one.why}'}")
            for one in beaten
        ],
        "code",
    )


def upgrade_html(report: UpgradeReport) -> str:
    """The summary of a comparison, and the first details of each part."""
    if report.package is not None or report.backend is not None:
        return _fragment(
            [
                element("p", element("b", upgrade_title(report))),
                upgrade_lead(report),
                (element("details", element("summary", each.title), each.body) for each in upgrade_sections(report)),
            ]
        )
    found = report.upgrade
    parts: list[Child] = [element("p", element("b", f"{report.before.source} \u2192 {report.after.source}"))]
    rows = [(label or "result", Cell(text)) for label, text in summary_rows(found)]
    parts.append(data_table("Summary", ("about", "what changes"), rows))
    for title, side in (("Removed operators", found.removed), ("Added operators", found.added)):
        if side:
            schemas = [(Cell(each.operator, "name"), Cell(each.schema or "without a def", "code")) for each in side]
            parts.append(_folded(title, ("operator", "schema"), schemas))
    if found.schemas:
        changes = [
            (
                Cell(name, "name"),
                "compatible" if change.is_compatible else f"breaks callers: {change.backward}",
                Cell(lines(change.changes), "code"),
            )
            for name, change in found.schemas
        ]
        parts.append(_folded("Schemas", ("operator", "for callers", "what changes"), changes))
    changed = [
        (Cell(change.operator, "name"), Cell(lines(texts)))
        for change in found.changed
        if (texts := change_texts(change))
    ]
    if changed:
        parts.append(_folded("Operators with other kernels or tags", ("operator", "what changes"), changed))
    return _fragment(parts)


def _folded(title: str, heads: tuple[str, ...], rows: Sequence[Row]) -> Html:
    """A table behind its title, cut where nobody reads on in a notebook."""
    shown = rows[:_MOST_ROWS]
    more = element("p", f"and {len(rows) - len(shown):,} more") if len(rows) > len(shown) else None
    return element("details", element("summary", f"{title} ({len(rows):,})"), data_table(title, heads, shown), more)


def _fragment(parts: list[Child]) -> str:
    return str(element("div", element("style", trusted(_STYLE)), parts, class_="dispatchlab"))
