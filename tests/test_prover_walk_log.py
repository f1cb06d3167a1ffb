"""Graph walks that were ended after any record: what they come to is what an uninterrupted walk comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.files.atomic_write import WriteError
from dispatchlab.model.registration import Claim, Registration
from dispatchlab.prover import walk_log
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import Progress
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.prover.walk_log import NotTheSameWalkError, WalkLog, WalkRecord
from dispatchlab.prover.walk_options import DEFAULT_WALK, WalkOptions
from tests.engine_shorthand import BAR, FOO, K, define, fallback, impl

Scenario = tuple[str, list[Registration]]

MANY: list[Registration] = [
    define(debug="def"),
    *(impl(key, f"fn_{key}") for key in (K.CPU, K.CUDA, K.Autograd, K.AutogradCPU, None, K.Meta)),
]
SCENARIOS: dict[str, Scenario] = {
    "a proof": ("strict", MANY),
    "a long proof on integers": ("strict", [*MANY, impl(K.XLA, "fn_xla")]),
    "refusals": ("strict", [define(debug="a"), define(debug="b"), *MANY[1:5], Claim("test"), Claim("test", "b")]),
    "hidden states": ("torch-2.13", [define(debug="a"), impl(K.CPU, "b"), fallback(K.CPU, "c"), fallback(K.CPU, "d")]),
    "an override": ("strict", [define(debug="def"), impl(K.CPU, "a"), impl(K.CUDA, "b"), impl(K.CPU, "c")]),
    "a stale slot": ("torch-2.13", [impl(None, "math"), impl(K.SparseCPU, "sparse"), define(debug="def")]),
    "two parts": ("strict", [*MANY[:4], define("test::bar(Tensor x) -> Tensor"), impl(K.CPU, "x", operator=BAR)]),
}


pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")


@dataclass
class Kept:
    """Records in memory, every one of which can be the last."""

    values: list[tuple[str, WalkRecord]] = field(default_factory=list)

    def records(self, name: str, kind: Any) -> list[Any]:
        return [value for each, value in self.values if each == name]

    def add(self, name: str, value: Any) -> bool:
        self.values.append((name, value))
        return True


def explored(scenario: Scenario, kept: Kept | None, options: WalkOptions = DEFAULT_WALK, **calls: Any) -> Exploration:
    semantics, registrations = scenario
    log = None if kept is None else WalkLog(kept)
    found = explore(LabEngine(semantics), registrations, [FOO, BAR], options, log=log, **calls)
    return replace(found, elapsed_s=0.0)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a record before every node."""
    monkeypatch.setattr(WalkLog, "is_due", lambda self: True)


@pytest.mark.usefixtures("always")
def test_what_is_known_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from dispatchlab.engine.lab_space import LabSpace

    scenario, kept, calls = SCENARIOS["a proof"], Kept(), [0]
    explored(scenario, kept)
    register: Callable[..., Any] = LabSpace.register

    def counted(self: LabSpace, *arguments: Any) -> Any:
        calls[0] += 1
        return register(self, *arguments)

    monkeypatch.setattr(LabSpace, "register", counted)
    explored(scenario, None)
    whole, calls[0] = calls[0], 0
    explored(scenario, kept)
    assert calls[0] < whole - 448 + 128  # of 448 registrations on edges; a step for each of 128 states


@pytest.mark.usefixtures("always")
def test_a_bound_ends_a_walk_that_the_next_run_goes_on_with() -> None:
    scenario, kept = SCENARIOS["a long proof on integers"], Kept()
    stopped = explored(scenario, kept, WalkOptions(timeout_s=1e-9), cancelled=lambda: True, progress=lambda _: None)
    assert stopped.verdict is Verdict.INCOMPLETE
    assert explored(scenario, kept) == explored(scenario, None)


@pytest.mark.usefixtures("always")
def test_a_record_of_another_engine_is_refused() -> None:
    kept = Kept()
    explored(SCENARIOS["refusals"], kept)
    with pytest.raises(NotTheSameWalkError, match="the engine does something else than it did"):
        explored(SCENARIOS["a long proof on integers"], kept)


@pytest.mark.usefixtures("always")
def test_an_estimate_leaves_out_what_an_earlier_run_did(monkeypatch: pytest.MonkeyPatch) -> None:
    from dispatchlab.prover import limits

    monkeypatch.setattr(limits, "_REPORT_EVERY_S", 0.0)
    scenario, kept = SCENARIOS["a long proof on integers"], Kept()
    explored(scenario, kept)
    half = Kept(kept.values[: len(kept.values) // 2])
    seen: list[Progress] = []
    explored(scenario, half, progress=seen.append)
    assert seen[0].edges_before == seen[0].edges > 0
    assert seen[-1].edges > seen[-1].edges_before == seen[0].edges_before


def test_a_short_walk_writes_nothing() -> None:
    kept = Kept()
    explored(SCENARIOS["a proof"], kept)
    assert kept.values == []
    assert walk_log._EVERY_S > 1


class Full(Kept):
    def add(self, name: str, value: Any) -> bool:
        super().add(name, value)
        raise WriteError("run.ck", "No space left on device")


def test_a_walk_whose_records_cannot_be_written_goes_on_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_log, "_EVERY_S", 0.0)
    kept = Full()
    log = WalkLog(kept)
    semantics, registrations = SCENARIOS["two parts"]
    found = explore(LabEngine(semantics), registrations, [FOO, BAR], log=log)
    assert found.verdict is explored(SCENARIOS["two parts"], None).verdict
    assert len(kept.values) == 1
    assert str(log.trouble) == "run.ck could not be written: No space left on device"
