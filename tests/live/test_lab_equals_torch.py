"""The lab engine under `torch-2.13` and the running PyTorch, side by side on generated scenarios and sequences."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import RegistrationError
from dispatchlab.explore.protocol import Handle, Sandbox
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.model.registration import Registration
from tests.effort import examples
from tests.live.generated_scenarios import OPERATORS, registrations


class Side:
    """One engine on its way through a sequence."""

    def __init__(self, sandbox: Sandbox, scenario: list[Registration]) -> None:
        self.sandbox, self.scenario = sandbox, scenario
        self.handles: dict[int, Handle] = {}

    def toggle(self, index: int) -> str:
        """Register or release; returns `registered`, `released` or the kind of the refusal."""
        handle = self.handles.pop(index, None)
        if handle is not None:
            handle.release()
            return "released"
        try:
            self.handles[index] = self.sandbox.register(self.scenario[index])
        except RegistrationError as error:
            return str(error.kind)
        return "registered"


SEEN: Counter[str] = Counter()


@settings(examples(2000), suppress_health_check=list(HealthCheck))
@given(st.lists(registrations, min_size=1, max_size=6), st.data())
@pytest.mark.filterwarnings("ignore")
def test_dump_table_slots_and_outcomes_are_equal_after_every_step(
    scenario: list[Registration], data: st.DataObject
) -> None:
    sequence = data.draw(st.lists(st.integers(0, len(scenario) - 1), min_size=1, max_size=12))
    with LocalEngine().sandbox() as live_sandbox:
        lab, live = Side(Dispatcher("torch-2.13"), scenario), Side(live_sandbox, scenario)
        for step in sequence:
            expected, found = live.toggle(step), lab.toggle(step)
            SEEN[expected] += 1
            assert found == expected, (scenario[step], sequence)
            for name in OPERATORS:
                theirs, ours = live.sandbox.snapshot(name), lab.sandbox.snapshot(name)
                assert ours.dump == theirs.dump
                assert ours.table == theirs.table
                assert ours.schema == theirs.schema
                assert ours.dangling == theirs.dangling
                stale = bool(live.sandbox.violations(name))
                assert bool(lab.sandbox.violations(name)) == stale
                SEEN["stale"] += stale
        for side in (lab, live):
            for handle in side.handles.values():
                handle.release()


def test_the_generated_sequences_reach_every_outcome() -> None:
    wanted = {"registered", "released", "duplicate_def", "schema_mismatch", "too_many_arguments", "stale"}
    assert wanted <= set(SEEN)
