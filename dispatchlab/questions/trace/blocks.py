"""Recorded calls, and which kernels ran, as blocks and as JSON (docs/json.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dispatchlab.call.trace import TracedCall, TracedEvent, TracedGuard, TracedKernel
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import BACKEND_BITS, DispatchKeySet
from dispatchlab.questions.explain.blocks import functionalities_text, set_text
from dispatchlab.questions.trace.summary import KernelUse, Trace, TraceSummary
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import REASON_MOODS, Block, Line, Mood, Span, Table, quiet
from dispatchlab.views.formatting import counted, first_of
from dispatchlab.views.view import View

# -- the calls


def trace_view(trace: Trace, *, sets: bool = False) -> View[Trace]:
    """Return the view of a trace: a line for each call as in PyTorch's own trace, with the keys of each argument.

    Args:
        trace: the trace.
        sets: also show guards, key sets and kernels.
    """
    return View(trace, lines=partial(_lines, sets=sets))


def _lines(trace: Trace, *, sets: bool) -> Iterator[Block]:
    for thread in trace.threads:
        if len(trace.threads) > 1:
            yield Line(f"thread {thread.name}", "strong")
        yield from _tree(thread.steps, 1, sets=sets)


def _tree(steps: Sequence[TracedEvent], depth: int, *, sets: bool) -> Iterator[Line]:
    for step in steps:
        if isinstance(step, TracedCall):
            mood: Mood = "autograd" if step.kernel is None else REASON_MOODS.get(step.kernel.reason, "kernel")
            key = Span(str(step.keys.highest()), "bad" if step.error else mood, "name")
            each = () if sets else step.each.items()
            arguments = "".join(f", {name}=[{set_text(keys)}]" for name, keys in each)
            arguments += f" ({step.note})" * bool(step.note and not sets)
            yield Line((f"{step.kind} op=[{step.operator}], key=[", key, "]", quiet(arguments)), indent=step.depth)
            if sets:
                for text in _detail_texts(step):
                    yield Line(text, "bad" if text.startswith("raised") else "quiet", indent=depth + 2)
            yield from _tree(step.steps, depth + 1, sets=sets)
        else:
            if sets:
                sides = (("includes", step.newly_included), ("excludes", step.newly_excluded))
                changes = [f"{verb} {functionalities_text(keys)}" for verb, keys in sides if keys]
                text = f"[guard] {step.name}: {', '.join(changes) or 'changes nothing'}"
                yield Line(text, "warn", indent=depth)
            yield from _tree(step.steps, depth, sets=sets)


def _detail_texts(call: TracedCall) -> Iterator[str]:
    """Return the origin of a call's key set, and its kernel."""
    if "redispatch" in call.kind:
        yield f"handed over: {set_text(call.keys)}"
    else:
        yield f"arguments: {set_text(call.arguments)}"
        yield f"global include: {set_text(call.included - call.local_included)}"
        yield f"global exclude: {functionalities_text(call.excluded - call.local_excluded)}"
        yield f"local include: {set_text(call.local_included)}"
        yield f"local exclude: {functionalities_text(call.local_excluded)}"
        if call.base != call.keys:
            gone = DispatchKeySet(call.base.bits & ~call.keys.bits | call.base.bits & BACKEND_BITS)
            yield f"fallthrough: {set_text(gone)}"
        yield f"set: {set_text(call.keys)}"
    yield "kernel: none" if call.kernel is None else f"kernel: {_kernel_text(call.kernel)}"
    if call.error is not None:
        yield f"raised: {call.error}"
    if call.note:
        yield f"note: {call.note}"


def _kernel_text(kernel: TracedKernel) -> str:
    """`fn_cpu [kernel], at CPU, boxed`."""
    conversion = f", arguments {kernel.conversion} for it" if kernel.conversion else ""
    return f"{kernel.debug} [{kernel.reason}], at {kernel.source}{conversion}"


@as_json.register
def _(value: TracedGuard) -> dict[str, object]:
    return {"step": "guard", **fields_of(value)}


@as_json.register
def _(value: TracedCall) -> dict[str, object]:
    return {"step": "call", **fields_of(value, key=value.keys.highest())}


# -- the summary


def summary_view(summary: TraceSummary) -> View[TraceSummary]:
    """Return the view of a summary: a line for each kernel, and the calls through fallbacks or decompositions."""
    return View(summary, lines=_summary)


_THROUGH = (
    (Provenance.FALLBACK, "backend fallbacks"),
    (Provenance.MATH, "decompositions (CompositeImplicitAutograd)"),
    (Provenance.DEFAULT_BACKEND, "kernels for all backends (CompositeExplicitAutograd)"),
    (Provenance.BATCHED, "decompositions of vmap (FuncTorchBatchedDecomposition)"),
)


def _summary(summary: TraceSummary) -> Iterator[Block]:
    yield Line(
        f"{counted(summary.calls, 'call')} and {counted(summary.redispatches, 'redispatch', 'redispatches')}, "
        f"of {counted(summary.operators, 'operator')} in {counted(summary.threads, 'thread')}"
    )
    for reason, what in _THROUGH:
        uses = [use for use in summary.kernels if use.reason is reason]
        if uses:
            names = sorted({use.operator for use in uses})
            count = sum(use.count for use in uses)
            yield Line(f"{count:,} through {what}: {first_of(names, _MOST_NAMES, ' operators')}")
    if summary.kernels:
        rows = tuple(
            (f"{use.count:,}", f"{use.total_ns / 1000:,.0f}", use.operator, use.key, _use_text(use))
            for use in summary.kernels
        )
        yield from (Line(), Table("Kernels that ran", _HEADS, rows))


_HEADS = ("times", "us", "operator", "key", "kernel")


def _use_text(use: KernelUse) -> str:
    raised = f", raised {use.raised:,} times" if use.raised else ""
    if use.reason is None:
        return f"none, or none that is known{raised}"
    place = "" if use.source == use.key else f" at {use.source}"
    return f"[{use.reason}]{place} {use.kernel}{raised}"


_MOST_NAMES = 12
