"""Stale slots: which slots a kernel changes that its refresh does not reach, and in which orders that lasts.

Kernels alone are looked at, by the table that is computed of them: no engine is run. See Note [What a certificate
stands on].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations

from dispatchlab.engine.fallbacks import NO_FALLBACKS
from dispatchlab.engine.footprint import judged_keys
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.precedence import Slots, computed_table
from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.registration import Kernel
from dispatchlab.model.slot_set import KEY_BIT, KEY_OF_BIT, each_slot
from dispatchlab.questions.certify.certificate import Pattern

MAX_KEYS = 16
"""The sets of more kernels than this are not gone through."""


def key_bits(keys: Iterable[DispatchKey]) -> int:
    """Keys as bits."""
    bits = 0
    for key in keys:
        bits |= KEY_BIT[key]
    return bits


def keys_in(bits: int) -> frozenset[DispatchKey]:
    """The keys of bits; the bit of kernels without a key has none."""
    found = {KEY_OF_BIT[1 << at] for at in each_slot(bits)}
    return frozenset(key for key in found if key is not None)


def slots_left_stale(semantics: Semantics, keys: Sequence[DispatchKey]) -> frozenset[int]:
    """The slots that one of these kernels changes without a refresh, at some set of the others."""
    tables = {}
    for count in range(len(keys) + 1):
        for chosen in combinations(keys, count):
            tables[key_bits(chosen)] = _table(semantics, key_bits(chosen))
    found = 0
    for present, table in tables.items():
        for key in keys:
            bit = KEY_BIT[key]
            if not present & bit:
                found |= _differing(table, tables[present | bit]) & ~(semantics.refresh[key] & semantics.released[key])
    return frozenset(each_slot(found))


def patterns_with_stale_slots(semantics: Semantics, patterns: Iterable[Pattern]) -> frozenset[Pattern]:
    """Those of the patterns in which a kernel can change a slot that it does not refresh.

    In all others, no slot is ever stale.
    """
    known: dict[int, bool] = {}

    def can(judged: int) -> bool:
        if judged not in known:
            keys = sorted(keys_in(judged))
            known[judged] = len(keys) > MAX_KEYS or bool(slots_left_stale(semantics, keys))
        return known[judged]

    def concerns(pattern: Pattern) -> bool:
        present = key_bits(pattern.kernel_keys)
        return any(can(judged) for judged in {judged_keys(semantics, slot) & present for slot in range(len(SLOT_KEYS))})

    return frozenset(filter(concerns, patterns))


def order_with_stale_slot(semantics: Semantics, pattern: Pattern, slot: int) -> tuple[DispatchKey, ...] | None:
    """An order of all kernels after which a slot holds what it should not; None when there is none.

    The last kernel that refreshes the slot decides: so it is enough to choose which of those that do not refresh it
    come before.
    """
    keys, refresh = sorted(pattern.kernel_keys), semantics.refresh
    lazy = [key for key in keys if KEY_BIT[key] & judged_keys(semantics, slot) and not refresh[key] >> slot & 1]
    eager = [key for key in keys if refresh[key] >> slot & 1]
    rest = [key for key in keys if key not in lazy and key not in eager]
    whole = _table(semantics, key_bits(keys))
    for count in range(len(lazy) if eager else 1):
        for before in combinations(lazy, count):
            if _differing(_table(semantics, key_bits([*before, *eager])), whole) >> slot & 1:
                return (*rest, *before, *eager, *(key for key in lazy if key not in before))
    return None


def _table(semantics: Semantics, present: int) -> Slots:
    kernels = {bit: (_entry(bit),) for bit in KEY_OF_BIT if present & bit}
    return computed_table(semantics.precedence, present, kernels, NO_FALLBACKS)


@cache
def _entry(bit: int) -> RegisteredKernel:
    return RegisteredKernel(Kernel(), "", KEY_OF_BIT[bit])


def _differing(one: Slots, other: Slots) -> int:
    bits = 0
    for key in {**one, **other}:
        bits |= one.get(key, 0) ^ other.get(key, 0)
    return bits
