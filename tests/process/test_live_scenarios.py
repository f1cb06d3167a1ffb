"""Every scenario on the running PyTorch: what it expects there, and agreement with the model at every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.live.bridge.expressible import NotExpressibleError
from dispatchlab.live.bridge.registration_calls import NativeKernels
from dispatchlab.live.introspection.builtin_fallbacks import builtin_fallbacks
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.live.worker.main import load_extension
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.lockstep import lockstep
from dispatchlab.prover.modules import explore_modules
from dispatchlab.prover.result import Expectation, Verdict, judge
from dispatchlab.scenario import Scenario, load_scenario
from tests.live.native_extension import native_kernels

FOLDER = Path(__file__).parents[2] / "scenarios"
PASSES = 2

NOT_EXPRESSIBLE = {
    "alias_kinds/inferred_and_explicit": "an inferred schema no tags and CONSERVATIVE only",
    "alias_kinds/special_case": "its bindings have no INTERNAL_SPECIAL_CASE",
    "basics/def_by_name_needs_a_typed_kernel": "infer a schema only from",
    "lifetimes/a_name_keeps_the_operator": "no binding registers a name alone",
    "schemas/kernels_are_not_compared_with_one_another": "needs an extension",
}
"""Why the bindings of PyTorch cannot make a scenario, with the C++ kernels of tests/live/cpp."""

NEEDS_CPP = 19
"""How many scenarios have kernels that only an extension can make."""


STRICT_ALONE = {
    "lint/dl008_not_found",
    "table/composites_leave_modes_alone",
    "table/explicit_beats_implicit",
    "table/explicit_is_never_ambiguous",
    "table/the_row_cpu_took_falls_through",
}
"""Claims about the commutative dispatcher that PyTorch does not keep and that have no twin."""


def about_torch() -> Iterator[tuple[str, Scenario]]:
    """Scenarios that claim something of PyTorch 2.13, or of every dispatcher without defects, by name."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        scenario, name = load_scenario(path), str(path.relative_to(FOLDER).with_suffix(""))
        is_shared = scenario.semantics == "strict" and not name.endswith("_strict") and name not in STRICT_ALONE
        if is_shared or scenario.semantics == "torch-2.13":
            yield name, scenario


def outcomes(native: NativeKernels | None) -> dict[str, tuple[str, str]]:
    """For each scenario whether it went as it expects, and how its lockstep with the model ended; or why neither."""
    found = {}
    for name, scenario in about_torch():
        about = scenario.registrations, scenario.operators
        engine = LocalEngine(scenario.registrations, native=native)
        try:
            if scenario.modules:
                explored = explore_modules(engine, *about, scenario.modules, order=scenario.order)
            else:
                explored = explore(engine, *about, WalkOptions(passes=PASSES), order=scenario.order)
            both = lockstep(
                LabEngine("torch-2.13"),
                LocalEngine(scenario.registrations, native=native),
                *about,
                order=scenario.order,
            )
        except NotExpressibleError as error:
            found[name] = "not expressible", error.reason
            continue
        refusals = len(explored.conflicts) + len(explored.never_accepted)
        as_expected, _ = judge(explored.verdict, scenario.expect, conflicts=refusals)
        found[name] = "as expected" if as_expected else "otherwise", str(both.verdict)
    return found


@pytest.mark.filterwarnings("ignore")
def test_scenarios_agree_with_their_model_with_kernels_of_cpp() -> None:
    found = outcomes(load_extension(native_kernels()))
    assert {name: verdict for name, (how, verdict) in found.items() if how == "not expressible"}.keys() == (
        NOT_EXPRESSIBLE.keys()
    )
    for name, reason in NOT_EXPRESSIBLE.items():
        assert reason in found[name][1]
    assert {name for name, (how, _) in found.items() if how == "otherwise"} == set()
    assert {verdict for how, verdict in found.values() if how != "not expressible"} == {str(Verdict.NO_VIOLATION_FOUND)}
    counts = Counter(how for how, _ in found.values())
    assert counts == {
        "as expected": len(found) - len(NOT_EXPRESSIBLE),
        "not expressible": len(NOT_EXPRESSIBLE),
    }
    assert counts["as expected"] >= 150


@pytest.mark.filterwarnings("ignore")
def test_without_a_compiler_only_kernels_of_other_types_are_left_out() -> None:
    found = outcomes(None)
    left = {name for name, (how, _) in found.items() if how == "not expressible"}
    assert left > NOT_EXPRESSIBLE.keys()
    assert len(left - NOT_EXPRESSIBLE.keys()) == NEEDS_CPP
    for name in left - NOT_EXPRESSIBLE.keys():
        assert "needs an extension" in found[name][1] or "infer a schema only" in found[name][1]
    assert {name for name, (how, _) in found.items() if how == "otherwise"} == set()
    assert {verdict for name, (_, verdict) in found.items() if name not in left} == {str(Verdict.NO_VIOLATION_FOUND)}


def test_the_defects_of_pytorch_are_violated_live() -> None:
    defects = {name: scenario for name, scenario in about_torch() if scenario.semantics == "torch-2.13"}
    verdicts = {}
    for name, scenario in defects.items():
        if scenario.expect is not Expectation.ORDER_DEPENDENT:
            continue
        try:
            verdicts[name] = explore(
                LocalEngine(scenario.registrations), scenario.registrations, scenario.operators, order=scenario.order
            ).verdict
        except NotExpressibleError:
            continue
    assert set(verdicts.values()) == {Verdict.ORDER_DEPENDENT}
    assert {"defects/stale_slots_torch", "defects/stale_quantized_torch", "defects/stale_nested_torch"} <= set(verdicts)
    assert len(verdicts) >= 6


@pytest.mark.filterwarnings("ignore")
def test_a_refused_alias_fallback_leaves_nothing_for_the_sandboxes_that_follow() -> None:
    scenario = load_scenario(FOLDER / "defects" / "half_a_fallback_torch.yaml")
    before = builtin_fallbacks().table
    for seed in range(8):
        engine = LocalEngine(scenario.registrations)
        found = explore(engine, scenario.registrations, scenario.operators, WalkOptions(seed=seed))
        assert found.counterexample is not None
        assert found.counterexample.actual_sequence == (0, 1, 1)
        assert builtin_fallbacks().table == before
