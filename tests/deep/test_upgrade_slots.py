"""What the upgrade report says that slots hold, against dispatchers on which the registrations are replayed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.model.dump_format import Provenance, parse_table
from dispatchlab.model.keys import SLOT_KEYS, SLOT_OF_KEY
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.questions.sources.replay_on_lab import bench
from dispatchlab.questions.upgrade.slot_models import MISSING, SlotDifference, Slots, kernel_bits, models_of
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.file import open_bundled

WAYS = {Provenance.KERNEL: Way.DIRECT, Provenance.FALLBACK: Way.FALLBACK, Provenance.AMBIGUOUS: Way.AMBIGUOUS}


@pytest.mark.parametrize("name", [name for name in SEMANTICS if name.startswith("torch-")])
def test_slots_hold_what_the_engine_puts_there(name: str) -> None:
    """Computed from sets of keys, and by replaying the registrations on a dispatcher."""
    registry, semantics = open_bundled("torch-2.13"), SEMANTICS[name]
    keys = semantics.existing
    known = replace(registry.load(), fallbacks=tuple(one for one in registry.fallbacks if one.key in keys))
    some = [one for one in known if keys.issuperset(kernel.key for kernel in one.kernels)][::23]
    slots = Slots(semantics, known.fallbacks)
    held = bench(known, semantics=semantics, operators=[str(one.name) for one in some])
    assert len(some) > 100
    for one in some:
        table = parse_table(held.dispatcher.dump_table(one.name))
        found = {key: WAYS.get(row.provenance, Way.COMPOSITE) for key, row in table.items()}
        ours = {SLOT_KEYS[slot]: find.way for slot, find in slots.all(kernel_bits(one)).items()}
        assert ours == found, one.name


def test_slot_changes_are_the_differences_of_the_tables() -> None:
    """Of operators with other kernels each, under two models."""
    registry = open_bundled("torch-2.13")
    some = [one for one in registry if one.schema is not None][::7]
    slots = SlotDifference(models_of("2.9.1", "2.15.0"), (registry.fallbacks, registry.fallbacks[2:]))
    common = {*slots.first.plain.slots} & {*slots.second.plain.slots} - {K.Undefined}
    differing = 0
    for old, new in pairwise(some):
        found = {key: (each.before, each.after) for each in slots(old, new) for key in each.keys}
        befores, afters = slots.first.all(kernel_bits(old)), slots.second.all(kernel_bits(new))
        for key in common:
            before, after = befores.get(SLOT_OF_KEY[key], MISSING), afters.get(SLOT_OF_KEY[key], MISSING)
            assert found.get(key, (before, before)) == (before, after)
        differing += len(found)
    assert differing > 5000
