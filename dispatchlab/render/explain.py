"""Explanations of calls as plain text and as JSON: which kernel runs, and why.

    version           see JSON_VERSION
    source, engine, semantics   where the operator comes from, and who was asked
    no_answer         null, or why the source cannot answer: it has no kernels for the backend of the call
    privateuse1       the name that a package gave the PrivateUse1 backend; null when none did
    operator, schema  its name and schema
    arguments         [{name, type, given, keys, note}]
    of_arguments      all their keys
    thread            {global_include, global_exclude, local_include, local_exclude}
    hops              [{kind, why, assumed, set, left_out, keys, key, kernel, refusal}]; left_out: [{key, why, debug,
                      reason}], reason: null for what is excluded; kernel: null, or {debug, reason, source, fallthrough,
                      stale, beaten}; refusal: null, or the kind of error; assumed: false, nothing is
    end               why there is no further hop
    mode              null, or {mode, option, python_dispatcher, chain, symbolic, unsure, later, steps, notes}, what
                      runs under the mode that was asked for; option: the backend of torch.compile, or the table of
                      decompositions of make_fx, else empty; chain, symbolic:
                      [{kind, where, function, site, why, gives_up}], what runs first, and what follows when it gives
                      up; symbolic: the same when a size is symbolic, empty where nothing differs; later: null, or
                      {when, chain}, what runs afterwards; steps: [{key, kernel, why}], each hop of a transform or of
                      autocast and what it does there, empty for the other modes; notes: what holds for every call in
                      the mode
    known             false when nobody knows what the last kernel does, so that it may redispatch

Each set is {raw, keys}: the bits as upstream's `raw_repr()` has them, and the runtime keys, highest priority first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dispatchlab.analysis.explain_calls import ExplainedOperator
from dispatchlab.call.explain import ArgumentKeys, CallExplanation, Chosen, Hop, LeftOut, ThreadKeys, by_priority
from dispatchlab.escape import printable
from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import FUNCTIONALITY_KEYS
from dispatchlab.model.operator_view import OUTRANKED
from dispatchlab.model.profile import CALLS, model_for, other_keys_of_calls
from dispatchlab.render.as_json import as_json, fields_of, json_text

if TYPE_CHECKING:
    from dispatchlab.call.explain_mode import ModeExplanation
    from dispatchlab.call.implementation import Implementation
    from dispatchlab.model.python_layer import Mode

_AUTOCAST_COUNT = sum(key.name.startswith("Autocast") for key in FUNCTIONALITY_KEYS)


def explanation_text(found: CallExplanation, *, no_answer: str = "", under: ModeExplanation | None = None) -> str:
    """The whole of it; what is no answer says so first."""
    lines = [no_answer, ""] if no_answer else []
    lines += _lines(found)
    if under is not None:
        lines += ["", *mode_lines(under)]
    return "".join(f"{line}\n" for line in lines)


def mode_lines(under: ModeExplanation) -> Iterator[str]:
    """What runs under a mode, why, and what follows when it gives up."""
    yield mode_title(under)
    for at, one in enumerate(under.chain):
        yield from _implementation_lines(one, "runs" if not at else f"then, {under.chain[at - 1].gives_up}")
    for when, one in symbolic_parts(under):
        yield from _implementation_lines(one, when)
    for when, one in later_parts(under):
        yield from _implementation_lines(one, when)
    if under.unsure:
        yield f"  {under.unsure}"
    for at, step in enumerate(under.steps, 1):
        yield f"  {at}. {step.key}: {step.why}"
    for note in under.notes:
        yield f"  {note}"


def symbolic_parts(under: ModeExplanation) -> Iterator[tuple[str, Implementation]]:
    """What differs when a size is symbolic, each with when it runs."""
    for at, one in enumerate(under.symbolic):
        if one not in under.chain:
            after = f", {under.symbolic[at - 1].gives_up}" if at else ""
            yield f"when a size is symbolic{after}", one


def mode_title(under: ModeExplanation) -> str:
    """`under FakeTensorMode, with the Python dispatcher off`; `inside of torch.func.vmap`."""
    title = MODE_TITLES[under.mode].format(option=_OPTION_TITLES.get((under.mode, under.option), under.option))
    if under.mode == "dtensor" or under.steps:
        return title
    return f"{title}, with the Python dispatcher {'on' if under.python_dispatcher else 'off'}"


MODE_TITLES: dict[Mode, str] = {
    "fake": "under FakeTensorMode",
    "make_fx": "under make_fx with {option}",
    "compile": "under torch.compile with {option}",
    "export": "under torch.export",
    "dtensor": "with DTensors",
    "functionalize": "inside of torch.func.functionalize",
    "grad": "inside of torch.func.grad",
    "vmap": "inside of torch.func.vmap",
    "autocast": "inside of torch.autocast",
}
"""What the modes are called."""

_OPTION_TITLES = {
    ("compile", "inductor"): "Inductor",
    ("make_fx", "none"): "no decompositions",
    ("make_fx", "core_aten"): "the decompositions to core ATen",
    ("make_fx", "inductor"): "the decompositions of Inductor",
    ("make_fx", "all"): "all decompositions after autograd",
    ("make_fx", "pre_autograd"): "the decompositions before autograd",
}


def later_parts(under: ModeExplanation) -> Iterator[tuple[str, Implementation]]:
    """What runs afterwards, each with when it runs."""
    if under.later is not None:
        chain = under.later.chain
        for at, one in enumerate(chain):
            yield f"{under.later.when}{f', {chain[at - 1].gives_up}' if at else ''}", one


def _implementation_lines(one: Implementation, when: str) -> Iterator[str]:
    yield f"  {when}: {implementation_text(one)}"
    yield f"    {one.where}: {one.why}"


def implementation_text(one: Implementation) -> str:
    """`the fake-tensor rule torch._subclasses.fake_impls:nonzero at torch/_subclasses/fake_impls.py:1249`."""
    at = f" at {one.site}" if one.site else ""
    return printable(f"{one.kind}{f', {one.function}' if one.function else ''}{at}")


def _lines(found: CallExplanation) -> Iterator[str]:
    yield printable(found.schema)
    yield ""
    yield "arguments"
    for argument in found.arguments:
        yield f"  {argument_text(argument)}"
    if not found.arguments:
        yield "  none that decides the dispatch"
    yield "the thread"
    for title, keys in thread_sets(found.thread):
        yield f"  {title}: {thread_set_text(title, keys)}"
    for number, hop in enumerate(found.hops, 1):
        yield ""
        yield f"{number}. {hop.kind} -> {hop.key}"
        yield f"  {hop.why}"
        yield f"  set: {set_text(hop.start)}"
        for left in hop.left_out:
            yield f"  left out: {left_out_text(left)}"
        if hop.left_out:
            yield f"  what remains: {set_text(hop.keys)}"
        yield from (f"  {line}" for line in kernel_lines(hop))
    yield ""
    yield found.end


def set_text(keys: DispatchKeySet) -> str:
    """A set, highest priority first."""
    return ", ".join(map(str, by_priority(keys))) or "(empty)"


def functionalities_text(keys: DispatchKeySet) -> str:
    """The functionalities of a set, highest priority first: what it excludes, whatever the backend.

    The autocast keys are one when all ten are there.
    """
    names = [str(key) for key in reversed(FUNCTIONALITY_KEYS[1:]) if keys.bits & functionality_bit(key)]
    autocast = [name for name in names if name.startswith("Autocast")]
    if len(autocast) == _AUTOCAST_COUNT:
        at = names.index(autocast[0])
        names[at : at + _AUTOCAST_COUNT] = ["Autocast*"]
    return ", ".join(names) or "(empty)"


def thread_sets(thread: ThreadKeys) -> tuple[tuple[str, DispatchKeySet], ...]:
    """The four sets with their titles."""
    return (
        ("global include", thread.global_included),
        ("global exclude", thread.global_excluded),
        ("local include", thread.local_included),
        ("local exclude", thread.local_excluded),
    )


def thread_set_text(title: str, keys: DispatchKeySet) -> str:
    """One of these sets; what is excluded is excluded for every backend."""
    return functionalities_text(keys) if title.endswith("exclude") else set_text(keys)


def argument_text(argument: ArgumentKeys) -> str:
    """`self (Tensor), cuda: AutogradCUDA, CUDA`."""
    note = f" ({argument.note})" if argument.note else ""
    return f"{argument.name} ({argument.type}), {printable(argument.given)}: {set_text(argument.keys)}{note}"


def left_out_text(left: LeftOut) -> str:
    """`BackendSelect, fallthrough: fn [backend fallback]`."""
    whose = f": {printable(left.debug)} [{left.reason}]" if left.debug else ""
    return f"{left.key}, {left.why}{whose}"


def kernel_lines(hop: Hop) -> Iterator[str]:
    """The kernel of a hop, and what it beat."""
    kernel = hop.kernel
    if kernel is not None:
        yield f"kernel: {kernel_text(kernel)}"
    if hop.refusal is not None:
        yield f"nothing can run: {hop.refusal}"
    if kernel is None:
        return
    if kernel.stale is not None:
        yield f"the slot is stale: it should hold {printable(kernel.stale)}"
    verb = "lost" if kernel.stale is None else "should have lost"
    for lost in kernel.beaten:
        why = "the kernel above comes first" if lost.why == OUTRANKED else lost.why
        yield f"{verb}: {printable(lost.debug)} [{lost.reason}], at {lost.source}: {why}"


def kernel_text(kernel: Chosen) -> str:
    """`fn_cpu [kernel], at CPU`."""
    source = f", at {kernel.source}" if kernel.source else ""
    return f"{'fallthrough ' if kernel.fallthrough else ''}{printable(kernel.debug)} [{kernel.reason}]{source}"


def explanation_json(found: ExplainedOperator, *, engine: str) -> str:
    """An explanation as one object on one line."""
    inspection = found.inspection
    return json_text(
        {
            "source": inspection.source,
            "engine": engine,
            "semantics": inspection.semantics,
            "no_answer": found.no_answer or None,
            "privateuse1": inspection.privateuse1 or None,
            **fields_of(found.explanation),
            "mode": None
            if found.under is None
            else {**fields_of(found.under, without=("call",)), "python_dispatcher": found.under.python_dispatcher},
        }
    )


_KEYS_SHOWN = 4


def explanation_notes(found: ExplainedOperator) -> Iterator[str]:
    """What a reader should know about the source of an explanation, a line each."""
    inspection = found.inspection
    if inspection.bare and found.explanation.hops[-1].refusal is not None:
        yield f"{inspection.semantics} starts without PyTorch's backend fallbacks: --semantics torch-2.13 has them"
    model = model_for(inspection.build or inspection.semantics)
    if others := other_keys_of_calls(model):
        more = f" and {len(others) - _KEYS_SHOWN} more" if len(others) > _KEYS_SHOWN else ""
        shown = ", ".join(others[:_KEYS_SHOWN]) + more
        yield f"key sets are those of {CALLS}; in {model} these keys are others, or stand elsewhere: {shown}"


@as_json.register
def _(value: ThreadKeys) -> dict[str, object]:
    return {title.replace(" ", "_"): as_json(keys) for title, keys in thread_sets(value)}


@as_json.register
def _(value: Hop) -> dict[str, object]:
    return fields_of(value, without=("start",), set=value.start, assumed=False)
