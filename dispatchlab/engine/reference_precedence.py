"""Reference computation of a dispatch table, key by key: the candidates in order and why each one loses.

Slow and plain on purpose. The invariants hold the table that calls use against this; views show a reader from this what
a row's kernel beat. Source: the note "Computed Dispatch Table" in aten/src/ATen/core/dispatch/OperatorEntry.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import RUNTIME_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.slot_set import (
    ALIAS_SLOTS,
    ALL_SLOTS,
    BACKENDS_OF_AUTOGRAD,
    CATCH_ALL_BIT,
    FUNCTIONALITY_SLOTS,
    KEY_BIT,
    KEY_OF_BIT,
    slots_of_key,
)

Source: TypeAlias = DispatchKey | None
"""Where a candidate is registered; None is the catch-all bucket."""


class Candidate(NamedTuple):
    """A kernel that could fill a slot.

    Args:
        source: the key that it is registered at; for a fallback the slot's own key.
        reason: what it would be there.
        held_back: why it does not get the slot although nothing before it did; empty when it would.
    """

    source: Source
    reason: Provenance
    held_back: str = ""


Plain: TypeAlias = Callable[
    [DispatchKey, AbstractSet[Source], AbstractSet[DispatchKey], AbstractSet[DispatchKey]], Iterator[Candidate]
]
"""(slot's key, keys with kernels, keys with fallbacks, keys with fallthrough fallbacks) -> candidates, best first."""


def _in_alias(key: DispatchKey, alias: DispatchKey) -> bool:
    return bool(ALIAS_SLOTS[alias] >> SLOT_OF_KEY[key] & 1)


def _backend_kernels(key: DispatchKey, direct: AbstractSet[Source]) -> list[DispatchKey]:
    """The keys with kernels that count as backends of an autograd key, functionality keys by containment."""
    backends = BACKENDS_OF_AUTOGRAD.get(key, 0)
    return sorted(
        k
        for k in direct
        if k is not None and not k.is_alias and backends & (slots_of_key(k) or FUNCTIONALITY_SLOTS.get(k, 0))
    )


def plain_torch_2_13(
    key: DispatchKey,
    direct: AbstractSet[Source],
    fallbacks: AbstractSet[DispatchKey],
    fallthrough: AbstractSet[DispatchKey],
) -> Iterator[Candidate]:
    """The candidates for a slot in PyTorch 2.13, best first."""
    undefined = key == DispatchKey.Undefined
    if key in direct:
        yield Candidate(key, Provenance.KERNEL)
    for alias in (DispatchKey.CompositeExplicitAutogradNonFunctional, DispatchKey.CompositeExplicitAutograd):
        if alias in direct and (undefined or _in_alias(key, alias)):
            yield Candidate(alias, Provenance.DEFAULT_BACKEND)
    nested = DispatchKey.CompositeImplicitAutogradNestedTensor
    if nested in direct and not undefined and _in_alias(key, nested):
        yield Candidate(nested, Provenance.NESTED)
    math = DispatchKey.CompositeImplicitAutograd
    if math in direct and (undefined or _in_alias(key, math)):
        backends = _backend_kernels(key, direct)
        if key == DispatchKey.AutogradOther and backends:
            yield Candidate(key, Provenance.AMBIGUOUS)
        elif backends:
            yield Candidate(math, Provenance.MATH, f"{backends[0]} has a kernel of its own")
        elif DispatchKey.CompositeExplicitAutograd in direct and not undefined:
            yield Candidate(math, Provenance.MATH, "CompositeExplicitAutograd has a kernel")
        else:
            yield Candidate(math, Provenance.MATH)
    if DispatchKey.Autograd in direct and not undefined and _in_alias(key, DispatchKey.Autograd):
        yield Candidate(DispatchKey.Autograd, Provenance.AUTOGRAD)
    batched = DispatchKey.FuncTorchBatchedDecomposition
    if batched in direct and not undefined and _in_alias(key, batched):
        yield Candidate(batched, Provenance.BATCHED)
    if key in fallbacks:
        yield Candidate(key, Provenance.FALLBACK)


def plain_pr35061(
    key: DispatchKey,
    direct: AbstractSet[Source],
    fallbacks: AbstractSet[DispatchKey],
    fallthrough: AbstractSet[DispatchKey],
) -> Iterator[Candidate]:
    """The candidates for a slot in the engine of PR #35061, best first."""
    if key in direct:
        yield Candidate(key, Provenance.KERNEL)
    if key in fallbacks:
        yield Candidate(key, Provenance.FALLBACK, "it falls through" if key in fallthrough else "")
    if None in direct:
        yield Candidate(None, Provenance.CATCH_ALL)


Shape: TypeAlias = dict[tuple[int, Provenance], int]
"""What a table looks like whatever its kernels are: (bit of the source, reason) -> slots."""


@lru_cache(maxsize=1 << 16)
def _winner(
    plain: Plain, key: DispatchKey, present: int, fallback: int, fallthrough: int
) -> tuple[int, Provenance] | None:
    direct = {k for bit, k in KEY_OF_BIT.items() if present & bit}
    with_fallback = {key} if fallback else set()
    for candidate in plain(key, direct, with_fallback, {key} if fallthrough else set()):
        if not candidate.held_back:
            source = CATCH_ALL_BIT if candidate.source is None else KEY_BIT[candidate.source]
            return source, candidate.reason
    return None


_WITHOUT_SLOT = sum(KEY_OF_BIT) & ~ALL_SLOTS  # functionality keys, aliases, and the catch-all bucket

RELEVANT: tuple[int, ...] = tuple(
    KEY_BIT[key] | BACKENDS_OF_AUTOGRAD.get(key, 0) | _WITHOUT_SLOT for key in RUNTIME_KEYS
)
"""For each slot, the keys whose kernels can matter to it: its own, its backends' and those without a slot."""


@lru_cache(maxsize=1 << 15)
def plain_shape(plain: Plain, present: int, fallback_slots: int, fallthrough_slots: int) -> Shape:
    """The whole table, slot by slot, from which keys have kernels and which slots have fallbacks.

    Args:
        plain: the precedence.
        present: the bits of the keys that have kernels.
        fallback_slots: the slots that have a fallback.
        fallthrough_slots: those of them whose fallback falls through.
    """
    shape: Shape = {}
    for slot, key in enumerate(RUNTIME_KEYS):
        bit = 1 << slot
        won = _winner(plain, key, present & RELEVANT[slot], fallback_slots & bit, fallthrough_slots & bit)
        if won is not None:
            shape[won] = shape.get(won, 0) | bit
    return shape
