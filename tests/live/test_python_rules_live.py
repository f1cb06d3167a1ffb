"""What the rules say of each registry of Python is what the running PyTorch does."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.python_layer import (
    ASSIGNMENT,
    IMPORTS,
    IN_LAYERS,
    NO_CALL_OF_ITS_OWN,
    PYTHON_REGISTRIES,
    REGISTRY_NAMED,
    PythonRegistration,
    Second,
)
from dispatchlab.prover.explore import explore
from dispatchlab.prover.lockstep import lockstep
from dispatchlab.prover.result import Verdict
from dispatchlab.pytorch.bridge.python_calls import entry_now, python_call
from dispatchlab.pytorch.sandbox.sandbox import LocalEngine
from dispatchlab.scenario.explored import explored
from dispatchlab.scenario.load import parse_scenario

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

_KEYS = {
    "py_kernels": "Autograd",
    "mode_rules": "street.Mode",
    "decompositions": "post_autograd",
    "higher_order": "CPU",
    "dtensor_rules": "strategy",
}
CASES = [one.name for one in PYTHON_REGISTRIES if one.rule is not None and one.name not in NO_CALL_OF_ITS_OWN]


@pytest.fixture(autouse=True)
def library() -> Iterator[ExitStack]:
    """An operator, which can be defined anew."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these modules use parts of PyTorch that are deprecated
        for module in IMPORTS:
            importlib.import_module(module)
    with ExitStack() as held:
        _define(held)
        yield held


def _define(held: ExitStack) -> None:
    library = torch.library.Library("ruledstreet", "DEF")
    library.define("door(Tensor x) -> Tensor")
    held.callback(library._destroy)


def _one(registry: str, function: str, call: str = "") -> PythonRegistration:
    namespace = "higher_order" if registry.startswith("higher_order") else "ruledstreet"
    return PythonRegistration(registry, f"{namespace}::door", _KEYS.get(registry, ""), f"street:{function}", call=call)


def test_every_rule_is_held_to_pytorch_but_for_what_has_no_call_of_its_own() -> None:
    assert len(CASES) >= 17
    assert {REGISTRY_NAMED[name].no_call for name in NO_CALL_OF_ITS_OWN & IN_LAYERS} == {"PyTorch fills it by itself"}


@pytest.mark.parametrize("registry", CASES)
def test_a_second_registration_does_what_the_rule_says(registry: str) -> None:
    rule = _one(registry, "first").rule
    assert rule is not None
    with ExitStack() as made:
        first = python_call(_one(registry, "first"))()
        made.callback(first.reset)
        assert first.is_in_force()
        match rule.second:
            case Second.REFUSED:
                with pytest.raises(RuntimeError) as refused:
                    python_call(_one(registry, "second"))()
                assert rule.refusal in str(refused.value)
                assert first.is_in_force()
                assigned = python_call(_one(registry, "second", ASSIGNMENT))()
                made.callback(assigned.reset)
                assert (first.is_in_force(), assigned.is_in_force()) == (False, True)
            case Second.REPLACES:
                second = python_call(_one(registry, "second"))()
                made.callback(second.reset)
                assert (first.is_in_force(), second.is_in_force()) == (False, True)
            case Second.SAME:
                made.callback(python_call(_one(registry, "second"))().reset)  # a member of a set has no function
                assert entry_now(_one(registry, "first"))


@pytest.mark.parametrize("registry", CASES)
def test_what_belongs_to_the_operator_needs_it_and_is_lost_with_it(registry: str, library: ExitStack) -> None:
    one = _one(registry, "first")
    rule = one.rule
    assert rule is not None
    nobody = one._replace(operator=one.operator.replace("door", "nobody"))
    if rule.by_object:
        with pytest.raises(RuntimeError):
            python_call(nobody)()
    made = python_call(one)()
    try:
        assert entry_now(one)
        library.close()
        _define(library)
        assert bool(entry_now(one)) is not rule.by_object
    finally:
        made.reset()


NAMES_OF_PYTHON = {
    "all overloads of PyTorch's": ("inductor_lowerings", "aten::relu.*", "register_lowering", ""),
    "all overloads of one that is given": ("inductor_lowerings", "nobodys::door.*", "register_lowering", ""),
    "a decomposition of all overloads": ("decompositions", "nobodys::door.*", "", "post_autograd"),
    "a function": ("inductor_lowerings", "python::torch.sym_min", "register_lowering", ""),
    "a method": ("inductor_lowerings", "python::torch.Tensor.size", "register_lowering", ""),
}


@pytest.mark.parametrize("kind", NAMES_OF_PYTHON)
def test_the_last_writer_wins_under_a_name_that_the_bindings_refuse(kind: str) -> None:
    registry, operator, call, key = NAMES_OF_PYTHON[kind]
    codes = [PythonRegistration(registry, operator, key, f"street:{name}", call=call) for name in ("first", "second")]
    before = entry_now(codes[0])
    definition = parse_scenario("""{claim: A lamp., registrations: [{def: "street::lamp(Tensor x) -> Tensor"}]}""")
    scenario = explored(replace(definition, python=tuple(codes)), live=True)
    assert (len(scenario.registrations), scenario.python) == (3, ())
    found = explore(LocalEngine(), scenario.registrations, scenario.operators)
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert found.counterexample is not None
    assert "street:first" in found.counterexample.diff
    assert "street:second" in found.counterexample.diff
    agreed = lockstep(LabEngine("torch"), LocalEngine(), scenario.registrations, scenario.operators)
    assert (agreed.verdict, agreed.edges > 5) == (Verdict.NO_VIOLATION_FOUND, True)
    assert entry_now(codes[0]) is before
