"""The dump and the table of a recorded operator, from its record: the same text as after a replay on the lab engine.

This needs no engine and parses no schema, so it is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from dispatchlab.engine.reference_precedence import Plain, plain_by_levels
from dispatchlab.model.dump_format import AMBIGUOUS_DEBUG, Provenance, entry_text, row_text
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.profile import bundled_profile
from dispatchlab.registries.builds import default_registry
from dispatchlab.registries.file import bundled_name, open_bundled
from dispatchlab.registries.model import Recorded, RecordedOperator, dump_text


def bundled_text(name: str, source: str | None, *, layer: str = "all", report: Callable[[str], None]) -> str | None:
    """Return the text of `dump` for an operator of a bundled registry; None if the record does not suffice.

    Args:
        name: the operator, with its overload.
        source: the name of the registry; default: that of the installed PyTorch, or else the newest.
        layer: `cxx` for the dispatch table only, or `all`.
        report: a function that gets the name of the default registry, if it is used.
    """
    if "." not in name or layer == "python" or (source is not None and bundled_name(source) is None):
        return None
    name = name if "::" in name else f"aten::{name}"
    reason = ""
    if source is None:
        source, reason = default_registry()
    recorded = open_bundled(source)
    operator = recorded.operator(name)
    if operator is None:
        return None
    if reason:
        report(f"note: {reason}")
    texts = [recorded_text(recorded, operator)]
    python = None if recorded.python is None or layer == "cxx" else recorded.python.of(name)
    if python:
        from dispatchlab.questions.dump.operator_text import python_text

        texts.append(python_text(python))
    return "\n".join(texts)


def recorded_text(recorded: Recorded, operator: RecordedOperator) -> str:
    """Return the dump of an operator, an empty line, and its table, under the precedence of the recorded PyTorch.

    Args:
        recorded: the registry, for its fallbacks.
        operator: one of its operators.
    """
    rows = (row_text(key, text) for key, text in _table(recorded, operator))
    return f"{dump_text(operator)}\n{''.join(rows)}"


def _table(recorded: Recorded, operator: RecordedOperator) -> Iterator[tuple[DispatchKey, str]]:
    plain = _precedence(model_for(recorded.torch))
    active = {kernel.key: kernel for kernel in reversed(operator.kernels)}
    fallbacks = {fallback.key: fallback for fallback in recorded.fallbacks}
    skipping = frozenset(key for key, fallback in fallbacks.items() if fallback.fallthrough)
    for key in plain.slots:
        candidates = plain.candidates(key, active.keys(), fallbacks.keys(), skipping)
        winner = next((one for one in candidates if not one.held_back), None)
        if winner is None or winner.source is None:
            continue
        if winner.reason is Provenance.AMBIGUOUS:
            yield key, entry_text(AMBIGUOUS_DEBUG, winner.reason)
        elif winner.reason is Provenance.FALLBACK:
            fallback = fallbacks[key]
            yield key, entry_text(fallback.debug, winner.reason, fallthrough=fallback.fallthrough)
        else:
            kernel = active[winner.source]
            yield key, entry_text(kernel.debug, winner.reason, fallthrough=kernel.is_fallthrough)


@cache
def _precedence(profile: str) -> Plain:
    return plain_by_levels(bundled_profile(profile))
