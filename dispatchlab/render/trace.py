"""Recorded calls as plain text and as JSON.

    version           see JSON_VERSION
    threads           [{name, steps}]
    notes             [a sentence for what the trace does not show]
    steps             of a thread, a call or a guard, in the order in which they began:
      a call          {step: "call", kind, operator, depth, arguments, included, excluded, local_included,
                      local_excluded, base, keys, key, kernel, error, steps, began_ns, ended_ns, note}; kernel: null, or
                      {debug, reason, source, conversion}; conversion: "", "boxed" or "unboxed"; error: null, or what
                      was raised
      a guard         {step: "guard", name, included, excluded, newly_included, newly_excluded, steps}

Each set is {raw, keys}: the bits as upstream's `raw_repr()` has them, and the runtime keys, highest priority first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.call.trace import TracedCall, TracedEvent, TracedGuard, TracedKernel, TracedThread
from dispatchlab.escape import printable
from dispatchlab.model.key_set import BACKEND_BITS, DispatchKeySet
from dispatchlab.render.as_json import as_json, fields_of, json_text
from dispatchlab.render.explain import functionalities_text, set_text


def trace_text(threads: Sequence[TracedThread], *, sets: bool = False) -> str:
    """All of it; the name of a thread stands above what it did where there are several.

    Args:
        threads: what was recorded.
        sets: show guards, key sets and kernels, too.
    """
    return "".join(f"{line}\n" for line in _lines(threads, sets=sets))


def _lines(threads: Sequence[TracedThread], *, sets: bool) -> Iterator[str]:
    for thread in threads:
        if len(threads) > 1:
            yield f"thread {printable(thread.name)}"
        yield from _tree(thread.steps, 1, sets=sets)


def _tree(steps: Sequence[TracedEvent], depth: int, *, sets: bool) -> Iterator[str]:
    for step in steps:
        if isinstance(step, TracedCall):
            yield call_line(step)
            if sets:
                yield from (f"{' ' * depth}  {line}" for line in detail_lines(step))
            yield from _tree(step.steps, depth + 1, sets=sets)
        else:
            if sets:
                yield f"{' ' * depth}{guard_line(step)}"
            yield from _tree(step.steps, depth, sets=sets)


def call_line(call: TracedCall) -> str:
    """`  [redispatch] op=[aten::add.Tensor], key=[CPU]`, as upstream's trace has it."""
    return f"{' ' * call.depth}{call.kind} op=[{call.operator}], key=[{call.keys.highest()}]"


def guard_line(guard: TracedGuard) -> str:
    """`[guard] AutoDispatchBelowAutograd: excludes AutogradCPU`."""
    changes = [
        *([f"includes {functionalities_text(guard.newly_included)}"] if guard.newly_included else []),
        *([f"excludes {functionalities_text(guard.newly_excluded)}"] if guard.newly_excluded else []),
    ]
    return f"[guard] {guard.name}: {', '.join(changes) or 'changes nothing'}"


def detail_lines(call: TracedCall) -> Iterator[str]:
    """Where the set of a call comes from, and what ran."""
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
    yield "kernel: none" if call.kernel is None else f"kernel: {kernel_line(call.kernel)}"
    if call.error is not None:
        yield f"raised: {printable(call.error)}"
    if call.note:
        yield f"note: {printable(call.note)}"


def kernel_line(kernel: TracedKernel) -> str:
    """`fn_cpu [kernel], at CPU, boxed`."""
    conversion = {"": "", "boxed": ", arguments boxed for it", "unboxed": ", arguments unboxed for it"}
    return f"{printable(kernel.debug)} [{kernel.reason}], at {kernel.source}{conversion[kernel.conversion]}"


def trace_json(threads: Sequence[TracedThread], notes: Sequence[str] = ()) -> str:
    """What was recorded, and what was not, as one object on one line."""
    return json_text({"threads": threads, "notes": notes})


@as_json.register
def _(value: TracedGuard) -> dict[str, object]:
    return {"step": "guard", **fields_of(value)}


@as_json.register
def _(value: TracedCall) -> dict[str, object]:
    return {"step": "call", **fields_of(value, key=value.keys.highest())}
