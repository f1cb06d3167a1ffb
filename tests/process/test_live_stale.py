"""Stale slots of the running PyTorch, which its own dumps cannot show, found by the live engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.live.sandbox import observation
from dispatchlab.live.sandbox.observation import STALE
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.live.worker.engine import SLOTS_NOTE, LiveEngine
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import Registration
from dispatchlab.model.slot_set import ALIAS_SLOTS, NESTED_TENSOR_SLOTS, keys_of
from dispatchlab.prover.result import Flaw, Verdict
from tests.live.live_registrations import BY_REFERENCE, BY_VALUE, FALLTHROUGH, FOO, define, impl
from tests.live.native_extension import native_kernels

CIA, CEA = K.CompositeImplicitAutograd, K.CompositeExplicitAutograd


@pytest.fixture(scope="module")
def engine() -> Iterator[LiveEngine]:
    with LiveEngine() as engine:
        yield engine


@pytest.mark.parametrize(
    ("second", "stale"),
    [
        (CEA, {*map(str, keys_of(NESTED_TENSOR_SLOTS | ALIAS_SLOTS[K.Autograd]))}),
        (K.QuantizedCPU, {"AutogradOther"}),
        (K.NestedTensorCPU, {"AutogradNestedTensor"}),
    ],
    ids=["CEA", "QuantizedCPU", "NestedTensorCPU"],
)
def test_a_composite_kernel_that_comes_first_stays_in_slots_that_are_not_its_own(
    engine: LiveEngine, second: K, stale: set[str]
) -> None:
    found = engine.explore([impl(CIA, "cia"), impl(second, "second")], [FOO])
    assert found.verdict is Verdict.ORDER_DEPENDENT
    counterexample = found.counterexample
    assert counterexample is not None
    assert (counterexample.flaw, counterexample.expected_sequence, counterexample.actual_sequence) == (
        Flaw.NON_COMMUTING,
        (1, 0),
        (0, 1),
    )
    assert ", table" not in counterexample.diff
    shown = {
        line[1:].partition(": ")[0] for line in counterexample.diff.splitlines() if line.endswith(": cia [math kernel]")
    }
    assert shown == stale


def test_two_kernels_that_do_not_meet_are_not_violated(engine: LiveEngine) -> None:
    found = engine.explore([define(), impl(K.CPU, "cpu"), impl(K.AutogradCPU, "autograd")], [FOO])
    assert found.verdict is Verdict.NO_VIOLATION_FOUND
    assert (found.sets, found.passes) == (8, 8)
    assert found.edges >= 8 * 3 * 8


def test_reading_few_tables_finds_what_there_is(engine: LiveEngine) -> None:
    violated = engine.explore([define(), impl(CIA, "a"), impl(CEA, "b"), impl(K.Autograd, "c")], [FOO])
    quiet = engine.explore([define(), impl(K.CPU, "a"), impl(K.CUDA, "b"), impl(K.Autograd, "c")], [FOO])
    assert violated.counterexample is not None
    assert (violated.counterexample.expected_sequence, violated.counterexample.actual_sequence) == ((2, 1), (1, 2))
    assert (quiet.verdict, quiet.sets) == (Verdict.NO_VIOLATION_FOUND, 16)


def test_two_kernels_of_one_type_are_distinguished_in_the_slots() -> None:
    scenario: list[Registration] = [
        impl(K.Autograd, "old", BY_REFERENCE),
        impl(CIA, "composite", BY_REFERENCE),
        impl(CEA, "explicit", BY_REFERENCE),
    ]
    with LocalEngine().sandbox() as sandbox:
        for registration in scenario:
            sandbox.register(registration)
        (violation,) = sandbox.violations(FOO)
        slots = sandbox.snapshot(FOO).slots
    assert violation.rule == STALE
    assert slots is not None
    assert "AutogradCPU: composite [math kernel]\n" in slots


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "memory_layout", lambda: None)


@pytest.mark.usefixtures("unreadable")
def test_without_reading_memory_a_stale_slot_is_found_by_which_slots_are_filled() -> None:
    with LocalEngine().sandbox() as sandbox:
        sandbox.register(impl(CIA, "cia"))
        sandbox.register(impl(CEA, "cea"))
        (violation,) = sandbox.violations(FOO)
        assert violation.rule == STALE
        assert "NestedTensorCPU" in violation.keys


@pytest.mark.usefixtures("unreadable")
def test_without_reading_memory_a_stale_slot_is_found_by_the_check_of_pytorch() -> None:
    with LocalEngine().sandbox() as sandbox:
        sandbox.register(impl(CIA, "cia"))
        sandbox.register(impl(K.QuantizedCPU, "quantized"))
        (violation,) = sandbox.violations(FOO)
        assert "INTERNAL ASSERT FAILED" in violation.detail


def test_a_fallthrough_that_stays_in_a_slot_is_named() -> None:
    with LocalEngine().sandbox() as sandbox:
        sandbox.register(impl(CIA, "skip", FALLTHROUGH))
        sandbox.register(impl(K.QuantizedCPU, "quantized"))
        assert "AutogradOther: fallthrough skip [math kernel]\n" in (sandbox.snapshot(FOO).slots or "")


def test_the_signature_of_a_kernel_that_is_gone_refuses_another() -> None:
    scenario: list[Registration] = [define(), impl(K.CPU, "k1", BY_REFERENCE), impl(K.CPU, "k2", BY_VALUE)]
    with LiveEngine(native=native_kernels()) as engine:
        found = engine.explore(scenario, [FOO])
        assert found.verdict is Verdict.ORDER_DEPENDENT
        counterexample = found.counterexample
        assert counterexample is not None
        assert (counterexample.expected_sequence, counterexample.actual_sequence) == ((0, 2), (0, 1, ~1, 2))
        assert "signature_mismatch" in counterexample.diff


@pytest.mark.parametrize("imports", [(), ("tests.live.unreadable_slots",)])
def test_every_verdict_says_when_the_slots_were_not_read(imports: tuple[str, ...]) -> None:
    one = impl(K.CPU, "fn_1")
    with LiveEngine(imports=imports) as engine:
        found = engine.explore([one], [FOO])
    assert found.verdict is Verdict.NO_VIOLATION_FOUND
    assert (SLOTS_NOTE in found.notes) is bool(imports)
