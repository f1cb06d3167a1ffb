"""Defs, kernels and names: what is counted, what is found, and what goes when."""

from __future__ import annotations

from itertools import permutations

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Def, Impl, Kernel, NameOnly, SourceLocation
from dispatchlab.model.schema_parser import parse_schema
from tests.engine_shorthand import (
    BAR,
    BOXED,
    FALLTHROUGH,
    FOO,
    TYPED,
    K,
    define,
    each_semantics,
    impl,
    overrides_allowed,
    refused,
    state,
    typed,
)


@each_semantics
def test_counts_are_live_defs_and_live_registrations(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    seen = []
    handles = []
    for one in (define(), impl(K.CPU), impl(K.CUDA), NameOnly(FOO)):
        handles.append(dispatcher.register(one))
        seen.append((dispatcher.def_count(FOO), dispatcher.def_and_impl_count(FOO)))
    for handle in handles:
        handle.release()
        seen.append((dispatcher.def_count(FOO), dispatcher.def_and_impl_count(FOO)))
    assert seen == [(1, 1), (1, 2), (1, 3), (1, 4), (0, 3), (0, 2), (0, 1), (0, 0)]
    assert dispatcher.operators() == ()


@each_semantics
def test_the_operator_vanishes_with_the_last_of_its_registrations_in_any_order(semantics: str) -> None:
    before = state(Dispatcher(semantics))
    orders = 0
    for order in permutations(range(4)):
        dispatcher = Dispatcher(semantics)
        handles = [dispatcher.register(one) for one in (define(), impl(K.CPU), impl(None, kernel=TYPED), NameOnly(FOO))]
        for position, index in enumerate(order):
            assert (dispatcher.find_op(FOO) is None) == (position == 4)
            handles[index].release()
        assert dispatcher.find_op(FOO) is None
        assert state(dispatcher) == before
        orders += 1
    assert orders == 24


def test_a_def_that_goes_leaves_its_kernels_without_a_schema() -> None:
    dispatcher = Dispatcher()
    kernel = dispatcher.register(impl(K.CPU))
    with dispatcher.register(define()):
        assert dispatcher.find_schema(FOO) == parse_schema("test::foo(Tensor x) -> Tensor")
        assert dispatcher.dangling_impls() == ()
    assert dispatcher.find_schema(FOO) is None
    assert dispatcher.find_op("test::foo") == FOO
    assert dispatcher.dangling_impls() == (FOO,)
    kernel.release()
    assert dispatcher.dangling_impls() == ()


def test_dangling_impls_are_the_operators_without_a_schema_by_name() -> None:
    dispatcher = Dispatcher()
    handles = [
        dispatcher.register(one) for one in (impl(K.CPU), impl(K.CPU, operator=BAR), NameOnly(OperatorName("a", "b")))
    ]
    assert [str(name) for name in dispatcher.dangling_impls()] == ["a::b", "test::bar", "test::foo"]
    with dispatcher.register(define("test::bar() -> ()")):
        assert [str(name) for name in dispatcher.dangling_impls()] == ["a::b", "test::foo"]
    assert len(handles) == 3


def test_a_failed_look_up_distinguishes_no_operator_from_one_without_a_def() -> None:
    dispatcher = Dispatcher()
    handle = dispatcher.register(impl(K.CPU))
    with pytest.raises(RegistrationError) as no_def:
        dispatcher.find_schema_or_raise(FOO)
    with pytest.raises(RegistrationError) as no_operator:
        dispatcher.find_schema_or_raise("test::fooo")
    assert [caught.value.kind for caught in (no_def, no_operator)] == [ErrorKind.NO_SUCH_SCHEMA] * 2
    assert [caught.value.facts["has_impl"] for caught in (no_def, no_operator)] == ["yes", "no"]
    assert str(no_def.value) == (
        "no_such_schema: test::foo has kernels and no def: is the package that defines it imported?"
    )
    assert str(no_operator.value) == "no_such_schema: there is no operator test::fooo; did you mean test::foo?"
    assert str(dispatcher.find_op("test::foo")) == "test::foo"
    assert (dispatcher.find_schema("test::foo"), dispatcher.find_op("test::fooo")) == (None, None)
    handle.release()


def test_overloads_are_operators_of_their_own() -> None:
    dispatcher = Dispatcher()
    texts = ["test::foo(Tensor x) -> Tensor", "test::foo.a(int x) -> Tensor", "test::foo.b() -> ()"]
    handles = [dispatcher.register(define(text)) for text in texts]
    assert [str(name) for name in dispatcher.operators()] == ["test::foo", "test::foo.a", "test::foo.b"]
    assert [str(dispatcher.find_schema(name)) for name in dispatcher.operators()] == texts
    handles[0].release()
    assert [str(name) for name in dispatcher.operators()] == ["test::foo.a", "test::foo.b"]


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
@pytest.mark.parametrize("second", ["test::foo(Tensor x) -> Tensor", "test::foo() -> ()"])
def test_a_second_def_is_refused_even_when_it_is_equal_and_whatever_its_alias_kind(semantics: str, second: str) -> None:
    dispatcher = Dispatcher(semantics)
    handle = dispatcher.register(define(debug="first.py:1"))
    before = state(dispatcher)
    for alias in (None, AliasKind.PURE_FUNCTION):
        error = refused(dispatcher, define(second, "second.py:2", alias))
        assert error.kind is ErrorKind.DUPLICATE_DEF
        assert error.facts == {
            "operator": "test::foo",
            "schema": second,
            "debug": "second.py:2",
            "other_schema": "test::foo(Tensor x) -> Tensor",
            "other_debug": "first.py:1",
        }
    assert state(dispatcher) == before
    handle.release()
    dispatcher.register(define(second)).release()


@each_semantics
def test_a_def_is_checked_against_every_kernel_inactive_ones_included(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    wrong = dispatcher.register(impl(K.CPU, "two.py:1", typed("(Tensor _0, Tensor _1) -> Tensor _0")))
    with overrides_allowed():
        right = dispatcher.register(impl(K.CPU, "boxed.py:1", BOXED))
    error = refused(dispatcher, define(debug="def.py:1"))
    assert error.kind is ErrorKind.SCHEMA_MISMATCH
    assert error.facts == {
        "operator": "test::foo",
        "def_schema": "test::foo(Tensor x) -> Tensor",
        "def_debug": "def.py:1",
        "inferred_schema": "(Tensor _0, Tensor _1) -> Tensor _0",
        "inferred_debug": "two.py:1",
        "reason": "The number of arguments is different. 1 vs 2.",
    }
    assert dispatcher.find_schema(FOO) is None
    wrong.release()
    dispatcher.register(define())
    right.release()


@each_semantics
def test_a_def_that_several_kernels_contradict_is_refused_for_one_of_them(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    two = typed("(Tensor _0, Tensor _1) -> Tensor _0")
    handles = [dispatcher.register(impl(K.CPU, "one.py:1", two)), dispatcher.register(impl(K.CUDA, "two.py:1", two))]
    text = "at CPU, one of 2 such kernels, does not fit the schema of test::foo"
    assert text in refused(dispatcher, define()).message
    handles[0].release()
    assert "such kernels" not in refused(dispatcher, define()).message


@each_semantics
def test_two_kernels_are_not_compared_until_there_is_a_def(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    signature = "one for both"
    handles = [
        dispatcher.register(impl(K.CPU, "one", typed("(Tensor _0) -> Tensor _0", signature))),
        dispatcher.register(impl(K.CUDA, "two", typed("(Tensor _0, int _1) -> Tensor _0", signature))),
    ]
    assert refused(dispatcher, define()).facts["inferred_debug"] == "two"
    assert refused(dispatcher, define("test::foo(Tensor x, int y) -> Tensor")).facts["inferred_debug"] == "one"
    assert dispatcher.def_and_impl_count(FOO) == len(handles) == 2


@each_semantics
@pytest.mark.parametrize("kernel", [BOXED, FALLTHROUGH])
def test_kernels_without_a_schema_fit_every_def(semantics: str, kernel: Kernel) -> None:
    dispatcher = Dispatcher(semantics)
    handles = [
        dispatcher.register(impl(K.CPU, "", kernel)),
        dispatcher.register(define("test::foo(int x, int y) -> int")),
    ]
    handles.append(dispatcher.register(impl(K.CUDA, "", kernel)))
    assert dispatcher.def_and_impl_count(FOO) == len(handles) == 3


@each_semantics
def test_more_than_64_arguments_are_too_many(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    texts = {n: f"test::foo({', '.join(f'Tensor x{i}' for i in range(n))}) -> Tensor" for n in (64, 65)}
    dispatcher.register(define(texts[64])).release()
    error = refused(dispatcher, define(texts[65]))
    assert (error.kind, error.facts["count"]) == (ErrorKind.TOO_MANY_ARGUMENTS, "65")


@each_semantics
def test_a_def_with_a_name_alone_takes_the_schema_of_its_kernel(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    handle = dispatcher.register(Def(FOO, AliasKind.CONSERVATIVE, debug="d", kernel=TYPED, key=K.CPU))
    assert str(dispatcher.find_schema(FOO)) == "test::foo(Tensor _0) -> Tensor _0"
    assert dispatcher.def_and_impl_count(FOO) == 2
    handle.release()
    assert dispatcher.find_op(FOO) is None
    for kernel in (BOXED, FALLTHROUGH, None):
        error = refused(dispatcher, Def(FOO, AliasKind.CONSERVATIVE, kernel=kernel, key=K.CPU))
        assert (error.kind, error.facts) == (ErrorKind.CANNOT_INFER_SCHEMA, {"operator": "test::foo"})
    assert dispatcher.find_op(FOO) is None


@each_semantics
def test_the_newest_kernel_in_force_of_a_key_is_active_in_every_release_order(semantics: str) -> None:
    orders = 0
    for order in permutations(range(3)):
        dispatcher = Dispatcher(semantics)
        alive = [0, 1, 2]
        with overrides_allowed():
            handles = [dispatcher.register(impl(K.CPU, f"k{index}")) for index in alive]
        for index in order:
            handles[index].release()
            alive.remove(index)
            entry = dispatcher.operator_entry(FOO)
            if not alive:
                assert entry is None
                continue
            assert entry is not None
            lists = [[kernel.debug for kernel in kernels] for kernels in entry.kernels.values()]
            assert lists == [[f"k{i}" for i in sorted(alive, reverse=True)]]
            assert f"CPU: k{max(alive)} [kernel]\n" in dispatcher.dump_slots(FOO)
            dispatcher.check_invariants()
        orders += 1
    assert orders == 6


def test_a_kernel_without_a_key_and_one_at_undefined_are_composite() -> None:
    dispatcher = Dispatcher()
    for key in (None, K.Undefined):
        with dispatcher.register(impl(key, "k")):
            assert "CompositeImplicitAutograd[alias]: k" in dispatcher.dump(FOO)


@each_semantics
def test_call_sites_are_kept_beside_the_debug_text(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    location = SourceLocation("scenario.yaml", 7, 3)
    handle = dispatcher.register(Impl(FOO, K.CPU, BOXED, "d", location))
    view = dispatcher.explain(FOO)
    assert view is not None
    assert [kernel.location for kernel in view.kernels] == [location]
    handle.release()


def test_tags_outlive_their_def_in_pytorch_only() -> None:
    tags = {}
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher(semantics)
        kernel = dispatcher.register(impl(K.CPU))
        schema = parse_schema("test::foo(Tensor x) -> Tensor")
        seen = []
        for given in (["pointwise"], ["core"], []):
            handle = dispatcher.register(Def(schema, tags=frozenset(given)))
            entry = dispatcher.operator_entry(FOO)
            assert entry is not None
            seen.append(sorted(entry.tags))
            handle.release()
            entry = dispatcher.operator_entry(FOO)
            assert entry is not None
            seen.append(sorted(entry.tags))
        tags[semantics] = seen
        dispatcher.check_invariants()
        kernel.release()
    assert tags["strict"] == [["pointwise"], [], ["core"], [], [], []]
    assert tags["torch-2.13"] == [["pointwise"], ["pointwise"], ["core"], ["core"], [], []]


def test_a_dump_prints_the_alias_kind_of_the_def() -> None:
    dispatcher = Dispatcher()
    printed = []
    for alias in (None, *AliasKind):
        with dispatcher.register(define(alias=alias)):
            printed.append(dispatcher.dump(FOO).splitlines()[3].removeprefix("alias analysis kind: "))
    assert printed == [
        "CONSERVATIVE (default)",
        "CONSERVATIVE",
        "FROM_SCHEMA",
        "PURE_FUNCTION",
        "INTERNAL_SPECIAL_CASE",
    ]
