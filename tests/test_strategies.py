"""The strategies for tests of users: what they draw can be explored, written to files, and run."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from dispatchlab.prover.run_sequence import SequenceError
from dispatchlab.scenario import Scenario
from dispatchlab.strategies import scenarios, sequences
from tests.effort import examples
from tests.replays import replay

pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
DECIDED = (Verdict.ORDER_INDEPENDENT, Verdict.ORDER_DEPENDENT)


@examples(200)
@given(scenarios(min_size=1, max_size=3))
def test_a_generated_scenario_has_a_verdict(scenario: Scenario) -> None:
    assert 1 <= len(scenario.registrations) <= 3
    assert explore(LabEngine("strict"), scenario.registrations, scenario.operators).verdict in DECIDED


@examples(200)
@given(st.data())
def test_a_generated_sequence_registers_and_releases_in_turn(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(max_size=3))
    sequence: StepSequence = data.draw(sequences(len(scenario.registrations), max_size=6))
    assert len(sequence) <= 6
    for index in range(len(scenario.registrations)):
        own = [step for step in sequence if step in (index, ~index)]
        assert own == [(index, ~index)[at % 2] for at in range(len(own))]
    with suppress(SequenceError):  # what was refused cannot be released
        done = replay(LabEngine("strict"), scenario.registrations, scenario.operators, sequence)
        assert len(done) == len(sequence) + 1
