"""The verdict on a record agrees with random orders of its calls, each made in a process of its own."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.model.sequence import parse_sequence
from dispatchlab.scenario.load import parse_scenario
from dispatchlab.scenario.scenario import Scenario
from tests.live.fresh_orders import scenario_of
from tests.live.order_truth import (
    FreshRun,
    all_orders,
    differences,
    disagreements,
    fresh_run,
    import_orders,
    predicted,
    verdict,
)
from tests.live.packages import dispatchlab, package

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.pytorch.bridge.torch import semantics

_HOUSE = """\
import torch
from torch._decomp import register_decomposition

lib = torch.library.Library("house", "DEF")
lib.define("door(Tensor x) -> Tensor")
lib.impl("door", lambda x: x + 1, "CPU")
torch.library.register_fake("house::door", lambda x: torch.empty_like(x), lib=lib)
register_decomposition(torch.ops.house.door.default)(lambda x: x + 1)
"""


def _recorded(folder: Path, *names: str) -> Path:
    done = dispatchlab(folder, "record", *names, "-o", "record.yaml")
    assert done.returncode == 0, done.stderr
    return folder / "record.yaml"


def _compared(record: Path, count: int, *, free: bool) -> tuple[dict[str, Any], list[str], list[str], FreshRun]:
    """The verdict, where it and the lab engine disagree with so many orders, and these."""
    scenario, name = scenario_of(str(record)), semantics()
    found = verdict(record, "--semantics", name, *(("--free",) if free else ()))
    orders = all_orders(scenario, count) if free else import_orders(scenario, count)
    run = fresh_run(record, orders)
    shown = found["counterexample"]
    count = len(scenario.registrations)
    sequences = (
        [parse_sequence(shown[each], count=count) for each in ("expected_sequence", "actual_sequence")] if shown else []
    )
    pair = fresh_run(record, sequences) if shown else None
    wrong = [
        text
        for order, outcome in zip(orders, run.outcomes, strict=True)
        for text in differences(scenario, run.given, outcome, predicted(scenario, run.given, order, name))
    ]
    return found, list(disagreements(found, run, pair)), wrong, run


def test_a_refusal_that_the_order_decides_is_in_the_verdict(tmp_path: Path) -> None:
    """The def comes first in the one module that there is, which is nothing to permute; by themselves calls fail."""
    package(tmp_path, "house", init=_HOUSE)
    record = _recorded(tmp_path, "house")
    found, disagreeing, wrong, run = _compared(record, 5, free=False)
    assert (found["verdict"], disagreeing, wrong) == ("no violation found", [], [])
    assert not any(outcome.refused for outcome in run.outcomes)
    found, disagreeing, wrong, run = _compared(record, 20, free=True)
    assert (disagreeing, wrong) == ([], [])
    assert found["verdict"] == "order-dependent"  # whether a call is accepted depends on what came before it
    assert any(outcome.refused for outcome in run.outcomes)
    # With another verdict, or without the rules of the calls, the comparison fails.
    assert list(disagreements({**found, "verdict": "order-independent", "conflicts": []}, run, None))
    scenario = scenario_of(str(record))
    shorter = predicted(scenario, run.given, tuple(range(len(scenario.registrations))), semantics())
    refusing = next(outcome for outcome in run.outcomes if outcome.refused)
    assert list(differences(scenario, run.given, refusing, shorter))


def test_a_violation_is_one_in_processes_of_their_own(tmp_path: Path) -> None:
    package(tmp_path, "house", init="from house import left, right", left=_LEFT, right=_LEFT.replace("+ 1", "+ 2"))
    record = _recorded(tmp_path, "house")
    found, disagreeing, wrong, run = _compared(record, 20, free=False)
    assert found["verdict"] == "order-dependent"
    assert (disagreeing, wrong) == ([], [])
    assert len({outcome.python for outcome in run.outcomes}) == 2
    # Had the verdict been that the order does not matter, the orders would have shown that it does.
    assert list(disagreements({**found, "verdict": "order-independent"}, run, None))


_LEFT = """\
import torch
from torch._decomp import decomposition_table

decomposition_table[torch.ops.aten.bincount.default] = lambda x: x + 1
"""


_STREET = """\
import torch

lib = torch.library.Library("street", "FRAGMENT")
lib.define("gate(Tensor x) -> Tensor")
lib.impl("gate", lambda x: x + 1, "CPU")
"""
_GATE = """\
import inspect, street, torch

lib = torch.library.Library("street", "FRAGMENT")
usual = inspect.signature(torch.library.Library.impl).parameters["allow_override"].default
for given in ({}, {"allow_override": not usual}):
    for call in (
        lambda: lib.impl("gate", lambda x: x + 2, "KEY", **given),
        lambda: torch.library.register_fake("street::gate", lambda x: x, lib=lib, **given),
    ):
        try:
            call()
        except RuntimeError:
            pass
"""


@pytest.mark.filterwarnings("ignore:the .* kernel of .* is overridden")
def test_a_record_has_what_calls_give_as_allow_override(tmp_path: Path) -> None:
    (tmp_path / "street.py").write_text(_STREET)
    for name, key in (("left", "CPU"), ("right", "CUDA")):
        (tmp_path / f"{name}.py").write_text(_GATE.replace("KEY", key))
    record = _recorded(tmp_path, "left", "right")
    scenario = scenario_of(str(record))
    orders = (*import_orders(scenario, 4), *all_orders(scenario, 12))
    run = fresh_run(record, orders)

    def wrong(scenario: Scenario) -> list[str]:
        return [
            text
            for order, outcome in zip(orders, run.outcomes, strict=True)
            for text in differences(scenario, run.given, outcome, predicted(scenario, run.given, order, semantics()))
        ]

    assert wrong(scenario) == []
    assert len({frozenset(outcome.refused) for outcome in run.outcomes}) > 3
    text = record.read_text()
    assert text.count("allow_override") == 4
    assert wrong(parse_scenario(re.sub(r" +allow_override: .*\n", "", text)))


@pytest.mark.parametrize("name", ["torchao"])
def test_the_verdict_on_a_package_agrees_with_orders_of_its_calls(tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    record = _recorded(tmp_path, name)
    for free in (False, True):
        _, disagreeing, wrong, _ = _compared(record, 5, free=free)
        assert (disagreeing, wrong) == ([], [])
