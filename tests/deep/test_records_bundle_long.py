"""The long tests of tests/test_records_bundle.py, which the quick tier leaves out."""

from __future__ import annotations

import random

from dispatchlab.records.stored import bundle_bytes
from tests.bundle_cases import layers_of, outcome, three_bytes
from tests.registry_cases import made_up


def test_bundles_made_up_with_right_checksums_are_refused_or_are_bundles_themselves() -> None:
    rng, data = random.Random(2), three_bytes()
    outcomes = [outcome(made_up(data, rng)) for _ in range(400)]
    read = [found for found in outcomes if not isinstance(found, str)]
    assert 40 < len(read) < 360
    for registries in read:
        assert outcome(bundle_bytes(registries, layers_of(registries))) == registries
    assert len({found for found in outcomes if isinstance(found, str)}) > 40
