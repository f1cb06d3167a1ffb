"""Reasons behind a table: an operator with the source of each row's kernel and the candidates that it beat."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.introspection import fallbacks_in, fallthroughs_without_row, operator_in, rows, schema_text
from dispatchlab.engine.invariants import expected_slots, stale_keys, violations
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.precedence import computed_table
from dispatchlab.engine.reference_precedence import Candidate, Plain, Source
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.state import State
from dispatchlab.model.dump_format import Provenance, alias_text, key_text
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import NEWER, NO_KERNEL, OUTRANKED, Beaten, KernelRow, OperatorView, TableRow
from dispatchlab.model.slot_set import CATCH_ALL_BIT, KEY_BIT, KEY_OF_BIT, keys_of

_NAMES = tuple(map(str, SLOT_KEYS))
_LAYERS = "dispatchlab.lab."  # kernels that stand above the engine, which must not import them


def operator_view(state: State, name: OperatorName, semantics: Semantics) -> OperatorView | None:
    """Return an operator with the reason of each row and the kernels that lost; None if there is no such operator."""
    entry = operator_in(state, name)
    if entry is None:
        return None
    fallbacks = fallbacks_in(state)
    kernels = tuple(
        KernelRow(
            key=key_text(kernel.key),
            is_alias=kernel.key is not None and kernel.key.is_alias,
            active=at == 0,
            debug=kernel.debug,
            inferred=schema_text(kernel.kernel.inferred, semantics),
            flags=tuple(kernel.kernel.flags.split()),
            location=kernel.location,
        )
        for bit in sorted(entry.kernels, key=semantics.dump_order.__getitem__)
        for at, kernel in enumerate(entry.kernels[bit])
    )
    computed = rows(computed_table(semantics.precedence, entry.present, entry.kernels, fallbacks), semantics)
    stale = stale_keys(entry.slots, expected_slots(entry, fallbacks, semantics))
    actual = rows(entry.slots, semantics)
    table = tuple(
        TableRow(
            key=_NAMES[slot],
            text="" if held is None else held.text,
            debug="" if held is None else held.registered.debug,
            reason=None if held is None else held.reason,
            fallthrough=held is not None and held.registered.kernel.is_fallthrough,
            source="" if held is None or held.reason is Provenance.AMBIGUOUS else key_text(held.registered.key),
            beaten=tuple(_beaten(entry, fallbacks, semantics, SLOT_KEYS[slot])),
            stale=(actual[slot].text if slot in actual else NO_KERNEL) if stale >> slot & 1 else None,
        )
        for slot in semantics.in_order({*computed, *actual})
        for held in (computed.get(slot),)
    )
    stored = entry.stored
    return OperatorView(
        name=str(name),
        schema=None if stored is None else schema_text(stored.schema, semantics),
        debug=None if stored is None else stored.debug,
        alias_kind=None if stored is None else alias_text(stored.alias),
        tags=tuple(sorted(entry.tags)),
        kernels=kernels,
        table=table,
        violations=violations(entry, fallbacks, semantics),
        skipped=tuple(map(str, semantics.keys_in(fallthroughs_without_row(entry, fallbacks, semantics)))),
        by_rule=tuple(_NAMES[slot] for slot, held in actual.items() if _module(held.registered).startswith(_LAYERS)),
    )


def _module(kernel: RegisteredKernel) -> str:
    return str(getattr(kernel.kernel.function, "__module__", None))


@lru_cache(maxsize=256)
def _keys_in(slots: int) -> frozenset[DispatchKey]:
    return frozenset(keys_of(slots))


@lru_cache(maxsize=256)
def _sources_in(bits: int) -> frozenset[Source]:
    return frozenset(key for bit, key in KEY_OF_BIT.items() if bits & bit)


@lru_cache(maxsize=1 << 14)  # many operators have kernels at the same keys
def _candidates(
    plain: Plain, key: DispatchKey, present: int, fallbacks: int, fallthroughs: int
) -> tuple[Candidate, ...]:
    """Return the candidates for a slot, in the order of the precedence."""
    return tuple(plain.candidates(key, _sources_in(present), _keys_in(fallbacks), _keys_in(fallthroughs)))


def _beaten(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics, key: DispatchKey) -> Iterator[Beaten]:
    winner_seen = False
    plain = semantics.precedence.plain
    for candidate in _candidates(plain, key, entry.present, fallbacks.slots, fallbacks.fallthrough_slots):
        if not candidate.held_back and not winner_seen:
            winner_seen = True
            bit = CATCH_ALL_BIT if candidate.source is None else KEY_BIT[candidate.source]
            if candidate.reason not in (Provenance.FALLBACK, Provenance.AMBIGUOUS):
                for shadowed in entry.kernels[bit][1:]:
                    yield Beaten(str(shadowed.key), shadowed.debug, candidate.reason, NEWER)
            elif candidate.reason is Provenance.FALLBACK:
                builtin = fallbacks.builtin.get(bit)
                if builtin is not None and builtin is not fallbacks.by_slot[bit]:
                    yield Beaten(str(builtin.key), builtin.debug, candidate.reason, NEWER)
            continue
        yield _lost(entry, fallbacks, candidate)


def _lost(entry: OperatorEntry, fallbacks: Fallbacks, candidate: Candidate) -> Beaten:
    if candidate.reason is Provenance.FALLBACK:
        assert candidate.source is not None
        debug = fallbacks.by_slot[KEY_BIT[candidate.source]].debug
    else:
        bit = CATCH_ALL_BIT if candidate.source is None else KEY_BIT[candidate.source]
        debug = entry.kernels[bit][0].debug
    return Beaten(key_text(candidate.source), debug, candidate.reason, candidate.held_back or OUTRANKED)
