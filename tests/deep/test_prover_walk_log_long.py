"""The long tests of tests/test_prover_walk_log.py, which the quick tier leaves out."""

from __future__ import annotations

import pytest

from dispatchlab.model.registration import Registration
from dispatchlab.prover import partition
from tests import test_prover_walk_log
from tests.engine_shorthand import TYPED, K, define, impl
from tests.test_prover_walk_log import SCENARIOS, Kept, explored

pytestmark = test_prover_walk_log.pytestmark

always = test_prover_walk_log.always


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_walk_goes_on_from_any_record(name: str) -> None:
    scenario = SCENARIOS[name]
    wanted, kept = explored(scenario, None), Kept()
    assert explored(scenario, kept) == wanted
    length = len(kept.values)
    assert length > 1
    for cut in {1, 2, length // 3, length // 2, length - 1, length}:
        assert explored(scenario, Kept(kept.values[:cut])) == wanted, cut


@pytest.mark.usefixtures("always")
def test_a_walk_that_was_left_for_neighbourhoods_is_left_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "MOST_EDGES", 150)
    registrations: list[Registration] = [define(), *(impl(key, f"{key}", TYPED) for key in (K.CPU, K.CUDA, K.XLA))]
    scenario, kept = ("torch-2.13", registrations), Kept()
    wanted = explored(scenario, None)
    assert wanted.neighbourhoods > 0
    assert explored(scenario, kept) == wanted
    length = len(kept.values)
    assert {name for name, _ in kept.values} > {"walk 0", "walk 1"}
    for cut in {1, 20, length // 3, length // 2, length - 1, length}:
        assert explored(scenario, Kept(kept.values[:cut])) == wanted, cut
