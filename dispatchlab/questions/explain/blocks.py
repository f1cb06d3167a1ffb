"""Explanations of calls as blocks, and as JSON (docs/json.md): which kernel runs, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.escape import printable
from dispatchlab.model.installed_torch import model_for, other_keys_of_calls
from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import AUTOCAST_KEYS, FUNCTIONALITY_KEYS
from dispatchlab.model.operator_view import OUTRANKED
from dispatchlab.model.profile import CALLS
from dispatchlab.questions.explain.explain_operator import ExplainedOperator
from dispatchlab.questions.explain.packet_calls import PacketCall
from dispatchlab.questions.explain.result import (
    ArgumentKeys,
    CallExplanation,
    Chosen,
    Hop,
    LeftOut,
    ThreadKeys,
    by_priority,
)
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.text import plain, text_of
from dispatchlab.views.view import View


def explanation_view(explained: ExplainedOperator) -> View[ExplainedOperator]:
    """How an explanation is shown."""
    return View(explained, lines=_lines, screen=_screen, torch=explained.inspection.build)


def explanation_text(call: CallExplanation, *, no_answer: str = "") -> str:
    """An explanation as plain text; what is no answer says so first."""
    return text_of(call_blocks(call, no_answer=no_answer))


# -- what all formats show


def set_text(keys: DispatchKeySet) -> str:
    """A set, highest priority first."""
    return ", ".join(map(str, by_priority(keys))) or "(empty)"


def functionalities_text(keys: DispatchKeySet) -> str:
    """The functionalities of a set, highest priority first: what it excludes, whatever the backend.

    The autocast keys are one when all ten are there.
    """
    names = [str(key) for key in reversed(FUNCTIONALITY_KEYS[1:]) if keys.bits & functionality_bit(key)]
    autocast = [name for name in names if name.startswith("Autocast")]
    if len(autocast) == len(AUTOCAST_KEYS):
        first = names.index(autocast[0])
        names[first : first + len(AUTOCAST_KEYS)] = ["Autocast*"]
    return ", ".join(names) or "(empty)"


def argument_text(argument: ArgumentKeys) -> str:
    """`self (Tensor), cuda: AutogradCUDA, CUDA`."""
    note = f" ({argument.note})" if argument.note else ""
    return f"{argument.name} ({argument.type}), {printable(argument.given)}: {set_text(argument.keys)}{note}"


def left_out_text(left: LeftOut) -> str:
    """`BackendSelect, fallthrough: fn [backend fallback]`."""
    whose = f": {printable(left.debug)} [{left.reason}]" if left.debug else ""
    return f"{left.key}, {left.why}{whose}"


def thread_sets(thread: ThreadKeys) -> Iterator[tuple[str, DispatchKeySet, str]]:
    """The four sets with their titles; what is excluded is excluded for every backend."""
    yield "global include", thread.global_included, set_text(thread.global_included)
    yield "global exclude", thread.global_excluded, functionalities_text(thread.global_excluded)
    yield "local include", thread.local_included, set_text(thread.local_included)
    yield "local exclude", thread.local_excluded, functionalities_text(thread.local_excluded)


# -- plain text


def _lines(explained: ExplainedOperator) -> Iterator[b.Block]:
    if explained.packet_call is not None:
        yield from (*_tried(explained.packet_call), b.Line())
    yield from call_blocks(explained.explanation, no_answer=explained.no_answer)


def _tried(call: PacketCall) -> Iterator[b.Block]:
    """The overloads that the call of a name tried, and why each did not take it."""
    yield b.Line(f"{call.packet}{printable(call.call)} tried")
    yield from _indented(f"{each.name}: {'takes it' if each.takes else each.reason}" for each in call.tried)


def call_blocks(call: CallExplanation, *, no_answer: str = "") -> Iterator[b.Block]:
    """Every fact of an explanation, a line each."""
    if no_answer:
        yield from (b.Line(no_answer), b.Line())
    yield b.Line(call.schema)
    yield b.Line(("runs: ", *_path(call)))
    arguments = [argument_text(argument) for argument in call.arguments] or ["none that decides the dispatch"]
    yield b.Section("arguments", _indented(arguments))
    yield b.Line("the thread")
    yield from _indented(f"{title}: {text}" for title, _, text in thread_sets(call.thread))
    for number, hop in enumerate(call.hops, 1):
        yield b.Section(f"{number}. {hop.kind} -> {hop.key}", _indented(hop_texts(hop)))
    yield from (b.Line(), b.Line(call.end))


def _indented(texts: Iterable[str]) -> tuple[b.Block, ...]:
    return tuple(b.Line(text, indent=2) for text in texts)


def hop_texts(hop: Hop) -> Iterator[str]:
    """Every fact of a hop, a text each."""
    yield hop.why
    yield f"set: {set_text(hop.start)}"
    yield from (f"left out: {left_out_text(left)}" for left in hop.left_out)
    if hop.left_out:
        yield f"what remains: {set_text(hop.keys)}"
    kernel = hop.kernel
    if kernel is not None:
        place = f", at {kernel.source}" if kernel.source else ""
        yield f"kernel: {'fallthrough ' if kernel.fallthrough else ''}{kernel.debug} [{kernel.reason}]{place}"
    if hop.refusal is not None:
        yield f"nothing can run: {hop.refusal}"
    if kernel is None:
        return
    if kernel.stale is not None:
        yield f"the slot is stale: it should hold {kernel.stale}"
    verb = "lost" if kernel.stale is None else "should have lost"
    for lost in kernel.beaten:
        why = "the kernel above comes first" if lost.why == OUTRANKED else lost.why
        yield f"{verb}: {lost.debug} [{lost.reason}], at {lost.source}: {why}"


# -- a terminal: the keys whose kernels run first, then why

_WIDTH = 11


def _screen(explained: ExplainedOperator) -> Iterator[b.Block]:
    call = explained.explanation
    refused = any(hop.refusal is not None for hop in call.hops)
    mood: b.Mood = "warn" if explained.no_answer or not call.known else "bad" if refused else "good"
    name, bracket, rest = call.schema.partition("(")
    lead = [
        *([b.Line(explained.no_answer, "warn")] if explained.no_answer else []),
        b.Line((b.strong(name), bracket + rest), hang=0),
        b.Line(tuple(_path(call)), indent=2, hang=0),
        b.Line(call.end, "emphasis" if call.known else "warn", indent=2),
    ]
    yield b.Frame(tuple(lead), mood)
    if explained.packet_call is not None:
        yield from (b.Line(), *_tried(explained.packet_call))
    yield b.Section("key sets", tuple(_key_sets(call)))
    for number, hop in enumerate(call.hops, 1):
        yield b.Section(f"{number}. {hop.kind} -> {hop.key}", tuple(_hop_fields(hop)), mood=_mood(hop))


def path_text(call: CallExplanation) -> str:
    """The keys whose kernels run, in their order: `AutogradCPU -> CPU`."""
    return plain(tuple(_path(call)))


def _path(call: CallExplanation) -> Iterator[b.Inline]:
    """The keys whose kernels run, in their order."""
    for number, hop in enumerate(call.hops):
        yield b.quiet(" -> " if number else "")
        yield b.Span(str(hop.key), _mood(hop), "name")
        if hop.refusal is not None:
            yield b.bad(" (no kernel runs)")


def _mood(hop: Hop) -> b.Mood:
    if hop.refusal is not None:
        return "bad"
    return "kernel" if hop.kernel is None else b.REASON_MOODS.get(hop.kernel.reason, "kernel")


def _field(title: b.Inline, content: b.Inline, mood: b.Mood = "") -> b.Line:
    return b.Line(content, mood, indent=2, label=b.quiet(title) if isinstance(title, str) else title, width=_WIDTH)


def _key_sets(call: CallExplanation) -> Iterator[b.Line]:
    for argument in call.arguments:
        note = f" ({argument.note})" if argument.note else ""
        about = f" ({argument.type}), {argument.given}: {set_text(argument.keys)}"
        yield b.Line((b.strong(argument.name), about, b.quiet(note)), indent=2)
    if not call.arguments:
        yield b.Line("no argument decides the dispatch", "quiet", indent=2)
    for title, keys, text in thread_sets(call.thread):
        if keys:
            yield b.Line((b.quiet(f"{title} of the thread: "), text), indent=2)


def _hop_fields(hop: Hop) -> Iterator[b.Line]:
    kernel = hop.kernel
    if hop.refusal is not None:
        yield _field("refused", b.bad(f"nothing can run: {hop.refusal}"))
    if kernel is not None:
        yield _field("kernel", _kernel(hop, kernel))
        if kernel.stale is not None:
            yield _field(b.bad("stale"), (b.bad("the slot is stale: it should hold "), b.source(kernel.stale, "bad")))
    yield _field("key set", set_text(hop.start))
    yield _field("", f"({hop.why})", "quiet")
    for number, left in enumerate(hop.left_out):
        whose = (": ", b.source(left.debug, "quiet"), b.quiet(f" [{left.reason}]")) if left.debug else ()
        yield _field("" if number else "left out", (f"{left.key}, {left.why}", *whose))
    if hop.left_out:
        yield _field("remaining", b.strong(set_text(hop.keys)))
    if kernel is None:
        return
    title = "beat" if kernel.stale is None else "should beat"
    for number, lost in enumerate(kernel.beaten):
        why = "" if lost.why == OUTRANKED else f" since {lost.why}"
        place = "" if lost.source == str(hop.key) else f" at {lost.source}"
        yield b.Line(
            (b.source(lost.debug, "quiet"), b.quiet(f" [{lost.reason}]{place}{why}")),
            indent=2,
            label=b.quiet("" if number else title),
            width=_WIDTH + (title != "beat"),
        )


def _kernel(hop: Hop, kernel: Chosen) -> b.Inline:
    place = f" at {kernel.source}" if kernel.source not in ("", str(hop.key)) else ""
    reason = b.Span(f" [{kernel.reason}]", b.REASON_MOODS.get(kernel.reason, ""))
    return (b.warn("fallthrough " if kernel.fallthrough else ""), b.source(kernel.debug), reason, place)


_KEYS_SHOWN = 4


def explanation_notes(explained: ExplainedOperator) -> Iterator[str]:
    """What a reader should know about the source of an explanation, a line each."""
    inspection = explained.inspection
    if inspection.bare and explained.explanation.hops[-1].refusal is not None:
        yield f"{inspection.semantics} starts without PyTorch's backend fallbacks: --semantics torch-2.13 has them"
    model = model_for(inspection.build or inspection.semantics)
    if others := other_keys_of_calls(model):
        more = f" and {len(others) - _KEYS_SHOWN} more" if len(others) > _KEYS_SHOWN else ""
        shown = ", ".join(others[:_KEYS_SHOWN]) + more
        yield f"key sets are those of {CALLS}; in {model} these keys are others, or stand elsewhere: {shown}"


# -- JSON


@as_json.register
def _(value: ExplainedOperator) -> dict[str, object]:
    inspection = value.inspection
    return {
        "source": inspection.source,
        "engine": value.engine,
        "semantics": inspection.semantics,
        "no_answer": value.no_answer or None,
        "privateuse1": inspection.privateuse1 or None,
        "packet_call": as_json(value.packet_call),
        **fields_of(value.explanation),
    }


@as_json.register
def _(value: ThreadKeys) -> dict[str, object]:
    return {title.replace(" ", "_"): as_json(keys) for title, keys, _ in thread_sets(value)}


@as_json.register
def _(value: Hop) -> dict[str, object]:
    return fields_of(value, without=("start",), set=value.start)
