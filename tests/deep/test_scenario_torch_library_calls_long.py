"""The long tests of tests/test_scenario_torch_library_calls.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.prover.explore import explore
from dispatchlab.prover.partition_by_operator import TOGETHER, explore_apart
from dispatchlab.prover.walk_options import WalkOptions
from dispatchlab.scenario import parse_scenario
from tests.test_scenario_torch_library_calls import Sealed, scenario_of


def test_few_registrations_are_explored_together() -> None:
    scenario = parse_scenario(scenario_of(TOGETHER // 2))
    together = explore(Sealed(), scenario.registrations, scenario.operators, WalkOptions(passes=1))
    found = explore_apart(Sealed(), scenario.registrations, scenario.operators, WalkOptions(passes=1))
    assert (found.sets, found.components, found.edges) == (2**TOGETHER, 1, together.edges)
