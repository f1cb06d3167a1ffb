"""The engine as first proposed: a catch-all bucket, repeated defs, the rule of alias kinds."""

from __future__ import annotations

from itertools import permutations

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import ALIAS_KEYS
from dispatchlab.model.registration import AliasKind, Registration
from tests.engine_shorthand import (
    BOXED,
    FALLTHROUGH,
    FOO,
    K,
    define,
    fallback,
    impl,
    kind_of,
    refused,
    slots,
    state,
    typed,
)

PURE, FROM_SCHEMA = AliasKind.PURE_FUNCTION, AliasKind.FROM_SCHEMA


@pytest.fixture
def dispatcher() -> Dispatcher:
    return Dispatcher.for_scenario("pr35061")


def test_look_up_is_kernel_then_fallback_then_catch_all(dispatcher: Dispatcher) -> None:
    kernel = dispatcher.register(impl(K.CPU, "cpu"))
    everybody = dispatcher.register(fallback(K.CPU, "fb"))
    other = dispatcher.register(fallback(K.CUDA, "fb"))
    catch_all = dispatcher.register(impl(None, "all"))
    keys = (K.CPU, K.CUDA, K.XLA, K.Undefined, K.Tracer)
    assert slots(dispatcher, *keys) == {
        "CPU": "cpu [kernel]",
        "CUDA": "fb [backend fallback]",
        "XLA": "all [catchall kernel]",
        "Undefined": "all [catchall kernel]",
        "Tracer": "all [catchall kernel]",
    }
    kernel.release()
    other.release()
    assert slots(dispatcher, K.CPU, K.CUDA) == {"CPU": "fb [backend fallback]", "CUDA": "all [catchall kernel]"}
    catch_all.release()
    assert dispatcher.find_op(FOO) is None
    assert not everybody.is_released


def test_a_fallback_that_falls_through_makes_way_for_the_catch_all(dispatcher: Dispatcher) -> None:
    handles = [dispatcher.register(fallback(K.CPU, "skip", FALLTHROUGH)), dispatcher.register(impl(None, "all"))]
    assert slots(dispatcher, K.CPU) == {"CPU": "all [catchall kernel]"}
    assert len(handles) == 2


def test_there_are_no_alias_keys_but_autograd(dispatcher: Dispatcher) -> None:
    others = [key for key in ALIAS_KEYS if key is not K.Autograd]
    assert [kind_of(dispatcher, impl(key)) for key in others] == [ErrorKind.UNKNOWN_KEY] * 5
    assert [kind_of(dispatcher, fallback(key)) for key in others] == [ErrorKind.UNKNOWN_KEY] * 5


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_the_kernel_of_autograd_comes_behind_own_kernels_and_before_fallbacks(
    dispatcher: Dispatcher, order: tuple[int, ...]
) -> None:
    registrations = (
        impl(K.Autograd, "all of autograd"),
        impl(K.AutogradCPU, "own"),
        fallback(K.AutogradCUDA, "skip", FALLTHROUGH),
        impl(None, "catch-all"),
    )
    handles = {at: dispatcher.register(registrations[at]) for at in order}
    keys = (K.CPU, K.AutogradCPU, K.AutogradCUDA, K.AutogradOther)
    full = {
        "CPU": "catch-all [catchall kernel]",
        "AutogradCPU": "own [kernel]",
        "AutogradCUDA": "all of autograd [autograd kernel]",
        "AutogradOther": "all of autograd [autograd kernel]",
    }
    assert slots(dispatcher, *keys) == full
    dispatcher.check_invariants()
    view = dispatcher.explain(FOO)
    assert view is not None
    assert "AutogradCUDA" not in view.skipped
    handles[0].release()
    dispatcher.check_invariants()
    assert slots(dispatcher, *keys) == {**dict.fromkeys(full, full["CPU"]), "AutogradCPU": "own [kernel]"}
    view = dispatcher.explain(FOO)
    assert view is not None
    assert view.skipped == ("AutogradCUDA",)


def test_every_view_prints_schemas_as_2020_did(dispatcher: Dispatcher) -> None:
    handles = [dispatcher.register(define(debug="def_foo")), dispatcher.register(impl(None, "all", typed()))]
    view = dispatcher.explain(FOO)
    assert view is not None
    assert view.schema == dispatcher.snapshot(FOO).schema == "test::foo(Tensor x) -> (Tensor)"
    assert [kernel.inferred for kernel in view.kernels] == ["(Tensor _0) -> (Tensor _0)"]
    assert f"schema: {view.schema}\n" in dispatcher.dump(FOO)
    assert len(handles) == 2


def test_equal_defs_are_merged_and_the_schema_goes_with_the_last(dispatcher: Dispatcher) -> None:
    orders = 0
    before = state(dispatcher)
    for order in permutations(range(3)):
        handles = [dispatcher.register(define(debug=str(index))) for index in range(3)]
        assert (dispatcher.def_count(FOO), dispatcher.def_and_impl_count(FOO)) == (3, 3)
        for released, index in enumerate(order):
            assert dispatcher.find_schema(FOO) is not None
            handles[index].release()
            assert dispatcher.def_count(FOO) == 2 - released
        assert state(dispatcher) == before
        orders += 1
    assert orders == 6


def test_a_def_with_another_schema_is_refused_with_both_of_them(dispatcher: Dispatcher) -> None:
    handle = dispatcher.register(define(debug="first"))
    error = refused(dispatcher, define("test::foo() -> ()", "second"))
    assert error.kind is ErrorKind.SCHEMA_CONFLICT
    assert error.facts == {
        "operator": "test::foo",
        "schema": "test::foo() -> ()",
        "debug": "second",
        "other_schema": "test::foo(Tensor x) -> Tensor",
        "other_debug": "first",
    }
    assert not handle.is_released


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (None, None, "CONSERVATIVE (default)"),
        (PURE, PURE, "PURE_FUNCTION"),
        (PURE, None, "PURE_FUNCTION"),
        (None, PURE, None),
        (PURE, FROM_SCHEMA, None),
        (None, AliasKind.CONSERVATIVE, None),
    ],
)
def test_alias_kinds_merge_only_when_the_explicit_one_comes_first(
    dispatcher: Dispatcher, first: AliasKind | None, second: AliasKind | None, kept: str | None
) -> None:
    handles = [dispatcher.register(define(debug="one", alias=first))]
    if kept is None:
        error = refused(dispatcher, define(debug="two", alias=second))
        assert error.kind is ErrorKind.ALIAS_KIND_CONFLICT
        assert error.facts == {
            "operator": "test::foo",
            "alias_kind": str(second or "default"),
            "debug": "two",
            "other_alias_kind": str(first or "default"),
            "other_debug": "one",
        }
        assert dispatcher.def_count(FOO) == 1
        return
    handles.append(dispatcher.register(define(alias=second)))
    assert dispatcher.dump(FOO).splitlines()[2] == f"alias analysis kind: {kept}"
    handles[0].release()
    assert dispatcher.dump(FOO).splitlines()[2] == f"alias analysis kind: {kept}"


def test_kernels_are_checked_whichever_side_comes_first_and_a_refusal_stores_nothing(dispatcher: Dispatcher) -> None:
    two = impl(K.CPU, "two", typed("(Tensor _0, Tensor _1) -> Tensor _0"))
    outcomes = []
    pair: tuple[Registration, ...] = (define(), two)
    for order in permutations(pair):
        handles: list[RegistrationHandle] = []
        for one in order:
            before = state(dispatcher)
            try:
                handles.append(dispatcher.register(one))
            except RegistrationError as error:
                outcomes.append((error.kind, error.facts["reason"], state(dispatcher) == before))
    expected = (ErrorKind.SCHEMA_MISMATCH, "The number of arguments is different. 1 vs 2.", True)
    assert outcomes == [expected, expected]


def test_a_fallback_is_never_for_the_catch_all(dispatcher: Dispatcher) -> None:
    assert kind_of(dispatcher, fallback(None)) is ErrorKind.FALLBACK_WITHOUT_KEY
    assert kind_of(dispatcher, fallback(K.Undefined, "", BOXED)) is ErrorKind.FALLBACK_WITHOUT_KEY
