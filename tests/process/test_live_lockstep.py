"""Lockstep: the lab engine under `torch-2.13` and the running PyTorch do the same at every step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import Registration
from dispatchlab.prover.lockstep import lockstep
from dispatchlab.prover.result import Verdict
from tests.live.live_registrations import FOO, define, impl


@pytest.fixture(scope="module")
def live() -> Iterator[LiveEngine]:
    with LiveEngine() as engine:
        yield engine


def test_a_difference_is_shown_with_the_shortest_sequence(live: LiveEngine) -> None:
    scenario: list[Registration] = [
        define(),
        impl(K.CPU, "cpu"),
        impl(K.CompositeImplicitAutograd, "cia"),
        impl(K.CompositeExplicitAutograd, "cea"),
    ]
    found = lockstep(LabEngine("strict"), live, scenario, [FOO])
    assert found.verdict is Verdict.ORDER_DEPENDENT
    counterexample = found.counterexample
    assert counterexample is not None
    # `strict` has no backend fallbacks of PyTorch, so the first def already shows another table.
    assert len(counterexample.actual_sequence) == 1
    assert ", table" in counterexample.diff


def test_an_engine_agrees_with_itself_where_order_matters() -> None:
    scenario = [impl(K.CompositeImplicitAutograd, "cia"), impl(K.CompositeExplicitAutograd, "cea")]
    lab = LabEngine("torch-2.13")
    found = lockstep(lab, lab, scenario, [FOO])
    assert (found.verdict, found.walk, found.sets) == (Verdict.NO_VIOLATION_FOUND, "lockstep", 4)
