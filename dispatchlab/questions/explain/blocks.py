"""Explanations of calls as blocks and as JSON (docs/json.md): which kernel runs, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.errors import ErrorKind, first_of
from dispatchlab.escape import printable
from dispatchlab.model.installed_torch import model_for, other_keys_of_calls
from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import AUTOCAST_KEYS, FUNCTIONALITY_KEYS
from dispatchlab.model.operator_view import OUTRANKED
from dispatchlab.model.profile import CALLS
from dispatchlab.questions.explain.explain_operator import ExplainedOperator
from dispatchlab.questions.explain.result import ArgumentKeys, CallExplanation, Hop, ThreadKeys, by_priority
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.text import text_of
from dispatchlab.views.view import View


def explanation_view(explained: ExplainedOperator) -> View[ExplainedOperator]:
    """Return the view of an explanation."""
    return View(explained, document=_document, torch=explained.inspection.build)


def _document(explained: ExplainedOperator) -> b.Document:
    call, tried = explained.explanation, explained.packet_call
    blocks = [*call_blocks(call)]
    if tried is not None:
        lines = (f"{each.name}: {'takes it' if each.takes else each.reason}" for each in tried.tried)
        blocks.append(b.Section(f"{tried.packet}{printable(tried.call)} tried", _indented(lines)))
    first, *others = _head(call, explained.no_answer)
    return b.Document("explain", first, (*map(b.Line, others), *blocks))


def explanation_text(call: CallExplanation, *, no_answer: str = "") -> str:
    """Return an explanation as plain text; if the source has no answer, or no kernel runs, say so first."""
    return text_of((*map(b.Line, _head(call, no_answer)), *call_blocks(call)))


def _head(call: CallExplanation, no_answer: str) -> Iterator[str]:
    """Return the schema; before it, a sentence if the source has no answer, or if the call finds no kernel."""
    last = call.hops[-1]
    if no_answer:
        yield no_answer
    elif last.refusal is ErrorKind.MISSING_KERNEL:
        name = call.operator.partition("::")[2]
        fix = f'register one with lib.impl("{name}", kernel, "{last.key}")'
        yield f"{call.operator} has no kernel for {last.key}, so the call fails; {fix}"
    yield call.schema


# -- what all formats show


def set_text(keys: DispatchKeySet) -> str:
    """Return a set, highest priority first."""
    return ", ".join(map(str, by_priority(keys))) or "(empty)"


def functionalities_text(keys: DispatchKeySet) -> str:
    """Return the functionalities of a set, highest priority first: it excludes them for every backend.

    All ten autocast keys together appear as one word.
    """
    names = [str(key) for key in reversed(FUNCTIONALITY_KEYS[1:]) if keys.bits & functionality_bit(key)]
    autocast = [name for name in names if name.startswith("Autocast")]
    if len(autocast) == len(AUTOCAST_KEYS):
        first = names.index(autocast[0])
        names[first : first + len(AUTOCAST_KEYS)] = ["Autocast*"]
    return ", ".join(names) or "(empty)"


def argument_text(argument: ArgumentKeys) -> str:
    """Return `self (Tensor), cuda: AutogradCUDA, CUDA`."""
    note = f" ({argument.note})" if argument.note else ""
    return f"{argument.name} ({argument.type}), {printable(argument.given)}: {set_text(argument.keys)}{note}"


def thread_sets(thread: ThreadKeys) -> Iterator[tuple[str, DispatchKeySet, str]]:
    """Return the four key sets of a thread with their titles; an excluded key is excluded for every backend."""
    yield "global include", thread.global_included, set_text(thread.global_included)
    yield "global exclude", thread.global_excluded, functionalities_text(thread.global_excluded)
    yield "local include", thread.local_included, set_text(thread.local_included)
    yield "local exclude", thread.local_excluded, functionalities_text(thread.local_excluded)


def call_blocks(call: CallExplanation) -> Iterator[b.Block]:
    """Return the facts of an explanation: first the keys with kernels that run, then why."""
    yield b.Line(("runs: ", *_path(call)))
    yield b.Line(call.end, "emphasis" if call.known else "warn")
    arguments = [argument_text(argument) for argument in call.arguments] or ["none that decides the dispatch"]
    yield b.Section("arguments", _indented(arguments))
    thread = (f"{title}: {text}" for title, keys, text in thread_sets(call.thread) if keys)
    yield b.Section("the thread", _indented(thread))
    for number, hop in enumerate(call.hops, 1):
        yield b.Section(f"{number}. {hop.kind} -> {hop.key}", _indented(hop_lines(hop)), mood=_mood(hop))


def _indented(texts: Iterable[b.Inline]) -> tuple[b.Block, ...]:
    return tuple(b.Line(text, indent=2) for text in texts)


def _path(call: CallExplanation) -> Iterator[b.Inline]:
    """Return the keys with kernels that run, in order."""
    for number, hop in enumerate(call.hops):
        yield b.quiet(" -> " if number else "")
        yield b.Span(str(hop.key), _mood(hop), "name")
        if hop.refusal is not None:
            yield b.bad(" (no kernel runs)")
        elif hop.kernel is not None and hop.kernel.stale is not None:
            yield b.bad(" (a stale slot, which runs ")
            yield b.source(hop.kernel.debug)
            yield b.bad(")")


def _mood(hop: Hop) -> b.Mood:
    if hop.refusal is not None:
        return "bad"
    return "kernel" if hop.kernel is None else b.REASON_MOODS.get(hop.kernel.reason, "kernel")


def hop_lines(hop: Hop) -> Iterator[b.Inline]:
    """Return the facts of a hop as lines."""
    kernel = hop.kernel
    if kernel is not None:
        place = f", at {kernel.source}" if kernel.source else ""
        through = "fallthrough " if kernel.fallthrough else ""
        yield (f"kernel: {through}", b.source(kernel.debug), b.Span(f" [{kernel.reason}]", _mood(hop)), place)
    if hop.refusal is not None:
        yield b.bad(f"nothing can run: {hop.refusal}")
    if kernel is not None and kernel.stale is not None:
        yield (b.bad("the slot is stale: it should hold "), b.source(kernel.stale))
    yield b.quiet(hop.why)
    yield f"set: {set_text(hop.start)}"
    for left in hop.left_out:
        whose = (": ", b.source(left.debug), f" [{left.reason}]") if left.debug else ()
        yield (f"left out: {left.key}, {left.why}", *whose)
    if hop.left_out:
        yield f"what remains: {set_text(hop.keys)}"
    for lost in () if kernel is None else kernel.beaten:
        verb = "lost" if kernel is None or kernel.stale is None else "should have lost"
        why = "the kernel above comes first" if lost.why == OUTRANKED else lost.why
        yield (
            b.quiet(f"{verb}: "),
            b.source(lost.debug, "quiet"),
            b.quiet(f" [{lost.reason}], at {lost.source}: {why}"),
        )


_KEYS_SHOWN = 4


def explanation_notes(explained: ExplainedOperator) -> Iterator[str]:
    """Return notes about the source of an explanation, as lines."""
    inspection = explained.inspection
    if inspection.bare and explained.explanation.hops[-1].refusal is not None:
        yield f"{inspection.semantics} starts without PyTorch's backend fallbacks: --semantics torch-2.13 has them"
    model = model_for(inspection.build or inspection.semantics)
    if others := other_keys_of_calls(model):
        shown = first_of(others, _KEYS_SHOWN)
        yield f"key sets are those of {CALLS}; in {model} these keys are different or in another order: {shown}"


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
