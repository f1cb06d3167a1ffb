"""Precedence: the kernel that each slot gets, computed level by level on whole sets of slots.

A level of the precedence is one bit operation: the slots that it covers, without slots that are filled. What each
slot gets is also computed key by key, straight from the published order, in `reference_precedence`; the invariants
compare the two. Source: aten/src/ATen/core/dispatch/OperatorEntry.cpp (`computeDispatchTableEntryWithDebug`); for
`pr35061` the look-up of PR #35061.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import AMBIGUOUS, RegisteredKernel, TableEntry
from dispatchlab.engine.reference_precedence import PLAIN_PR35061, Plain, plain_by_levels
from dispatchlab.model.dump_format import PROVENANCE_OF_ALIAS, Provenance
from dispatchlab.model.keys import RUNTIME_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.profile import Names, Profile
from dispatchlab.model.slot_set import ALL_SLOTS, CATCH_ALL_BIT, KEY_BIT, UNDEFINED_SLOT, slots_of, slots_of_key

COMPOSITE = DispatchKey.CompositeImplicitAutograd
"""The alias key whose kernel makes way for others."""


class PrecedenceRules(NamedTuple):
    """Fills slots: with a kernel at the key of the slot, then kernels of alias keys, level by level, then the fallback.

    Args:
        slots: the runtime keys, in the order of the slots.
        levels: the alias keys, best first.
        covers: an alias key -> the slots that its kernel can fill.
        takes_composite: for a key, the slots where its kernel removes the kernel of `COMPOSITE`.
        ambiguous: for the bit of a slot, the keys whose kernels make it ambiguous together with one of `COMPOSITE`.
    """

    slots: tuple[DispatchKey, ...]
    levels: tuple[DispatchKey, ...]
    covers: Mapping[DispatchKey, int]
    takes_composite: Mapping[DispatchKey, int]
    ambiguous: Mapping[int, int]

    def reach(self, key: DispatchKey) -> int:
        """Return the slots whose kernel can change with the newest kernel of a key, as bits."""
        own = KEY_BIT[key]
        bits = own if key in SLOT_OF_KEY else self.covers.get(key, 0)
        bits |= self.takes_composite.get(key, 0)
        for slot, keys in self.ambiguous.items():
            if keys & own:
                bits |= slot
        return bits


def rules_of(profile: Profile) -> PrecedenceRules:
    """Return the rules of a profile, without the keys that this package does not know."""
    covers = _bits_of(profile.aliases)
    # An alias key that takes the composite kernel away does so where it fills the slot itself, too, which no
    # measurement can show.
    takes = {
        key: slots | (covers.get(key, 0) & ~UNDEFINED_SLOT) for key, slots in _bits_of(profile.takes_composite).items()
    }
    return PrecedenceRules(
        slots=tuple(key for key in known_keys(profile.runtime) if key in SLOT_OF_KEY),
        levels=tuple(key for key in known_keys(profile.precedence) if key in PROVENANCE_OF_ALIAS),
        covers=covers,
        takes_composite=takes,
        ambiguous={KEY_BIT[slot]: keys for slot, keys in _bits_of(profile.ambiguous).items()},
    )


def known_keys(names: Iterable[str]) -> tuple[DispatchKey, ...]:
    """Return the keys with these names, without unknown ones."""
    members = DispatchKey.__members__
    return tuple(members[name] for name in names if name in members)


_BIT_OF_NAME: dict[str, int] = {key.name: bit for key, bit in KEY_BIT.items()}


def bits_named(names: Iterable[str]) -> int:
    """Return the bits of the keys with these names, without unknown ones."""
    bits = 0
    for name in names:
        bits |= _BIT_OF_NAME.get(name, 0)
    return bits


def _bits_of(mapping: Mapping[str, Names]) -> dict[DispatchKey, int]:
    members = DispatchKey.__members__
    return {members[name]: bits_named(names) for name, names in mapping.items() if name in members}


Kernels: TypeAlias = Mapping[int, tuple[RegisteredKernel, ...]]
"""The kernels of an operator: the bit of a key -> what is registered there, newest first and never empty."""

Slots: TypeAlias = dict[TableEntry, int]
"""Which slots hold which entry; a slot in no set holds no kernel."""

Fill: TypeAlias = Callable[[Slots, int, int, Kernels, Fallbacks], None]
"""Adds what some slots hold, but for those whose own keys have kernels: (where to, the slots wanted, the keys that have
kernels, the kernels, the fallbacks)."""


def add(slots: Slots, found: Mapping[TableEntry, int]) -> None:
    """Add to `slots` the slots of each entry."""
    for held, bits in found.items():
        slots[held] = slots.get(held, 0) | bits


class Precedence(NamedTuple):
    """A precedence, twice: `fill` on sets of slots, and `plain`, key by key, to check it against.

    Args:
        fill: the content of slots.
        plain: the same, key by key.
        slots: all slots that there are, as bits.
    """

    fill: Fill
    plain: Plain
    slots: int


# Note [Kernels that take the composite kernel away]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A kernel of a backend takes the composite one away from the autograd slot of its backend. The slots of the dense
# backends and those of their autograd keys stand in the same order, so all of these pairs are one shift; what is left
# are sets: any kernel of these keys takes it away from those slots. A kernel at the functionality key `Dense` itself
# has no slot, yet upstream's set containment takes it for a kernel of every dense backend.


def precedence_by_levels(profile: Profile, rules: PrecedenceRules) -> Precedence:
    """Return the precedence of PyTorch's dispatchers since 2021; `rules` has the differences between versions."""
    any_alias = 0
    for alias in rules.levels:
        any_alias |= KEY_BIT[alias]
    shifts, sets = _taken(rules)
    ambiguous = tuple(rules.ambiguous.items())
    levels_of = _Levels(rules)

    def fill(slots: Slots, wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> None:
        rest = wanted ^ (present & wanted)
        if rest and (aliases := present & any_alias):
            for bit, covered, reason, is_composite in levels_of[aliases]:
                if is_composite:
                    for slot, backends in ambiguous:
                        if rest & slot and present & backends:
                            slots[AMBIGUOUS] = slots.get(AMBIGUOUS, 0) | slot
                            rest ^= slot
                    covered &= rest
                    if covered:
                        # See Note [Kernels that take the composite kernel away]
                        for backends, shift in shifts:
                            if taking := present & (backends & (covered >> shift)):
                                covered ^= taking << shift
                        for backends, taken in sets:
                            if covered & taken and present & backends:
                                covered &= ~taken
                if taken := rest & covered:
                    held = kernels[bit][0].because(reason)
                    slots[held] = slots.get(held, 0) | taken
                    rest ^= taken
                    if not rest:
                        break
        if rest & fallbacks.slots:
            add(slots, fallbacks.entries_in(rest))

    return Precedence(fill, plain_by_levels(profile), slots_of(rules.slots))


class _Levels(dict[int, tuple[tuple[int, int, Provenance, bool], ...]]):
    """The alias keys that have kernels, as bits -> for each, best first: its bit, the slots left for it, the reason,
    and whether it is `COMPOSITE`."""

    def __init__(self, rules: PrecedenceRules) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, present: int) -> tuple[tuple[int, int, Provenance, bool], ...]:
        rules, levels, before = self._rules, [], 0
        for alias in rules.levels:
            if not present & KEY_BIT[alias]:
                continue
            covered = rules.covers[alias] & ~before
            if alias is COMPOSITE:
                for key, slots in rules.takes_composite.items():
                    if key.is_alias and present & KEY_BIT[key]:
                        covered &= ~slots
            else:
                before |= covered
            levels.append((KEY_BIT[alias], covered, PROVENANCE_OF_ALIAS[alias], alias is COMPOSITE))
        self[present] = tuple(levels)
        return self[present]


def _taken(rules: PrecedenceRules) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return the slots with their distance to the slot that they take, and the keys with the slots that they take."""
    by_target: dict[int, int] = {}
    for key, target in rules.takes_composite.items():
        if not key.is_alias:
            by_target[target] = by_target.get(target, 0) | KEY_BIT[key]
    shifts: dict[int, int] = {}
    sets: list[tuple[int, int]] = []
    for target, keys in by_target.items():
        shift = target.bit_length() - keys.bit_length()
        if target.bit_count() == keys.bit_count() == 1 and keys & ALL_SLOTS and shift > 0:
            shifts[shift] = shifts.get(shift, 0) | keys
        else:
            sets.append((keys, target))
    return tuple((keys, shift) for shift, keys in shifts.items()), tuple(sets)


# Note [Autograd in 2020]
# ~~~~~~~~~~~~~~~~~~~~~~~
# When PR #35061 was written, autograd had one key for all backends, VariableTensorId, where `dispatch_autograd`
# registered. The keys here are those of today, so its kernel is one at `Autograd` and serves every autograd key that
# has no kernel of its own, before the fallback of that key and the catch-all. These semantics have no other alias key.

AUTOGRAD_BIT, AUTOGRAD_SLOTS = KEY_BIT[DispatchKey.Autograd], slots_of_key(DispatchKey.Autograd)


def _fill_pr35061(slots: Slots, wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> None:
    found: Slots = {}
    rest = wanted ^ (present & wanted)
    if present & AUTOGRAD_BIT and (taken := rest & AUTOGRAD_SLOTS):
        found[kernels[AUTOGRAD_BIT][0].because(Provenance.AUTOGRAD)] = taken
        rest ^= taken
    called = fallbacks.slots & ~fallbacks.fallthrough_slots
    if rest & called:
        found.update(fallbacks.entries_in(rest & called))
        rest &= ~called
    if present & CATCH_ALL_BIT and rest:
        found[kernels[CATCH_ALL_BIT][0].because(Provenance.CATCH_ALL)] = rest
    add(slots, found)


PR35061 = Precedence(_fill_pr35061, PLAIN_PR35061, slots_of(RUNTIME_KEYS))


def computed_table(precedence: Precedence, present: int, kernels: Kernels, fallbacks: Fallbacks) -> Slots:
    """Return the expected content of every slot, only from the registrations."""
    slots: Slots = {}
    precedence.fill(slots, precedence.slots, present, kernels, fallbacks)
    return with_own(slots, present & precedence.slots, kernels)


def with_own(slots: Slots, own: int, kernels: Kernels) -> Slots:
    """Return `slots` in which the slots `own` have the newest kernels of their keys."""
    found = slots.copy()
    while own:
        bit = own & -own
        own ^= bit
        found[kernels[bit][0].because(Provenance.KERNEL)] = bit
    return found
