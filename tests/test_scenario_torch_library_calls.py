"""`made_by`: calls of torch.library in a scenario file, read, written, refused, and registered by the lab engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Block, TorchLibraryCall, TorchLibraryFunction, describe
from dispatchlab.prover.explore import explore
from dispatchlab.prover.partition_by_operator import explore_apart, groups_of
from dispatchlab.prover.result import Flaw, Verdict
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


class Sealed:
    """The lab engine, whose state nobody may read."""

    name = "sealed"

    def __init__(self) -> None:
        self.semantics = "strict"
        self.sandbox = LabEngine("strict").sandbox


def test_groups_without_a_common_operator_are_walked_one_by_one() -> None:
    scenario = parse_scenario(scenario_of(6))
    found = explore_apart(Sealed(), scenario.registrations, scenario.operators)
    assert (found.verdict, found.registrations, found.components, found.sets) == (Verdict.NO_VIOLATION_FOUND, 12, 6, 24)
    assert found.notes == ("6 groups that share no operator were explored separately",)


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_a_counterexample_of_a_group_has_the_numbers_of_the_file() -> None:
    scenario = parse_scenario(scenario_of(6, twice=4))
    found = explore_apart(Sealed(), scenario.registrations, scenario.operators)
    counterexample = found.counterexample
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert counterexample is not None
    assert (counterexample.flaw, sorted(counterexample.actual_sequence), sorted(counterexample.expected_sequence)) == (
        Flaw.NON_COMMUTING,
        [8, 9],
        [8, 9],
    )
    assert "test::op4, dump" in counterexample.diff


@pytest.mark.parametrize(
    ("extra", "groups"),
    [
        ("", [(0, 1), (2, 3)]),
        ("  - fallback: boxed\n    dispatch: CPU\n", [(0, 1, 2, 3, 4)]),
        ("  - claim: test\n", [(0, 1, 2, 3, 4)]),
        ("  - claim: elsewhere\n", [(0, 1), (2, 3), (4,)]),
        ("  - library: test\n    kind: DEF\n    registrations: []\n", [(0, 1, 2, 3, 4)]),
        ("  - name: op1\n", [(0, 1), (2, 3, 4)]),
    ],
)
def test_fallbacks_and_claims_tie_groups_together(extra: str, groups: list[tuple[int, ...]]) -> None:
    assert groups_of(parse_scenario(scenario_of(2) + extra).registrations) == groups


def test_overloads_that_take_one_call_are_walked_together() -> None:
    text = "claim: x\nregistrations:\n" + "".join(
        f"  - def: foo.{overload} -> Tensor\n"
        for overload in ("a(Tensor x, int n=0)", "b(Tensor x, float s=0.)", "c(Tensor x, str m)")
    )
    assert groups_of(parse_scenario(text).registrations) == [(0, 1), (2,)]
