"""The state that a fresh dispatcher starts from: the backend fallbacks that are there before anybody registers any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from dispatchlab.engine.builtin_fallbacks import BUILTIN_FALLBACKS
from dispatchlab.engine.lowering import lower, register
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.engine.state import FALLBACKS, State, Transaction
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Fallback


def initial_state(semantics: Semantics, fallbacks: Sequence[Fallback]) -> State:
    """The state of a fresh dispatcher with these fallbacks; do not change it."""
    if fallbacks is BUILTIN_FALLBACKS and SEMANTICS.get(semantics.name) is semantics:
        return _with_builtin_fallbacks(semantics.name)
    return _load(semantics, fallbacks)


@cache
def _with_builtin_fallbacks(name: str) -> State:
    return _load(SEMANTICS[name], BUILTIN_FALLBACKS)


def _load(semantics: Semantics, fallbacks: Sequence[Fallback]) -> State:
    transaction = Transaction({}, set())
    from_within = replace(semantics, keys=frozenset(DispatchKey))  # a dispatcher's own code can name every key
    for fallback in fallbacks:
        register(from_within, transaction, lower(fallback, from_within))
    return {FALLBACKS: transaction.get(FALLBACKS)} if transaction.changes else {}
