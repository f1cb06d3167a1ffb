"""The import block of PR #35061: calls that chain, and a namespace that is only filled in."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from dispatchlab import registration_2020
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import boxed, fallthrough, unboxed
from dispatchlab.errors import ErrorKind, ParseError, RegistrationError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.registration_2020 import Import, dispatch, dispatch_autograd, schema
from tests.engine_shorthand import FOO, K, each_semantics, slots, state

Tensor = FunctionSchema  # any class: annotations are read by name


def one(x: Tensor) -> Tensor:
    return x


def untyped(x):  # type: ignore[no-untyped-def]
    return x


def kernel(*args: object) -> object:
    return args


def refusal(attempt: Any) -> ErrorKind:
    with pytest.raises(RegistrationError) as caught:
        attempt()
    return caught.value.kind


@each_semantics
def test_chained_calls_are_released_with_their_block(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    before = state(dispatcher)
    block = (
        Import("test", dispatcher=dispatcher, debug="import.py:1")
        .def_("foo(Tensor x) -> Tensor")
        .impl("foo", "CPU", one)
        .impl("foo", K.CUDA, boxed(kernel))
        .def_("bar", one)
    )
    assert [str(name) for name in dispatcher.operators()] == ["test::bar", "test::foo"]
    assert (dispatcher.def_and_impl_count("test::foo"), dispatcher.def_and_impl_count("test::bar")) == (3, 2)
    assert len(block.handles) >= 4
    assert repr(block) == "<Import test>"
    block.release()
    assert state(dispatcher) == before


def test_the_alias_kind_of_each_form_of_def() -> None:
    forms: list[tuple[Any, Any, str]] = [
        ("foo(Tensor x) -> Tensor", None, "FROM_SCHEMA"),
        (schema("foo(Tensor x) -> Tensor", AliasKind.PURE_FUNCTION), None, "PURE_FUNCTION"),
        (schema("foo(Tensor x) -> Tensor"), None, "FROM_SCHEMA"),
        (parse_schema("foo(Tensor x) -> Tensor"), None, "CONSERVATIVE (default)"),
        ("foo", one, "CONSERVATIVE"),
        (parse_name("foo"), one, "CONSERVATIVE"),
        ("foo(Tensor x) -> Tensor", one, "FROM_SCHEMA"),
        (schema("foo(Tensor x) -> Tensor", AliasKind.CONSERVATIVE), one, "CONSERVATIVE"),
    ]
    seen = []
    for given, function, expected in forms:
        dispatcher = Dispatcher.for_scenario("pr35061")
        with Import("test", dispatcher=dispatcher).def_(given, function):
            seen.append((dispatcher.dump("test::foo").splitlines()[2], f"alias analysis kind: {expected}"))
    assert [found for found, _ in seen] == [expected for _, expected in seen]
    assert len(seen) == 8


@each_semantics
def test_a_namespace_is_filled_in_where_it_is_missing_and_never_compared(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    block = Import("ns1", dispatcher=dispatcher)
    block.def_("ns2::blah(Tensor x) -> Tensor").def_("blah(Tensor x) -> Tensor").impl("ns3::blah", "CPU", one)
    assert [str(name) for name in dispatcher.operators()] == ["ns1::blah", "ns2::blah", "ns3::blah"]


@each_semantics
def test_at_top_level_every_name_is_qualified(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    block = Import(dispatcher=dispatcher).def_("test::foo(Tensor x) -> Tensor").impl("test::impl_only", "CPU", one)
    assert dispatcher.find_schema("test::foo") is not None
    assert dispatcher.find_op("test::impl_only") == OperatorName("test", "impl_only")
    assert dispatcher.find_schema("test::impl_only") is None
    attempts = [
        lambda: block.def_("foo(Tensor x) -> Tensor"),
        lambda: block.def_("foo", one),
        lambda: block.impl("foo", one),
    ]
    assert [refusal(attempt) for attempt in attempts] == [ErrorKind.UNQUALIFIED_NAME] * 3
    assert repr(block) == "<Import (top level)>"


@each_semantics
def test_a_fallback_is_accepted_at_top_level_with_a_key(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    everywhere = Import(dispatcher=dispatcher).fallback(dispatch("FPGA", boxed(kernel).debug("fb")))
    operator = Import("test", dispatcher=dispatcher).def_("foo(Tensor x) -> Tensor")
    assert slots(dispatcher, K.FPGA) == {"FPGA": "fb [backend fallback]"}
    everywhere.release()
    assert slots(dispatcher, K.FPGA) == {}
    operator.release()


@each_semantics
def test_a_fallback_in_a_namespace_without_a_key_or_at_a_taken_key_is_refused(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    everywhere = Import(dispatcher=dispatcher).fallback(dispatch("FPGA", boxed(kernel).debug("fb")))
    operator = Import("test", dispatcher=dispatcher).def_("foo(Tensor x) -> Tensor")
    assert refusal(lambda: operator.fallback(dispatch("CPU", fallthrough))) is ErrorKind.FALLBACK_WITH_NAMESPACE
    assert refusal(lambda: everywhere.fallback(fallthrough)) is ErrorKind.FALLBACK_WITHOUT_KEY
    assert refusal(lambda: everywhere.fallback(dispatch("FPGA", fallthrough))) is ErrorKind.DUPLICATE_FALLBACK


def number() -> int:
    return 1


def test_every_wrapper_makes_its_kernel_at_its_key() -> None:
    dispatcher = Dispatcher.for_scenario("pr35061")
    block = Import("test", dispatcher=dispatcher, debug="d").impl("foo", one).impl("foo", "XLA", fallthrough)
    block.impl("foo", dispatch("cuda", unboxed(one))).impl("foo", "", dispatch("CPU", number))
    block.impl("foo", "Tracer", dispatch("CPU", boxed(kernel).debug("mine")))
    assert dispatcher.dump("test::foo").splitlines()[2:] == [
        "Tracer: mine :: (none) [ boxed ]",
        "CPU: d :: () -> (int _0) [ boxed unboxed ]",
        "CUDA: d :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]",
        "XLA: d :: (none) [ fallthrough boxed ]",
        "catchall: d :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]",
    ]


def test_autograd_kernels_have_a_short_way() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    with Import("test", dispatcher=dispatcher, debug="d").impl("foo", dispatch_autograd(one)):
        assert "\nAutograd[alias]: d ::" in dispatcher.dump("test::foo")


def test_the_examples_of_the_public_module_hold() -> None:
    result = doctest.testmod(registration_2020)
    assert (result.failed, result.attempted) == (0, 12)
    assert registration_2020.Import is Import
    assert registration_2020.schema is schema


def test_what_cannot_be_a_kernel_or_a_name_is_refused() -> None:
    dispatcher = Dispatcher.for_scenario("pr35061")
    block = Import("test", dispatcher=dispatcher)
    not_a_kernel: Any = 7
    attempts = [
        (lambda: block.impl("foo", untyped), ErrorKind.CANNOT_INFER_SCHEMA),
        (lambda: block.impl("foo", not_a_kernel), ErrorKind.OTHER),
        (lambda: block.def_("foo"), ErrorKind.CANNOT_INFER_SCHEMA),
        (lambda: block.def_("foo", boxed(kernel)), ErrorKind.CANNOT_INFER_SCHEMA),
        (lambda: block.impl("foo", "CompositeExplicitAutograd", one), ErrorKind.UNKNOWN_KEY),
        (lambda: block.impl("foo", "Cpu", one), ErrorKind.UNKNOWN_KEY),
    ]
    assert [refusal(attempt) for attempt, _ in attempts] == [expected for _, expected in attempts]
    with pytest.raises(ParseError):
        block.impl("foo(Tensor x) -> Tensor", one)
    assert dispatcher.operators() == ()
    block.impl("foo", boxed(untyped))
    assert dispatcher.dangling_impls() == (FOO,)


def test_a_refused_def_with_a_kernel_leaves_nothing() -> None:
    dispatcher = Dispatcher.for_scenario("pr35061")
    block = Import("test", dispatcher=dispatcher)
    assert refusal(lambda: block.def_("foo(Tensor x, Tensor y) -> Tensor", one)) is ErrorKind.SCHEMA_MISMATCH
    assert state(dispatcher) == {}
