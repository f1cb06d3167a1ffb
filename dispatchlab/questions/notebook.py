"""What notebooks show of a value: a fragment with looks of its own, for light and dark pages, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dispatchlab.model.operator_view import OUTRANKED, OperatorView
from dispatchlab.questions.dump.operator_blocks import operator_page
from dispatchlab.questions.explain.blocks import argument_text, left_out_text, set_text
from dispatchlab.questions.explain.result import CallExplanation, Hop
from dispatchlab.questions.order.page import counterexample_blocks, registration_table
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.report_text import conflict_text, counts
from dispatchlab.questions.order.state_graph import StateGraph
from dispatchlab.views.blocks import (
    Block,
    Cell,
    Document,
    Folded,
    Inline,
    Items,
    Line,
    Row,
    Section,
    Stack,
    Table,
    Verdict,
    code,
    source,
    strong,
)
from dispatchlab.views.html.backend import html_of
from dispatchlab.views.html.elements import Child, element, trusted
from dispatchlab.views.source_locations import short_debug
from dispatchlab.views.view import View

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
.dispatchlab .sides { display: flex; flex-wrap: wrap; gap: 0 2em }
.dispatchlab dd { margin: 0; min-width: 3em }
"""


def check_html(report: Report, names: Sequence[str], graph: StateGraph | None = None) -> str:
    """A verdict with its counts, the registrations, the counterexample, and the states.

    Args:
        report: what was found.
        names: a short name for each registration.
        graph: the states, where they are drawn.
    """
    found = report.exploration
    numbers = ", ".join(f"{title}: {number}" for title, number in counts(found))
    names_title = f"Registrations ({len(report.registrations):,})"
    blocks: list[Block] = [
        Verdict(report.verdict_text, "", f" {report.claim}"),
        Line(f"{numbers}. Engine: {report.engine}, {report.semantics}."),
        Folded(names_title, (registration_table(report, names),)),
    ]
    if found.counterexample is not None:
        blocks += counterexample_blocks(found.counterexample, report, graph)
    blocks += (Line(conflict_text(conflict, found)) for conflict in found.conflicts)
    blocks += (Line(f"Note: {note}") for note in found.notes)
    return _fragment([html_of(blocks, most=_MOST_ROWS)])


def operator_html(view: OperatorView) -> str:
    """An operator by its kernels."""
    return _fragment([element("p", element("b", view.name)), html_of(operator_page(view))])


def explanation_html(found: CallExplanation, *, no_answer: str = "") -> str:
    """A call from its arguments to its last kernel."""
    rows = tuple((str(number), *_hop(hop)) for number, hop in enumerate(found.hops, 1))
    heads = ("step", "goes to", "kernel", "left out on the way", "what lost")
    blocks = (
        *([Line(strong(no_answer))] if no_answer else ()),
        Line(code(found.schema)),
        Items(tuple(argument_text(argument) for argument in found.arguments)),
        Table("The way of the call", heads, rows),
        Line(found.end),
    )
    return _fragment([html_of(blocks)])


def _hop(hop: Hop) -> Row:
    kernel = hop.kernel
    runs: tuple[Inline, ...] = (f"nothing can run: {hop.refusal}",)
    lost: tuple[Inline, ...] = ()
    if kernel is not None:
        runs = ((source(kernel.debug) if kernel.debug else "(no debug text)", f" [{kernel.reason}]"),)
        runs += () if kernel.stale is None else (f"the slot is stale: it should hold {kernel.stale}",)
        lost = tuple(
            (source(one.debug), f" at {one.source}{'' if one.why == OUTRANKED else f': {one.why}'}")
            for one in kernel.beaten
        )
    return (
        Cell(Stack((strong(f"{hop.kind} \u2192 {hop.key}"), f"of {set_text(hop.keys)}"))),
        Cell(Stack(runs), "" if kernel is None else "code"),
        Cell(Stack(tuple(short_debug(left_out_text(left)) for left in hop.left_out)), "code"),
        Cell(Stack(lost), "code"),
    )


def view_html(view: View[Any]) -> str:
    """The lead of a result and the first details of each part; all of it where it has no page."""
    if view.document is not None:
        return _document_html(view.document(view.value))
    assert view.lines is not None
    return _fragment([html_of(tuple(view.lines(view.value)), most=_MOST_ROWS)])


def _document_html(document: Document) -> str:
    lead = [block for block in document.blocks if not isinstance(block, Section)]
    parts = (
        element("details", element("summary", block.title), html_of(block.blocks, most=_MOST_ROWS))
        for block in document.blocks
        if isinstance(block, Section)
    )
    return _fragment([element("p", element("b", document.title)), html_of(lead), parts])


def _fragment(parts: list[Child]) -> str:
    return str(element("div", element("style", trusted(_STYLE)), parts, class_="dispatchlab"))
