"""The explanation of a call for a terminal: the kernels that run, the key sets, and why for each hop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from dispatchlab.call.explain import CallExplanation, Chosen, Hop
from dispatchlab.model.operator_view import OUTRANKED
from dispatchlab.render.explain import (
    implementation_text,
    later_parts,
    mode_title,
    set_text,
    symbolic_parts,
    thread_set_text,
    thread_sets,
)
from dispatchlab.render.page import Page, schema_words, words
from dispatchlab.render.styles import BAD, GOOD, KERNEL, QUIET, REASON_STYLES, TITLE, WARNING

if TYPE_CHECKING:
    from dispatchlab.call.explain_mode import ModeExplanation
    from dispatchlab.call.implementation import Implementation

_FIELD = 11


def print_explanation(
    console: Console,
    found: CallExplanation,
    *,
    no_answer: str = "",
    torch: str = "",
    under: ModeExplanation | None = None,
) -> None:
    """Print an explanation: the keys whose kernels run first, then why.

    Args:
        console: where to.
        found: the explanation.
        no_answer: why the source cannot answer; empty when it can.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
        under: what runs under a mode; None when no mode was asked for.
    """
    page = Page(console, torch=torch)
    refused = any(hop.refusal is not None for hop in found.hops)
    style = WARNING if no_answer or not found.known else BAD if refused else GOOD
    with page.framed(style):
        if no_answer:
            page.line(no_answer, f"bold {WARNING}")
        page.flow(schema_words(found.schema))
        page.flow(list(_path(found)), indent=2)
        page.line(found.end, "italic" if found.known else f"bold {WARNING}", indent=2)
        if under is not None:
            page.flow([*words("runs:", TITLE), *words(implementation_text(under.runs), f"bold {style}")], indent=2)
    if under is not None:
        _print_mode(page, under)
    page.title("key sets")
    for argument in found.arguments:
        page.flow(
            [
                Text(argument.name, TITLE),
                *words(f"({argument.type}), {argument.given}:"),
                *words(set_text(argument.keys)),
                *words(f"({argument.note})" if argument.note else "", QUIET),
            ],
            indent=4,
            first=Text("  "),
        )
    if not found.arguments:
        page.line("no argument decides the dispatch", QUIET, indent=2)
    for title, keys in thread_sets(found.thread):
        if keys:
            line = [*words(f"{title} of the thread:", QUIET), *words(thread_set_text(title, keys))]
            page.flow(line, indent=4, first=Text("  "))
    for number, hop in enumerate(found.hops, 1):
        _print_hop(page, number, hop)


def _print_mode(page: Page, under: ModeExplanation) -> None:
    page.title(mode_title(under))
    parts = [("then" if at else "runs", _after(under.chain, at), one) for at, one in enumerate(under.chain)]
    parts += [("symbolic", f"{when}; ", one) for when, one in symbolic_parts(under)]
    parts += [("later", f"{when}; ", one) for when, one in later_parts(under)]
    for title, when, one in parts:
        page.field(title, words(implementation_text(one)), width=_FIELD, indent=2)
        page.field("", words(f"({when}{one.where}: {one.why})", QUIET), width=_FIELD, indent=2)
    if under.unsure:
        page.line(under.unsure, f"bold {WARNING}", indent=2)
    for at, step in enumerate(under.steps, 1):
        line = [*words(f"{at}. {step.key}:", TITLE), *words(step.why)]
        page.flow(line, indent=5, first=Text("  "))
    for note in under.notes:
        page.line(note, QUIET, indent=2)


def _after(chain: Sequence[Implementation], at: int) -> str:
    return f"{chain[at - 1].gives_up}; " if at else ""


def _path(found: CallExplanation) -> Iterator[Text]:
    """The keys whose kernels run, in their order."""
    for number, hop in enumerate(found.hops):
        if number:
            yield Text("->", QUIET)
        yield Text(str(hop.key), f"bold {_style(hop)}")
        if hop.refusal is not None:
            yield Text("(no", BAD)
            yield Text("kernel", BAD)
            yield Text("runs)", BAD)


def _style(hop: Hop) -> str:
    if hop.refusal is not None:
        return "red"
    return KERNEL if hop.kernel is None else REASON_STYLES.get(hop.kernel.reason, KERNEL)


def _print_hop(page: Page, number: int, hop: Hop) -> None:
    page.title(f"{number}. {hop.kind} -> {hop.key}", f"bold {_style(hop)}")
    if hop.refusal is not None:
        page.field("refused", words(f"nothing can run: {hop.refusal}", BAD), width=_FIELD, indent=2)
    if hop.kernel is not None:
        page.field("kernel", _kernel(page, hop, hop.kernel), width=_FIELD, indent=2)
        if hop.kernel.stale is not None:
            stale = [*words("the slot is stale: it should hold", BAD), *page.source(hop.kernel.stale, BAD)]
            page.field("stale", stale, width=_FIELD, indent=2, style=BAD)
    page.field("key set", words(set_text(hop.start)), width=_FIELD, indent=2)
    page.field("", words(f"({hop.why})", QUIET), width=_FIELD, indent=2)
    for at, left in enumerate(hop.left_out):
        whose = [*page.source(left.debug, QUIET), Text(f"[{left.reason}]", QUIET)] if left.debug else []
        line = [*words(f"{left.key}, {left.why}{':' if whose else ''}"), *whose]
        page.field("" if at else "left out", line, width=_FIELD, indent=2)
    if hop.left_out:
        page.field("remaining", words(set_text(hop.keys), TITLE), width=_FIELD, indent=2)
    if hop.kernel is None:
        return
    title = "beat" if hop.kernel.stale is None else "should beat"
    for at, lost in enumerate(hop.kernel.beaten):
        why = "" if lost.why == OUTRANKED else f"since {lost.why}"
        source = "" if lost.source == str(hop.key) else f"at {lost.source}"
        about = Text(f"[{lost.reason}]", QUIET)
        line = [*page.source(lost.debug, QUIET), about, *words(f"{source} {why}", QUIET)]
        page.field("" if at else title, line, width=_FIELD + (title != "beat"), indent=2)


def _kernel(page: Page, hop: Hop, kernel: Chosen) -> list[Text]:
    style = REASON_STYLES.get(kernel.reason, "")
    source = words(f"at {kernel.source}") if kernel.source not in ("", str(hop.key)) else []
    fallthrough = words("fallthrough", WARNING) if kernel.fallthrough else []
    return [*fallthrough, *page.source(kernel.debug), Text(f"[{kernel.reason}]", style), *source]
