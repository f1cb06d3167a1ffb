"""The lab engine under `torch-2.13` and the running PyTorch, side by side on generated scenarios and sequences."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.live.introspection.builtin_fallbacks import builtin_fallbacks
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.model.registration import Fallback, Registration
from dispatchlab.strategies import OPERATORS, registrations
from tests import effort
from tests.effort import examples
from tests.engine_shorthand import BOXED, FALLTHROUGH, define
from tests.live.engine_side import Side
from tests.live.replacing_scenarios import REPLACEABLE, with_replacing

SEEN: Counter[str] = Counter()


@pytest.mark.filterwarnings("ignore")
def test_dump_table_slots_and_outcomes_are_equal_after_every_step() -> None:
    @settings(examples(2000), suppress_health_check=list(HealthCheck))
    @given(st.lists(registrations, min_size=1, max_size=6), st.data())
    def walk(scenario: list[Registration], data: st.DataObject) -> None:
        walk_together(scenario, data.draw(st.lists(st.integers(0, len(scenario) - 1), min_size=1, max_size=12)))

    SEEN.clear()
    walk()
    wanted = {"registered", "released", "duplicate_def"}
    if effort.percent == 100:
        wanted |= {"schema_mismatch", "too_many_arguments", "stale"}
    assert wanted <= set(SEEN)


@settings(examples(1000), suppress_health_check=list(HealthCheck))
@given(st.lists(with_replacing, min_size=2, max_size=5), st.data())
@pytest.mark.filterwarnings("ignore")
def test_fallbacks_that_replace_others_are_equal_after_every_step(
    scenario: list[Registration], data: st.DataObject
) -> None:
    scenario = [define(str(OPERATORS[0]) + "(Tensor x) -> Tensor", "def"), *scenario]
    walk_together(scenario, [0, *data.draw(st.lists(st.integers(1, len(scenario) - 1), min_size=2, max_size=12))])


def test_every_sequence_of_three_fallbacks_that_replace_leaves_pytorch_as_it_was() -> None:
    table = builtin_fallbacks().table
    fallbacks: list[Registration] = [
        Fallback(REPLACEABLE, kernel, f"f{at}") for at, kernel in enumerate([BOXED, FALLTHROUGH, BOXED])
    ]
    scenario = [define(str(OPERATORS[0]) + "(Tensor x) -> Tensor", "def"), *fallbacks]
    for toggles in product([1, 2, 3], repeat=4):
        walk_together(scenario, [0, *toggles])
        assert builtin_fallbacks().table == table


def walk_together(scenario: list[Registration], sequence: list[int]) -> None:
    """Take the steps on both engines, and compare all that they show after each."""
    with LocalEngine().sandbox() as live_sandbox:
        lab, live = Side(Dispatcher("torch-2.13"), scenario), Side(live_sandbox, scenario)
        for step in sequence:
            expected, found = live.toggle(step), lab.toggle(step)
            SEEN[expected] += 1
            assert found == expected, (scenario[step], sequence)
            # Which of several kernels that do not fit is named first is not PyTorch's to promise.
            assert lab.facts.get("def_schema") == live.facts.get("def_schema"), (scenario, sequence)
            for name in OPERATORS:
                theirs, ours = live.sandbox.snapshot(name), lab.sandbox.snapshot(name)
                assert ours.dump == theirs.dump
                assert ours.table == theirs.table
                assert ours.schema == theirs.schema
                assert ours.dangling == theirs.dangling
                assert ours.slots == theirs.slots, (name, scenario, sequence, step)
                stale = bool(live.sandbox.violations(name))
                assert bool(lab.sandbox.violations(name)) == stale
                SEEN["stale"] += stale
        for side in (lab, live):
            for handle in side.handles.values():
                handle.release()
