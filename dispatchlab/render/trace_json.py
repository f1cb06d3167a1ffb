"""Calls that were made, as JSON for programs. A field is never renamed or dropped within a version.

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
from collections.abc import Sequence

from dispatchlab.call.traced import TracedCall, TracedStep, TracedThread
from dispatchlab.render.explain_json import key_set

VERSION = 1


def trace_json(threads: Sequence[TracedThread]) -> str:
    """What was recorded, as one object on one line."""
    told = [{"name": thread.name, "steps": [_step(step) for step in thread.steps]} for thread in threads]
    return json.dumps({"version": VERSION, "threads": told}, ensure_ascii=False) + "\n"


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
