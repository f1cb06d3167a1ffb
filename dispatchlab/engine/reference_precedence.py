"""Reference computation of a dispatch table, key by key: the candidates in order, and why each candidate loses.

It is slow and simple on purpose. The invariants compare the table that calls use with it; views use it to show what
a row's kernel beat. Source: the note "Computed Dispatch Table" in aten/src/ATen/core/dispatch/OperatorEntry.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from dispatchlab.model.dump_format import PROVENANCE_OF_ALIAS, Provenance
from dispatchlab.model.keys import RUNTIME_KEYS, SLOT_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.profile import COMPOSITE, Profile
from dispatchlab.model.slot_set import ALL_SLOTS, CATCH_ALL_BIT, KEY_BIT, KEY_OF_BIT, keys_of, set_bits, slots_of_key

Source: TypeAlias = DispatchKey | None
"""Where a candidate is registered; None is the catch-all bucket."""


class Candidate(NamedTuple):
    """A kernel that could fill a slot.

    Args:
        source: the key that it is registered at; for a fallback the slot's own key.
        reason: its reason in the table if it wins.
        held_back: why it does not get the slot although no earlier candidate did; empty if it would get the slot.
    """

    source: Source
    reason: Provenance
    held_back: str = ""


Candidates: TypeAlias = Callable[
    [DispatchKey, AbstractSet[Source], AbstractSet[DispatchKey], AbstractSet[DispatchKey]], Iterator[Candidate]
]
"""(slot's key, keys with kernels, keys with fallbacks, keys with fallthrough fallbacks) -> candidates, best first."""


@dataclass(eq=False)
class Plain:
    """A precedence, key by key.

    Args:
        candidates: the candidates for a slot, best first.
        slots: the runtime keys that have a slot.
        readers: returns the pairs of a key and another slot, by name, for which the key's kernel can matter.
        named_groups: returns, for a slot's key, the groups of sources that decide the winner, each by whether one of
            its members has a kernel, with a name: slots with the same names have the same winner, in groups; None when
            that is not known.
    """

    candidates: Candidates
    slots: tuple[DispatchKey, ...]
    readers: Callable[[], Iterator[tuple[str, str]]]
    named_groups: Callable[[DispatchKey], Iterator[tuple[str, AbstractSet[Source]]]] | None = None

    @cached_property
    def relevant(self) -> tuple[int, ...]:
        """The keys whose kernels can matter for each bit of a set of slots: its own key, and keys without a slot."""
        found = {key.name: _WITHOUT_SLOT | KEY_BIT[key] for key in SLOT_KEYS}
        for key, slot in self.readers():
            if slot in found and key in DispatchKey.__members__:
                found[slot] |= KEY_BIT[DispatchKey[key]]
        return tuple(found.values())

    @cached_property
    def groups(self) -> Mapping[int, tuple[int, ...]] | None:
        """For the bit of each slot, groups of keys as bits: the winner depends on the groups with a kernel, and on the
        fallback of the slot. None when the precedence does not say."""
        if self.named_groups is None:
            return None
        return {
            KEY_BIT[key]: tuple(
                sum(CATCH_ALL_BIT if source is None else KEY_BIT[source] for source in group)
                for _, group in self.named_groups(key)
            )
            for key in self.slots
        }

    @cached_property
    def group_names(self) -> Mapping[int, tuple[str, ...]]:
        """For the bit of each slot, the names of its groups, in the same order."""
        if self.named_groups is None:
            return {}
        return {KEY_BIT[key]: tuple(name for name, _ in self.named_groups(key)) for key in self.slots}

    @cached_property
    def runs(self) -> tuple[SlotRun, ...]:
        """The slots in short runs: tables with one difference share all other runs."""
        runs = []
        for start in range(0, len(self.slots), _RUN):
            keys = self.slots[start : start + _RUN]
            slots = relevant = 0
            for key in keys:
                slots |= 1 << SLOT_OF_KEY[key]
                relevant |= self.relevant[SLOT_OF_KEY[key]]
            runs.append(SlotRun(slots, relevant, keys))
        return tuple(runs)


class SlotRun(NamedTuple):
    """Some slots of a table, and the keys whose kernels can matter for them, as bits."""

    slots: int
    relevant: int
    keys: tuple[DispatchKey, ...]


_RUN: Final = 20

_WITHOUT_SLOT = sum(KEY_OF_BIT) & ~ALL_SLOTS  # functionality keys, aliases, and the catch-all bucket


def plain_by_levels(profile: Profile) -> Plain:
    """Return the precedence of PyTorch's dispatchers since 2021; the profile has the differences between versions."""
    members = DispatchKey.__members__
    levels = [(members[name], frozenset(profile.aliases[name])) for name in profile.precedence if name in members]
    composite = COMPOSITE

    @cache
    def takers(slot: str) -> frozenset[str]:
        return frozenset(
            key
            for key, taken in profile.takes_composite.items()
            # the slots that both fill are no measurement's, see `rules_of`
            if slot in taken or (slot != "Undefined" and slot in profile.aliases.get(key, ()))
        )

    def candidates(
        key: DispatchKey,
        direct: AbstractSet[Source],
        fallbacks: AbstractSet[DispatchKey],
        fallthrough: AbstractSet[DispatchKey],
    ) -> Iterator[Candidate]:
        if key in direct:
            yield Candidate(key, Provenance.KERNEL)
        for alias, covered in levels:
            if alias not in direct or key.name not in covered:
                continue
            if alias.name != composite:
                yield Candidate(alias, PROVENANCE_OF_ALIAS[alias])
                continue
            present = {one.name for one in direct if one is not None}
            if not present.isdisjoint(profile.ambiguous.get(key.name, ())):
                yield Candidate(key, Provenance.AMBIGUOUS)
                continue
            taken_by = sorted(members[name] for name in takers(key.name) & present)
            why = f"{taken_by[0]} has a kernel{'' if taken_by[0].is_alias else ' of its own'}" if taken_by else ""
            yield Candidate(alias, Provenance.MATH, why)
        if key in fallbacks:
            yield Candidate(key, Provenance.FALLBACK)

    def readers() -> Iterator[tuple[str, str]]:
        for key, slots in profile.takes_composite.items():
            yield from ((key, slot) for slot in slots)
        for slot, keys in profile.ambiguous.items():
            yield from ((key, slot) for key in keys)

    def groups(key: DispatchKey) -> Iterator[tuple[str, AbstractSet[Source]]]:
        yield "own", {key}
        for alias, covered in levels:
            if key.name in covered:
                yield alias.name, {alias}
                if alias.name == composite:
                    yield "takes away", {members[name] for name in takers(key.name) if name in members}
                    ambiguous = profile.ambiguous.get(key.name, ())
                    yield "makes ambiguous", {members[name] for name in ambiguous if name in members}

    slots = tuple(members[name] for name in profile.runtime if name in members)
    return Plain(candidates, slots, readers, groups)


def _candidates_pr35061(
    key: DispatchKey,
    direct: AbstractSet[Source],
    fallbacks: AbstractSet[DispatchKey],
    fallthrough: AbstractSet[DispatchKey],
) -> Iterator[Candidate]:
    """Return the candidates for a slot in the engine of PR #35061, best first."""
    if key in direct:
        yield Candidate(key, Provenance.KERNEL)
    if DispatchKey.Autograd in direct and key in _AUTOGRAD:  # See Note [Autograd in 2020]
        yield Candidate(DispatchKey.Autograd, Provenance.AUTOGRAD)
    if key in fallbacks:
        yield Candidate(key, Provenance.FALLBACK, "it falls through" if key in fallthrough else "")
    if None in direct:
        yield Candidate(None, Provenance.CATCH_ALL)


def _groups_pr35061(key: DispatchKey) -> Iterator[tuple[str, AbstractSet[Source]]]:
    yield "own", {key}
    if key in _AUTOGRAD:
        yield "autograd", {DispatchKey.Autograd}
    yield "catch-all", {None}


_AUTOGRAD = frozenset(keys_of(slots_of_key(DispatchKey.Autograd)))

PLAIN_PR35061 = Plain(_candidates_pr35061, RUNTIME_KEYS, lambda: iter(()), _groups_pr35061)
"""The precedence of PR #35061, with the runtime keys of today."""


Won: TypeAlias = tuple[int, Provenance]
"""(bit of the source, reason)"""

Shape: TypeAlias = dict[Won, int]
"""What a table looks like whatever its kernels are: (bit of the source, reason) -> slots."""


@lru_cache(maxsize=1 << 16)
def winner(plain: Plain, key: DispatchKey, present: int, fallback: int, fallthrough: int) -> Won | None:
    """Return the winner of a slot: (bit of the source, reason).

    Args:
        plain: the precedence.
        key: the slot's key.
        present: the bits of the keys that have kernels.
        fallback: not 0 when the slot has a fallback.
        fallthrough: not 0 when that falls through.
    """
    direct = {KEY_OF_BIT[1 << at] for at in set_bits(present)}
    with_fallback = {key} if fallback else set()
    for candidate in plain.candidates(key, direct, with_fallback, {key} if fallthrough else set()):
        if not candidate.held_back:
            source = CATCH_ALL_BIT if candidate.source is None else KEY_BIT[candidate.source]
            return source, candidate.reason
    return None


class PlainTable(NamedTuple):
    """The part of a table that does not depend on its kernels.

    Args:
        own: the slots with the newest kernel of their own key.
        kernels: for the bit of another key, the slots with its kernel; the key is the reason, see `REASON_OF`.
        fallbacks: the slots with their own fallback.
        ambiguous: the slots that are ambiguous.
    """

    own: int
    kernels: dict[int, int]
    fallbacks: int
    ambiguous: int


REASON_OF: Mapping[int, Provenance] = MappingProxyType(
    {CATCH_ALL_BIT: Provenance.CATCH_ALL} | {KEY_BIT[key]: reason for key, reason in PROVENANCE_OF_ALIAS.items()}
)
"""The bit of a key -> why its kernel is in a slot that is not the key's own."""


@lru_cache(maxsize=1 << 15)
def _table_of_slots(plain: Plain, at: int, present: int, fallback_slots: int, fallthrough_slots: int) -> PlainTable:
    """Return the table by the slots of each of `plain.runs`."""
    kernels: dict[int, int] = {}
    own = filled = ambiguous = 0
    for key in plain.runs[at].keys:
        slot = SLOT_OF_KEY[key]
        bit = 1 << slot
        won = winner(plain, key, present & plain.relevant[slot], fallback_slots & bit, fallthrough_slots & bit)
        match won:
            case None:
                pass
            case (_, Provenance.AMBIGUOUS):
                ambiguous |= bit
            case (source, Provenance.FALLBACK):
                assert source == bit, "a fallback is a candidate for its own slot"
                filled |= bit
            case (source, Provenance.KERNEL) if source == bit:
                own |= bit
            case (source, reason):
                assert reason is REASON_OF[source], "a key fills the slots of others for one reason"
                kernels[source] = kernels.get(source, 0) | bit
    return PlainTable(own, kernels, filled, ambiguous)


@lru_cache(maxsize=1 << 15)
def plain_table(plain: Plain, present: int, fallback_slots: int, fallthrough_slots: int) -> PlainTable:
    """Return the whole table, slot by slot, from the keys with kernels and the slots with fallbacks.

    Args:
        plain: the precedence.
        present: the bits of the keys that have kernels.
        fallback_slots: the slots that have a fallback.
        fallthrough_slots: the slots whose fallback is a fallthrough.
    """
    kernels: dict[int, int] = {}
    own = filled = ambiguous = 0
    for at, (slots, relevant, _) in enumerate(plain.runs):
        part = _table_of_slots(plain, at, present & relevant, fallback_slots & slots, fallthrough_slots & slots)
        mine, shape, more, unclear = part
        own |= mine
        filled |= more
        ambiguous |= unclear
        for source, bits in shape.items():
            kernels[source] = kernels.get(source, 0) | bits
    return PlainTable(own, kernels, filled, ambiguous)


def plain_shape(plain: Plain, present: int, fallback_slots: int, fallthrough_slots: int) -> Shape:
    """Return `plain_table` by the winner of each slot; the arguments are the same."""
    own, kernels, filled, ambiguous = plain_table(plain, present, fallback_slots, fallthrough_slots)
    shape = {(source, REASON_OF[source]): slots for source, slots in kernels.items()}
    for reason, slots in (
        (Provenance.KERNEL, own),
        (Provenance.FALLBACK, filled),
        (Provenance.AMBIGUOUS, ambiguous),
    ):
        shape.update({(1 << slot, reason): 1 << slot for slot in set_bits(slots)})
    return shape
