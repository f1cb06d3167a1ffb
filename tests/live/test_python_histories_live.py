"""What Python keeps beside the dispatch tables: the lab engine and the running PyTorch do the same, step by step."""

from __future__ import annotations

import importlib
import random
import warnings
from collections.abc import Iterator

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.python_layer import IMPORTS, REGISTRY_NAMED, PythonRegistration, PythonRule, Second
from dispatchlab.model.registration import Def, Impl, PythonImpl, Registration, with_defs_needed
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from dispatchlab.scenario.scenario import operators_named_by
from tests.live.python_histories import Difference, compare, registrations

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.pytorch.bridge import python_calls  # needs PyTorch
from dispatchlab.pytorch.sandbox.sandbox import LocalEngine

HISTORIES, STEPS = 400, 14


@pytest.fixture(scope="module")
def live() -> Iterator[LocalEngine]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these modules use parts of PyTorch that are deprecated
        for module in IMPORTS:
            importlib.import_module(module)
    yield LocalEngine()
    assert not python_calls._written, "an entry of a sandbox is left in a registry"


def _first_difference(live: LocalEngine, count: int) -> Difference | None:
    lab = LabEngine(live.semantics)
    for seed in range(count):
        numbers = random.Random(seed)
        found = compare(lab, live, registrations(numbers), numbers, STEPS)
        if found is not None:
            return found
    return None


def test_histories_of_python_are_the_same_on_the_lab_engine_and_live(live: LocalEngine) -> None:
    found = _first_difference(live, HISTORIES)
    assert found is None, str(found)


@pytest.mark.parametrize(
    ("registry", "rule"),
    [
        ("jagged", PythonRule(Second.REFUSED, refusal="planted")),
        ("decompositions", PythonRule(Second.REPLACES)),
        ("inductor_fallbacks", PythonRule(Second.SAME)),
        ("inductor_lowerings", PythonRule(Second.REPLACES, by_object=False)),
        ("higher_order", PythonRule(Second.REPLACES, by_object=False)),
    ],
    ids=lambda one: str(one) if isinstance(one, str) else "",
)
def test_a_wrong_rule_is_found(
    live: LocalEngine, monkeypatch: pytest.MonkeyPatch, registry: str, rule: PythonRule
) -> None:
    monkeypatch.setitem(REGISTRY_NAMED, registry, REGISTRY_NAMED[registry]._replace(rule=rule))
    assert _first_difference(live, HISTORIES) is not None


def _python(registry: str, function: str, operator: str = "test::door", key: str = "") -> PythonImpl:
    return PythonImpl(PythonRegistration(registry, operator, key, f"street:{function}"))


_DEPENDENT, _SAME = Verdict.ORDER_DEPENDENT, Verdict.NO_VIOLATION_FOUND
_DEF = Def(parse_schema("test::door(Tensor x) -> Tensor"), debug="the def")
_IMPL = Impl(_DEF.operator, DispatchKey.CPU, debug="a kernel")


_RELU = "aten::relu"


@pytest.mark.parametrize(
    ("scenario", "verdict", "is_refused"),
    [
        ([_python("inductor_lowerings", "one", _RELU), _python("inductor_lowerings", "two", _RELU)], _DEPENDENT, ""),
        ([_python("inductor_lowerings", "one", _RELU), _python("jagged", "two", _RELU)], _SAME, ""),
        ([_DEF, _IMPL, _python("decompositions", "one", key="post_autograd")], _SAME, "no_such_schema"),
        ([_python("py_kernels", "one", "given::door", "CPU"), _DEF, _IMPL], _SAME, ""),
        (
            [_python("fake_rules", "one", "given::door"), _python("fake_rules", "two", "given::door")],
            _SAME,
            "duplicate_python",
        ),
        (
            [
                _python("inductor_decompositions", "one", "given::door"),
                _python("inductor_fallbacks", "", "given::door"),
            ],
            _DEPENDENT,
            "",
        ),
    ],
)
def test_the_live_engine_explores_them_with_the_verdict_of_the_lab(
    live: LocalEngine, scenario: list[Registration], verdict: Verdict, is_refused: str
) -> None:
    scenario = list(with_defs_needed(scenario))
    operators = operators_named_by(scenario)
    lab = explore(LabEngine(live.semantics), scenario, operators)
    found = explore(live, scenario, operators)
    assert found.verdict is verdict, found
    assert lab.verdict is (Verdict.ORDER_INDEPENDENT if verdict is _SAME else verdict), lab
    assert [one.kind for one in found.conflicts] == ([is_refused] if is_refused else [])
    assert [one.members for one in lab.conflicts] == [one.members for one in found.conflicts]
