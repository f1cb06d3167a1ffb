"""What survives the release of its cause: a lot in PyTorch 2.13, nothing under strict semantics."""

from __future__ import annotations

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import ErrorKind
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Kernel, KernelForm, Registration
from tests.engine_shorthand import (
    BOXED,
    FOO,
    K,
    define,
    each_semantics,
    fallback,
    impl,
    inferred,
    kind_of,
    refused,
    rows,
    slots,
    state,
    typed,
)

BY_REFERENCE = typed("(Tensor _0) -> Tensor _0", "at::Tensor (at::Tensor const&)")
BY_VALUE = typed("(Tensor _0) -> Tensor _0", "at::Tensor (at::Tensor)")
SYMINT = Kernel(KernelForm.UNBOXED, inferred("(SymInt _0) -> Tensor _0"), "at::Tensor (c10::SymInt)", symint=True)
SYMINT_2 = Kernel(KernelForm.UNBOXED, inferred("(SymInt _0) -> Tensor _0"), "at::Tensor (c10::SymInt&)", symint=True)


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_signatures_must_agree_even_when_both_give_the_same_schema(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    handle = dispatcher.register(impl(K.CPU, "a", BY_REFERENCE))
    error = refused(dispatcher, impl(K.CUDA, "b", BY_VALUE))
    assert error.kind is ErrorKind.SIGNATURE_MISMATCH
    assert error.facts == {
        "operator": "test::foo",
        "signature": "at::Tensor (at::Tensor)",
        "debug": "b",
        "key": "CUDA",
        "other_signature": "at::Tensor (at::Tensor const&)",
        "other_debug": "a",
        "other_key": "CPU",
    }
    assert not handle.is_released


def test_signatures_are_not_compared_in_2020() -> None:
    dispatcher = Dispatcher("pr35061")
    handles = [dispatcher.register(impl(K.CPU, "a", BY_REFERENCE)), dispatcher.register(impl(K.CUDA, "b", BY_VALUE))]
    assert dispatcher.def_and_impl_count(FOO) == len(handles)


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_symbolic_integer_kernels_have_a_signature_of_their_own(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    handles = [dispatcher.register(impl(K.CPU, "a", BY_REFERENCE)), dispatcher.register(impl(K.CUDA, "b", SYMINT))]
    error = refused(dispatcher, impl(K.XLA, "c", SYMINT_2))
    assert (error.kind, error.facts["other_debug"]) == (ErrorKind.SIGNATURE_MISMATCH, "b")
    assert len(handles) == 2


def test_a_signature_mismatch_masks_a_schema_mismatch() -> None:
    dispatcher = Dispatcher("strict")
    handles = [dispatcher.register(define()), dispatcher.register(impl(K.CPU, "a", BY_REFERENCE))]
    assert refused(dispatcher, impl(K.CUDA, "b", typed("(int _0) -> int _0"))).kind is ErrorKind.SIGNATURE_MISMATCH
    handles[1].release()
    assert refused(dispatcher, impl(K.CUDA, "b", typed("(int _0) -> int _0"))).kind is ErrorKind.SCHEMA_MISMATCH


def test_a_signature_outlives_its_kernel_in_pytorch_only() -> None:
    futures = {}
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher(semantics)
        gone = dispatcher.register(impl(K.CPU, "a", BY_REFERENCE))
        stays = dispatcher.register(impl(K.CUDA, "b", BOXED))
        gone.release()
        scratch = Dispatcher(semantics)
        same = scratch.register(impl(K.CUDA, "b", BOXED))
        assert dispatcher.dump(FOO) == scratch.dump(FOO)
        later = impl(K.XLA, "c", BY_VALUE)
        futures[semantics] = (kind_of(dispatcher, later), kind_of(scratch, later))
        assert [stays.is_released, same.is_released] == [False, False]
    assert futures == {"strict": (None, None), "torch-2.13": (ErrorKind.SIGNATURE_MISMATCH, None)}


def test_a_kernel_that_is_refused_poisons_the_operator_in_pytorch_only() -> None:
    futures = {}
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher(semantics)
        definition = dispatcher.register(define())
        before = dispatcher.dump(FOO)
        first = refused(dispatcher, impl(K.CPU, "two", typed("(Tensor _0, Tensor _1) -> Tensor _0")))
        assert first.kind is ErrorKind.SCHEMA_MISMATCH
        assert dispatcher.dump(FOO) == before
        futures[semantics] = kind_of(dispatcher, impl(K.CPU, "one", BY_REFERENCE))
        assert not definition.is_released
    assert futures == {"strict": None, "torch-2.13": ErrorKind.SIGNATURE_MISMATCH}


def test_dropping_the_def_does_not_heal_pytorch_while_a_kernel_keeps_the_operator() -> None:
    dispatcher = Dispatcher("torch-2.13")
    stays = dispatcher.register(impl(K.CUDA, "b", BOXED))
    with dispatcher.register(define()):
        dispatcher.register(impl(K.CPU, "a", BY_REFERENCE)).release()
    with dispatcher.register(define()):
        assert kind_of(dispatcher, impl(K.CPU, "c", BY_VALUE)) is ErrorKind.SIGNATURE_MISMATCH
    stays.release()
    assert kind_of(dispatcher, impl(K.CPU, "c", BY_VALUE)) is None


TOO_MANY = define(f"test::foo({', '.join(f'Tensor x{i}' for i in range(70))}) -> Tensor")


def test_a_def_that_fails_late_leaves_a_ghost_in_pytorch_only() -> None:
    for semantics in ("strict", "torch-2.13", "pr35061"):
        dispatcher = Dispatcher(semantics)
        before = state(dispatcher)
        assert refused(dispatcher, TOO_MANY).kind is ErrorKind.TOO_MANY_ARGUMENTS
        if semantics != "torch-2.13":
            assert state(dispatcher) == before
            continue
        assert dispatcher.find_op(FOO) == FOO
        assert dispatcher.dump(FOO) == "name: test::foo\nschema: (none)\n"
        assert dispatcher.dangling_impls() == (FOO,)
        assert (dispatcher.def_count(FOO), dispatcher.def_and_impl_count(FOO)) == (0, 0)
        dispatcher.register(impl(K.CPU, "fn")).release()
        assert state(dispatcher) == before


@each_semantics
def test_the_engine_says_why_two_states_of_the_same_registrations_differ(semantics: str) -> None:
    registrations: list[Registration] = [
        impl(K.CPU, "a", BY_REFERENCE),
        impl(K.CUDA, "b", BOXED),
        impl(None, "math"),
        impl(K.QuantizedCPU, "q"),
        TOO_MANY,
    ]
    space = LabEngine(semantics).space(registrations, [FOO])

    def after(*sequence: int) -> object:
        now = space.empty()
        for step in sequence:
            now = space.register(now, step)[0] if step >= 0 else space.release(now, ~step)
        return now

    def why(left: object, right: object) -> tuple[str, ...]:
        assert isinstance(left, type(space.empty()))
        assert isinstance(right, type(space.empty()))
        return space.why(left, right)

    found = [why(after(1), after(0, 1, ~0)), why(after(3, 2), after(2, 3)), why(after(), after(4))]
    expected = {
        "strict": [(), (), ()],
        "pr35061": [(), (), ()],
        "torch-2.13": [
            ("the signature at::Tensor (at::Tensor const&) of kernel a at CPU is still held against test::foo",),
            ("AutogradOther of test::foo was not refreshed: calls use the old entry",),
            ("the operator test::foo is there after the other order alone, with no registration",),
        ],
    }
    assert found == expected[semantics]


def test_stale_slots_of_pytorch_are_seen_in_the_slots_and_not_in_the_table() -> None:
    cases = {(None, K.CompositeExplicitAutograd): 34, (None, K.QuantizedCPU): 1, (None, K.SparseCsrMeta): 1}
    cases |= {(None, K.NestedTensorCPU): 1, (None, K.CPU): 0, (None, K.FPGA): 0}
    seen = 0
    for (first, second), stale in cases.items():
        dispatchers = {name: [Dispatcher(name), Dispatcher(name)] for name in ("strict", "torch-2.13")}
        for name, (one, other) in dispatchers.items():
            pair = (impl(first, "first"), impl(second, "second"))
            handles = [one.register(pair[0]), one.register(pair[1]), other.register(pair[1]), other.register(pair[0])]
            assert one.dump(FOO) == other.dump(FOO)
            assert rows(one) == rows(other)
            left, right = slots(one), slots(other)
            differing = [key for key in {*left, *right} if left.get(key) != right.get(key)]
            assert len(differing) == (stale if name == "torch-2.13" else 0)
            assert right == rows(other)
            assert bool(one.violations(FOO)) == bool(differing)
            seen += len(handles)
    assert seen == 48


def test_a_stale_slot_heals_with_the_next_refresh() -> None:
    dispatcher = Dispatcher("torch-2.13")
    handles = [dispatcher.register(impl(None, "math")), dispatcher.register(impl(K.QuantizedCPU, "q"))]
    assert len(dispatcher.violations(FOO)) == 1
    with dispatcher.register(impl(K.AutogradOther, "any")):
        assert dispatcher.violations(FOO) == ()
    assert dispatcher.violations(FOO) == ()
    assert len(handles) == 2


def test_a_release_of_a_kernel_without_a_key_refreshes_its_alias_only() -> None:
    dispatcher = Dispatcher("torch-2.13")
    everywhere = dispatcher.register(fallback(K.AutogradIPU, "fb"))
    handle = dispatcher.register(impl(None, "math", operator=OperatorName("test", "foo")))
    keep = dispatcher.register(define())
    handle.release()
    assert slots(dispatcher, K.AutogradIPU, K.CPU) == {"AutogradIPU": "fb [backend fallback]"}
    assert [everywhere.is_released, keep.is_released] == [False, False]
