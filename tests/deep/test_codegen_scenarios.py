"""The scenarios that are generated from the native_functions.yaml of PyTorch: all of them are decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.codegen.emit.generate import scenario_of
from dispatchlab.codegen.emit.generated_group import generated_group
from dispatchlab.codegen.read.native_functions import load_native_functions
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Block, Impl
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.scenario.scenario import Scenario
from tests.effort import share, some

packaged: Any = pytest.importorskip(
    "torchgen.packaged", reason="torchgen comes with PyTorch: pip install 'dispatchlab[torch]'"
)
FILE = Path(next(iter(packaged.__path__))) / "ATen" / "native" / "native_functions.yaml"


@cache
def scenarios() -> dict[str, Scenario]:
    groups = [generated_group(group) for group in load_native_functions(FILE).structured_groups]
    return {one.name: scenario_of(one, FILE.name) for one in groups}


def explored(scenario: Scenario, semantics: str) -> Exploration:
    return explore(LabEngine(semantics), scenario.registrations, scenario.operators, order=scenario.order)


def of_each_pattern() -> Iterator[tuple[str, Scenario]]:
    """A scenario for each way in which libraries, keys and operators go together."""
    seen = set()
    for name, scenario in scenarios().items():
        pattern = tuple(_shape(block, scenario) for block in scenario.registrations if isinstance(block, Block))
        if pattern not in seen:
            seen.add(pattern)
            yield name, scenario


def _shape(block: Block, scenario: Scenario) -> tuple[object, ...]:
    inside = [one.operator.within(str(block.namespace)) for one in block.registrations if isinstance(one, Impl)]
    return block.key, len(block.registrations), tuple(map(scenario.operators.index, inside))


def test_generated_scenarios_are_proved() -> None:
    assert len(scenarios()) > 250
    found = {name: explored(scenarios()[name], "strict") for name in (*some([*scenarios()]), "add_Tensor")}
    assert {name for name, one in found.items() if one.verdict is not Verdict.ORDER_INDEPENDENT} == set()
    assert max(one.registrations for one in found.values()) >= 19  # `add`
    assert sum(one.neighbourhoods > 0 for one in found.values()) > share(30)


def test_patterns_of_generated_scenarios_are_decided_under_the_rules_of_pytorch() -> None:
    found = {
        name: explored(scenario, "torch-2.13")
        for at, (name, scenario) in enumerate(of_each_pattern())
        if at % (100 // share(100)) == 0 or name == "silu_backward"
    }
    assert len(found) > share(48)
    verdicts = Counter(one.verdict for one in found.values())
    assert verdicts.keys() <= {Verdict.ORDER_INDEPENDENT, Verdict.ORDER_DEPENDENT}
    dependent = {name: one for name, one in found.items() if one.verdict is Verdict.ORDER_DEPENDENT}
    assert set(dependent) == {"silu_backward"}  # NestedTensorCPU before a composite kernel, see docs/defects.md
    example = dependent["silu_backward"].counterexample
    assert example is not None
    assert example.why == ("AutogradNestedTensor of aten::silu_backward was not refreshed: calls use the old entry",)
