"""The graph walk against the definition of "order does not matter", and proofs against sandboxes: planted engines."""

from __future__ import annotations

from unittest import mock

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.explore import neighbourhoods
from dispatchlab.explore.partition import explore_forkable
from dispatchlab.explore.result import Verdict
from tests.brute_force import merging_is_sound
from tests.declaring_engines import OPERATORS, random_engine, shortest_failure
from tests.planted_spaces import verdicts_of_wrong_spaces
from tests.random_scenarios import findings, random_scenario


def test_merging_is_sound_on_a_thousand_engines_with_planted_hidden_state() -> None:
    assert merging_is_sound(range(1_000)) == {Verdict.ORDER_INDEPENDENT: 697, Verdict.ORDER_DEPENDENT: 303}


def test_none_of_a_thousand_engines_with_a_wrong_space_is_proved() -> None:
    verdicts = verdicts_of_wrong_spaces(1_000)
    assert verdicts.total() == 1_000
    assert Verdict.ORDER_INDEPENDENT not in verdicts


@pytest.mark.parametrize("near", [0, neighbourhoods.NEAR_EDGES])
@pytest.mark.parametrize("secrets", [False, True])
def test_neighbourhoods_judge_a_thousand_engines_as_every_sequence_does(*, secrets: bool, near: int) -> None:
    with mock.patch.object(neighbourhoods, "NEAR_EDGES", near):
        for seed in range(1_000):
            engine, order = random_engine(seed, secrets=secrets)
            found = explore_forkable(engine, engine.registrations, OPERATORS, order=order, least=0)
            truth = shortest_failure(engine.whole, order, longest=8)
            assert (found.verdict is Verdict.ORDER_INDEPENDENT) is (truth is None), f"seed {seed}"
            example = found.counterexample
            if truth is not None and not (secrets and near == 0):
                assert example is not None
                longest = max(len(example.expected_sequence), len(example.actual_sequence))
                assert longest == truth.length, f"seed {seed}"


def test_neighbourhoods_find_in_a_thousand_scenarios_what_the_walk_of_everything_finds() -> None:
    with mock.patch.object(neighbourhoods, "NEAR_EDGES", 0):
        for seed in range(1_000):
            semantics, registrations, operators, order = random_scenario(seed)
            engine = LabEngine(semantics)
            plain = explore_forkable(engine, registrations, operators, order=order, reduced=False)
            small = explore_forkable(engine, registrations, operators, order=order, least=0)
            assert findings(small) == findings(plain), f"seed {seed}"
