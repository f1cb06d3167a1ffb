"""Rules of a precedence: which kernel comes first in a slot and which takes another away, as a profile says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dispatchlab.model.dump_format import PROVENANCE_OF_ALIAS
from dispatchlab.model.keys import SLOT_OF_KEY, DispatchKey
from dispatchlab.model.profile import Names, Profile
from dispatchlab.model.slot_set import KEY_BIT, UNDEFINED_SLOT

COMPOSITE = DispatchKey.CompositeImplicitAutograd
"""The alias key whose kernel makes way for others."""


class PrecedenceRules(NamedTuple):
    """Which kernel a slot gets: one at its own key, then those of alias keys, level by level, then the fallback.

    Args:
        slots: the runtime keys, in the order of the slots.
        levels: the alias keys, best first.
        covers: an alias key -> the slots that its kernel can fill.
        takes_composite: a key -> the slots where its kernel takes that of `COMPOSITE` away.
        ambiguous: a slot, as its bit -> the keys whose kernels make it ambiguous together with one of `COMPOSITE`.
    """

    slots: tuple[DispatchKey, ...]
    levels: tuple[DispatchKey, ...]
    covers: Mapping[DispatchKey, int]
    takes_composite: Mapping[DispatchKey, int]
    ambiguous: Mapping[int, int]

    def reach(self, key: DispatchKey) -> int:
        """The slots whose kernel can change when the newest kernel of a key does, as bits."""
        own = KEY_BIT[key]
        bits = own if key in SLOT_OF_KEY else self.covers.get(key, 0)
        bits |= self.takes_composite.get(key, 0)
        for slot, keys in self.ambiguous.items():
            if keys & own:
                bits |= slot
        return bits


def rules_of(profile: Profile) -> PrecedenceRules:
    """The rules of a profile, without the keys that this package does not know."""
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
    """The keys with these names, without unknown ones."""
    members = DispatchKey.__members__
    return tuple(members[name] for name in names if name in members)


_BIT_OF_NAME: dict[str, int] = {key.name: bit for key, bit in KEY_BIT.items()}


def bits_named(names: Iterable[str]) -> int:
    """The bits of the keys with these names, without unknown ones."""
    bits = 0
    for name in names:
        bits |= _BIT_OF_NAME.get(name, 0)
    return bits


def _bits_of(mapping: Mapping[str, Names]) -> dict[DispatchKey, int]:
    members = DispatchKey.__members__
    return {members[name]: bits_named(names) for name, names in mapping.items() if name in members}
