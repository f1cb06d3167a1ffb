"""Recorded calls as plain text and as JSON.

    version           1
    threads           [{name, steps}]
    steps             of a thread, a call or a guard, in the order in which they began:
      a call          {step: "call", kind, operator, depth, arguments, included, excluded, local_included,
                      local_excluded, base, keys, key, kernel, error, steps}; kernel: null, or {debug, reason, source,
                      conversion}; conversion: "", "boxed" or "unboxed"; error: null, or what was raised
      a guard         {step: "guard", name, included, excluded, newly_included, newly_excluded, steps}

Each set is {raw, keys}: the bits as upstream's `raw_repr()` has them, and the runtime keys, highest priority first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dispatchlab.call.trace import TracedCall, TracedGuard, TracedKernel, TracedStep, TracedThread
from dispatchlab.model.key_set import BACKEND_BITS, DispatchKeySet
from dispatchlab.render.explain import functionalities_text, key_set, set_text
from dispatchlab.render.formatting import JSON_VERSION, printable


def trace_text(threads: Sequence[TracedThread], *, sets: bool = False) -> str:
    """All of it; the name of a thread stands above what it did where there are several.

    Args:
        threads: what was recorded.
        sets: tell of guards, key sets and kernels, too.
    """
    return "".join(f"{line}\n" for line in _lines(threads, sets=sets))


def _lines(threads: Sequence[TracedThread], *, sets: bool) -> Iterator[str]:
    for thread in threads:
        if len(threads) > 1:
            yield f"thread {printable(thread.name)}"
        yield from _tree(thread.steps, 1, sets=sets)


def _tree(steps: Sequence[TracedStep], depth: int, *, sets: bool) -> Iterator[str]:
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
    told = [
        *([f"includes {functionalities_text(guard.newly_included)}"] if guard.newly_included else []),
        *([f"excludes {functionalities_text(guard.newly_excluded)}"] if guard.newly_excluded else []),
    ]
    return f"[guard] {guard.name}: {', '.join(told) or 'changes nothing'}"


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


def kernel_line(kernel: TracedKernel) -> str:
    """`fn_cpu [kernel], at CPU, boxed`."""
    conversion = {"": "", "boxed": ", arguments boxed for it", "unboxed": ", arguments unboxed for it"}
    return f"{printable(kernel.debug)} [{kernel.reason}], at {kernel.source}{conversion[kernel.conversion]}"


def trace_json(threads: Sequence[TracedThread]) -> str:
    """What was recorded, as one object on one line."""
    told = [{"name": thread.name, "steps": [_step(step) for step in thread.steps]} for thread in threads]
    return json.dumps({"version": JSON_VERSION, "threads": told}, ensure_ascii=False) + "\n"


def _step(step: TracedStep) -> dict[str, object]:
    inner = [_step(each) for each in step.steps]
    if not isinstance(step, TracedCall):
        return {
            "step": "guard",
            "name": step.name,
            "included": key_set(step.included),
            "excluded": key_set(step.excluded),
            "newly_included": key_set(step.newly_included),
            "newly_excluded": key_set(step.newly_excluded),
            "steps": inner,
        }
    kernel = step.kernel
    return {
        "step": "call",
        "kind": step.kind,
        "operator": step.operator,
        "depth": step.depth,
        "arguments": key_set(step.arguments),
        "included": key_set(step.included),
        "excluded": key_set(step.excluded),
        "local_included": key_set(step.local_included),
        "local_excluded": key_set(step.local_excluded),
        "base": key_set(step.base),
        "keys": key_set(step.keys),
        "key": str(step.keys.highest()),
        "kernel": None
        if kernel is None
        else {
            "debug": kernel.debug,
            "reason": kernel.reason,
            "source": kernel.source,
            "conversion": kernel.conversion,
        },
        "error": step.error,
        "steps": inner,
    }
