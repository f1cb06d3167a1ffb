"""Properties of generated scenarios: the running PyTorch and its model agree on what holds and how it is violated."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Registration, operators_of
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.properties import check_statements
from dispatchlab.prover.result import Standing
from dispatchlab.prover.walk_options import DEFAULT_WALK, WalkOptions
from dispatchlab.pytorch.bridge.torch import semantics
from dispatchlab.pytorch.sandbox.sandbox import LocalEngine
from dispatchlab.questions.order.properties import check_properties, statement_of
from dispatchlab.scenario import Scenario
from dispatchlab.strategies import OPERATORS, registrations
from tests.effort import examples
from tests.test_properties import HOLDING, VIOLATED, random_property, scenario_of


@pytest.mark.filterwarnings("ignore")
def test_generated_properties_hold_on_pytorch_where_they_hold_on_its_model() -> None:
    seen: Counter[Standing] = Counter()

    @settings(examples(200), suppress_health_check=list(HealthCheck))
    @given(st.lists(registrations, min_size=2, max_size=3), st.integers(0, 1 << 30))
    def compare(some: list[Registration], seed: int) -> None:
        random, model = SplitMix64(seed), semantics()
        scenario = Scenario("A sentence.", tuple(some), OPERATORS)
        properties = [random_property(random, scenario) for _ in range(4)]
        statements = [statement_of(one, model) for one in properties]
        proved = check_statements(LabEngine(model), some, OPERATORS, statements)
        live = LocalEngine(some, every_table=False)
        found = check_statements(live, some, OPERATORS, statements, WalkOptions(passes=4))
        for one, expected, actual in zip(properties, proved, found, strict=True):
            lengths = [None if each.sequence is None else len(each.sequence) for each in (expected, actual)]
            assert (expected.standing is Standing.VIOLATED) is (actual.standing is Standing.VIOLATED), str(one)
            assert lengths[0] == lengths[1], (str(one), expected, actual)
            seen[actual.standing] += 1

    compare()
    assert seen[Standing.VIOLATED] >= 5
    assert seen[Standing.NO_VIOLATION_FOUND] >= 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("registrations", "stated", "length"),
    [
        *((one, stated, sequence.count("+") + sequence.count("-")) for one, stated, sequence in VIOLATED),
        *((*one, None) for one in HOLDING),
    ],
)
def test_what_is_planted_shows_on_pytorch(registrations: str, stated: str, length: int | None) -> None:
    scenario = scenario_of(registrations, stated)
    operators = {name for one in scenario.registrations for name in operators_of(one)}
    assert operators <= {*scenario.operators}
    live = LocalEngine(scenario.registrations, every_table=False)
    (found,) = check_properties(live, scenario, DEFAULT_WALK)
    if length is None:
        assert (found.standing, found.sequence) == (Standing.NO_VIOLATION_FOUND, None)
    else:
        assert found.sequence is not None
        assert len(found.sequence) == length
