"""Every golden scenario has the same findings with every reduction and with none, under every semantics.

Without `--whole` each is tried under one of them, in turn.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from dispatchlab.errors import DispatchLabError
from dispatchlab.prover import explore as exploring
from dispatchlab.prover import neighbourhoods
from dispatchlab.prover.partition import explore_forkable
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario
from tests import effort
from tests.random_scenarios import findings

SCENARIOS = Path(__file__).parent.parent.parent / "scenarios"
PATHS = sorted(SCENARIOS.rglob("*.yaml"))
SEMANTICS = (None, "strict", "torch-2.4", "torch-2.13", "pr35061")


def loaded(path: Path) -> Scenario:
    return load_scenario(str(path))


def found(scenario: Scenario, semantics: str | None, walk: str) -> Exploration | str:
    """What a run of `permute` finds, of single registrations; or why it does not run."""
    options = RunOptions(semantics=semantics, walk="graph" if walk == "graph" else "auto")
    try:
        report = run_scenario(replace(scenario, modules=()), options).report
        return replace(report.exploration, notes=(*report.exploration.notes, *report.notes))
    except DispatchLabError as error:
        return str(error)


def everywhere() -> mock._patch[object]:
    """With neighbourhoods also where walking everything is less work."""
    return mock.patch.object(exploring, "explore_forkable", partial(explore_forkable, least=0))


@pytest.mark.parametrize("semantics", SEMANTICS, ids=str)
def test_golden_scenarios_have_the_same_findings_with_every_reduction_and_with_none(semantics: str | None) -> None:
    compared = reduced = 0
    paths = PATHS if effort.percent == 100 else PATHS[SEMANTICS.index(semantics) :: len(SEMANTICS)]
    for path in paths:
        scenario = loaded(path)
        plain, auto = found(scenario, semantics, "graph"), found(scenario, semantics, "auto")
        with everywhere(), mock.patch.object(neighbourhoods, "NEAR_EDGES", 0):
            small = found(scenario, semantics, "auto")
        if isinstance(plain, str):
            assert plain == auto == small, path
            continue
        settled = plain.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.ORDER_DEPENDENT)
        unknown = bool(scenario.python) or any(
            note.startswith("the rules of torch.library are not known") for note in plain.notes
        )
        assert settled or unknown, path
        for each in (auto, small):
            assert not isinstance(each, str), path
            assert findings(each) == findings(plain), path
            reduced += bool(each.reductions)
        compared += 1
    assert compared > 150 * len(paths) // len(PATHS)
    assert reduced > compared
