"""The state that a fresh dispatcher starts from: the builtin fallbacks that its semantics brings along."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from dispatchlab.engine.lowering import lower, register
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.engine.state import FALLBACKS, State, Transaction
from dispatchlab.model.keys import DispatchKey


def preloaded(semantics: Semantics) -> State:
    """The cells of a fresh dispatcher; do not change it."""
    return _preloaded(semantics.name) if SEMANTICS.get(semantics.name) is semantics else _load(semantics)


@cache
def _preloaded(name: str) -> State:
    return _load(SEMANTICS[name])


def _load(semantics: Semantics) -> State:
    transaction = Transaction({}, set())
    from_within = replace(semantics, keys=frozenset(DispatchKey))  # a dispatcher's own code can name every key
    for fallback in semantics.fallbacks:
        register(from_within, transaction, lower(fallback, from_within))
    return {FALLBACKS: transaction.get(FALLBACKS)} if transaction.changes else {}
