"""An exploration stays within its bound of memory, which is a share of the machine by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.processes import default_memory_bound, used_memory
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.scenario.load import parse_scenario
from tests.scenario_texts import FIVE, many


def test_an_exploration_stops_at_its_bound_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter(range(2**30, 2**40, 2**20))
    monkeypatch.setattr("dispatchlab.prover.limits.used_memory", lambda: next(used))
    monkeypatch.setattr("dispatchlab.prover.limits._LOOK_EVERY_S", 0.0)
    scenario = parse_scenario(many(18))
    found = explore(LabEngine(), scenario.registrations, scenario.operators, WalkOptions(max_memory=20 * 2**20))
    assert found.verdict is Verdict.INCOMPLETE
    assert found.notes == ("stopped at the bound of 20 MiB of memory",)
    assert 5 <= found.states <= 20


def test_the_default_bound_is_a_share_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = default_memory_bound()
    assert bound is not None
    assert 2**20 < used_memory() < 2 * bound
    (tmp_path / "memory.max").write_text("1073741824\n")
    monkeypatch.setattr("dispatchlab.processes._CONTROL_GROUPS", tmp_path)
    assert default_memory_bound() == 2**29
    (tmp_path / "memory.max").write_text("max\n")
    assert default_memory_bound() is not None


def test_every_exploration_of_a_command_has_a_bound_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def explored(*arguments: Any, **options: Any) -> Exploration:
        given.append(arguments[3].max_memory)
        return explore(*arguments, **options)

    monkeypatch.setattr("dispatchlab.questions.order.run_scenario.explore", explored)
    run_scenario(parse_scenario(FIVE), RunOptions())
    run_scenario(parse_scenario(FIVE), RunOptions(max_memory=2**30))
    bounds = default_memory_bound(), 2**30
    assert given == [*bounds]
