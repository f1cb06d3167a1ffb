"""Recorded histories of every PyTorch: a share of each is replayed, and the model shows the same after every step."""

from __future__ import annotations

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import semantics_named
from dispatchlab.model.profile import bundled_profile, bundled_profiles
from tests.histories.file import file_of, unpacked
from tests.histories.generate import OPERATORS
from tests.histories.history import first_difference, take, with_keys_as_text

QUICK = 40
"""One history of so many is replayed here; `--whole` replays all."""

VERSIONS = bundled_profiles()
every_version = pytest.mark.parametrize("name", VERSIONS)


@every_version
def test_the_model_of_a_pytorch_equals_its_recorded_histories(name: str) -> None:
    recorded = unpacked(file_of(name).read_bytes(), every=QUICK)
    lab = LabEngine(with_keys_as_text(semantics_named(name)))
    steps = 0
    for history, seen in recorded.histories:
        assert first_difference(history, seen, take(lab, history, OPERATORS)) == ""
        steps += len(seen)
    assert len(recorded.histories) * QUICK >= 300
    assert steps >= 5 * len(recorded.histories)
    assert recorded.torch.partition("+")[0] == bundled_profile(name).torch.partition("+")[0]
    assert recorded.slots == "memory"


def test_a_history_that_differs_is_found() -> None:
    recorded = unpacked(file_of(VERSIONS[-1]).read_bytes(), every=QUICK)
    other = LabEngine("strict")
    found = [first_difference(history, seen, take(other, history, OPERATORS)) for history, seen in recorded.histories]
    assert all(found)
