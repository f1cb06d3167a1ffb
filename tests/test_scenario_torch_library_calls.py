"""`made_by`: calls of torch.library in a scenario file, read, written, refused, and registered by the lab engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Block, TorchLibraryCall, TorchLibraryFunction, describe
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from dispatchlab.scenario import ScenarioError, parse_scenario
from dispatchlab.scenario.write import scenario_text

PAGE = Path(__file__).parent.parent / "docs" / "packages.md"


def documented() -> str:
    """The scenario of the documentation."""
    found = re.search(r"```yaml\n(- library:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return f"claim: The page is right.\nnamespace: my\nregistrations:\n{found[1]}"


def test_the_documented_call_is_read_and_written_back() -> None:
    scenario = parse_scenario(documented())
    (block,) = scenario.registrations
    assert isinstance(block, Block)
    made_by = block.made_by
    assert made_by is not None
    assert (made_by.function, str(made_by.operator), made_by.on) == (TorchLibraryFunction.CUSTOM_OP, "foo", ("cpu",))
    assert made_by.parts == (
        TorchLibraryCall(TorchLibraryFunction.REGISTER_FAKE, made_by.operator, debug="registered at my/ops.py:23"),
    )
    assert parse_scenario(scenario_text(scenario)) == scenario
    assert describe(block) == "custom_op my::foo on cpu (registered at my/ops.py:20)"
    assert scenario.names == ("custom_op my::foo",)


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_a_kernel_that_may_not_override_is_refused_after_another_and_written_back() -> None:
    kernel = "  - {library: test, kind: FRAGMENT, made_by: {call: impl, operator: foo}, registrations: [{impl: foo}]}\n"
    careful = kernel.replace("operator: foo", "operator: foo, allow_override: false")
    scenario = parse_scenario(f"claim: One of two kernels may not override.\nregistrations:\n{kernel}{careful}")
    assert parse_scenario(scenario_text(scenario)) == scenario
    assert "allow_override: false" in scenario_text(scenario)
    for semantics in ("torch-2.13", "strict"):
        found = explore(LabEngine(semantics), scenario.registrations, scenario.operators)
        assert found.verdict is Verdict.ORDER_DEPENDENT
        assert found.counterexample is not None
        assert "duplicate_kernel" in found.counterexample.diff


def test_every_call_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{function}`" in text for function in TorchLibraryFunction)


def test_the_lab_engine_registers_what_is_inside() -> None:
    scenario = parse_scenario(documented())
    with LabEngine("torch-2.13").sandbox() as sandbox:
        handle = sandbox.register(scenario.registrations[0])
        dump = sandbox.snapshot(scenario.operators[0]).dump
        handle.release()
        assert not sandbox.snapshot(scenario.operators[0]).exists
    kernels = [line.partition(":")[0] for line in dump.splitlines()[4:]]
    assert kernels == ["CPU", "Meta", "Autograd[alias]"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("call: custom_op", "call: custom_opp", "did you mean custom_op?"),
        ("    operator: foo\n", "", "`operator` is missing in a call of torch.library"),
        ("call: custom_op", "call: define", "only custom_op has parts, and this is define"),
        ("on: [cpu]", "allow_override: false", "only impl and register_fake take it, and this is custom_op"),
        ("library: my", "library: _", "a call of torch.library has a namespace"),
        ("    on: [cpu]", "    in: [cpu]", "is not a field of a call of torch.library"),
    ],
)
def test_a_wrong_call_is_refused_with_its_source_location(old: str, new: str, message: str) -> None:
    assert old in documented()
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(documented().replace(old, new, 1))
    assert message in str(caught.value)
    assert re.match(r"<text>:\d+:\d+: ", str(caught.value))


def scenario_of(operators: int, *, twice: int = -1) -> str:
    """Two kernels for each of some operators; one of them has both at one key."""
    lines = ["claim: Many.", "registrations:"]
    for number in range(operators):
        keys = ("CPU", "CPU") if number == twice else ("CPU", "CUDA")
        for column, key in enumerate(keys):
            lines += [f"  - impl: op{number}", f"    dispatch: {key}", f"    debug: fn_{number}_{column}"]
    return "\n".join(lines) + "\n"
