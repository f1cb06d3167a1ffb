"""A deadline interrupts whatever runs, and an exploration stays within its bound of memory."""

from __future__ import annotations

import os
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.processes.deadline import Deadline, DeadlineReached
from dispatchlab.processes.machine import default_memory_bound, used_memory
from dispatchlab.processes.parent import end_with_parent
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.prover.walk_options import WalkOptions
from dispatchlab.questions.order.run_scenario import NotInTimeError, RunOptions, run_scenario
from dispatchlab.scenario.load import parse_scenario
from tests.scenario_texts import FIVE, many

HOUR = 3600.0


def _alarm(*_: object, **__: object) -> None:
    """Let the deadline's alarm arrive now."""
    signal.raise_signal(signal.SIGALRM)


def test_a_worker_that_gets_no_thread_ends_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dispatchlab.processes.parent._signal_at_end", Mock())
    monkeypatch.setattr("dispatchlab.processes.parent.Thread", Mock(side_effect=RuntimeError("can't start new thread")))
    monkeypatch.setattr("os._exit", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        end_with_parent(-1)
    cast(Mock, os._exit).assert_called_once_with(74)
    assert capfd.readouterr() == ("", "")


def test_a_deadline_interrupts_what_looks_at_no_clock() -> None:
    limit = Deadline(0.01)
    with pytest.raises(DeadlineReached), limit.running():
        time.sleep(60)
    assert limit.passed
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_deadline_keeps_the_rest_of_its_time_while_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, armed = iter([10.0, 14.0, 100.0, 101.0]), []
    monkeypatch.setattr("dispatchlab.processes.deadline.monotonic", lambda: next(clock))
    monkeypatch.setattr(signal, "setitimer", lambda _, seconds, again=None: armed.append(seconds))
    limit = Deadline(HOUR)
    with limit.running():
        pass
    with limit.running():
        pass
    assert armed == [HOUR, 0, HOUR - 4, 0]
    assert not limit.passed


def test_a_deadline_leaves_an_alarm_of_somebody_else_alone() -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with Deadline(HOUR).running():
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_scenario_that_is_not_read_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.questions.order.run_scenario.load_scenario", _alarm)
    with pytest.raises(NotInTimeError, match=r"^x\.yaml: stopped at the bound of 3600 seconds, before") as caught:
        run_scenario("x.yaml", RunOptions(timeout_s=HOUR))
    assert caught.value.exit_code == 3


def test_a_phase_without_a_clock_ends_at_the_bound_with_an_incomplete_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.questions.order.run_scenario.explore", _alarm)
    outcome = run_scenario(parse_scenario(FIVE), RunOptions(timeout_s=HOUR))
    assert (outcome.report.exploration.verdict, outcome.interrupted) == (Verdict.INCOMPLETE, False)
    assert outcome.report.exploration.notes == ("stopped at the bound of 3600 seconds",)
    assert outcome.report.exit_code == 3


def test_a_walk_that_is_interrupted_by_the_deadline_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count()

    def used_memory_until_the_alarm() -> int:
        if next(looks) == 20:
            _alarm()
        return 0

    monkeypatch.setattr("dispatchlab.prover.limits.used_memory", used_memory_until_the_alarm)
    monkeypatch.setattr("dispatchlab.prover.limits._LOOK_EVERY_S", 0.0)
    outcome = run_scenario(parse_scenario(many(18)), RunOptions(timeout_s=HOUR, walk="graph"))
    found = outcome.report.exploration
    assert (found.verdict, outcome.interrupted) == (Verdict.INCOMPLETE, False)
    assert found.sets > 1
    assert found.notes[0] == "stopped at the bound of 3600 seconds"
    assert "interrupted" not in found.notes


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
    assert default_memory_bound(4) == bound // 4
    (tmp_path / "memory.max").write_text("1073741824\n")
    monkeypatch.setattr("dispatchlab.processes.machine._CONTROL_GROUPS", tmp_path)
    assert default_memory_bound(2) == 2**28
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
    assert given == [bound for bound in bounds for _ in ("strict", "PyTorch's newest model")]
