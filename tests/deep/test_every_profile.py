"""Every profile, key by key: the two computations of a table agree, and strict with its keys leaves nothing stale."""

from __future__ import annotations

import itertools

import pytest

from dispatchlab.engine.fallbacks import NO_FALLBACKS
from dispatchlab.engine.precedence import computed_table
from dispatchlab.engine.semantics import strict_of
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.slot_set import KEY_BIT, set_bits
from tests.profiles import PROFILES, by_slot, check_both_ways, entries, profile_named, profiled

each_profile = pytest.mark.parametrize("name", PROFILES)


@each_profile
def test_the_two_computations_agree_for_every_key_beside_every_pair_of_aliases(name: str) -> None:
    made = profiled(name)
    aliases = [key for key in sorted(made.existing) if key.is_alias]
    keys = sorted(made.existing - {DispatchKey.Undefined})
    pairs = [*itertools.combinations(aliases, 2), *((alias,) for alias in aliases)]
    for key, chosen in itertools.product(keys, pairs):
        check_both_ways(made.precedence, sum({KEY_BIT[key], *(KEY_BIT[alias] for alias in chosen)}), NO_FALLBACKS)
    assert len(keys) * len(pairs) > 2500


@each_profile
def test_strict_with_the_keys_of_a_profile_leaves_no_slot_stale(name: str) -> None:
    strict = strict_of(profile_named(name))
    aliases = [key for key in sorted(strict.existing) if key.is_alias]
    changes = 0
    for key in sorted(strict.existing - {DispatchKey.Undefined}):
        for others in (*((alias,) for alias in aliases), *itertools.combinations(aliases, 2)):
            without = sum({KEY_BIT[other] for other in others if other != key})
            before, after = (
                by_slot(computed_table(strict.precedence, bits, entries(bits), NO_FALLBACKS))
                for bits in (without, without | KEY_BIT[key])
            )
            changed = {slot for slot in {*before, *after} if before.get(slot) != after.get(slot)}
            assert changed <= {*set_bits(strict.refresh[key])}
            changes += len(changed)
    assert changes > 2500
