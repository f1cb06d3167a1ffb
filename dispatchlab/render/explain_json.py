"""Why a call runs its kernel, as JSON for programs. A field is never renamed or dropped within a version.

    version           1
    source, engine, semantics   where the operator comes from, and who was asked
    operator, schema  its name and schema
    arguments         [{name, type, given, keys, note}]
    of_arguments      all their keys
    thread            {global_include, global_exclude, local_include, local_exclude}
    hops              [{kind, why, assumed, set, left_out, keys, key, kernel, refusal}]; left_out: [{key, why, debug,
                      reason}]; kernel: null, or {debug, reason, source, fallthrough, stale, beaten}; refusal: null, or
                      the kind of error
    end               why there is no further hop

Each set is {raw, keys}: the bits as upstream's `raw_repr()` has them, and the runtime keys, highest priority first.
"""

from __future__ import annotations

import json

from dispatchlab.call.explanation import CallExplanation, Hop, by_priority
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.render.explain_text import thread_sets

VERSION = 1


def explanation_json(found: CallExplanation, *, source: str, engine: str, semantics: str) -> str:
    """An explanation as one object on one line."""
    told = {
        "version": VERSION,
        "source": source,
        "engine": engine,
        "semantics": semantics,
        "operator": found.operator,
        "schema": found.schema,
        "arguments": [
            {"name": one.name, "type": one.type, "given": one.given, "keys": key_set(one.keys), "note": one.note}
            for one in found.arguments
        ],
        "of_arguments": key_set(found.of_arguments),
        "thread": {title.replace(" ", "_"): key_set(keys) for title, keys in thread_sets(found.thread)},
        "hops": [_hop(hop) for hop in found.hops],
        "end": found.end,
    }
    return json.dumps(told, ensure_ascii=False) + "\n"


def key_set(keys: DispatchKeySet) -> dict[str, object]:
    """A set, as bits and as names."""
    return {"raw": keys.bits, "keys": [str(key) for key in by_priority(keys)]}


def _hop(hop: Hop) -> dict[str, object]:
    kernel = hop.kernel
    return {
        "kind": hop.kind,
        "why": hop.why,
        "assumed": hop.assumed,
        "set": key_set(hop.start),
        "left_out": [
            {"key": str(one.key), "why": one.why, "debug": one.debug, "reason": one.reason} for one in hop.left_out
        ],
        "keys": key_set(hop.keys),
        "key": str(hop.key),
        "kernel": None
        if kernel is None
        else {
            "debug": kernel.debug,
            "reason": kernel.reason,
            "source": kernel.source,
            "fallthrough": kernel.fallthrough,
            "stale": kernel.stale,
            "beaten": [
                {"source": one.source, "debug": one.debug, "reason": one.reason, "why": one.why}
                for one in kernel.beaten
            ],
        },
        "refusal": None if hop.refusal is None else str(hop.refusal),
    }
