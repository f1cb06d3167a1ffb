"""RegisterOperators: each op is a def with its kernels, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.engine.kernel import boxed
from dispatchlab.errors import ErrorKind, ParseError, RegistrationError
from dispatchlab.model.registration import AliasKind
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.registration_2020 import DEBUG, Options, RegisterOperators
from tests.engine_shorthand import K, each_semantics, slots, state

Tensor = FunctionSchema  # any class: annotations are read by name
NAME = "_test::dummy"
SCHEMA = "_test::dummy(Tensor x) -> Tensor"


def one(x: Tensor) -> Tensor:
    return x


def two(x: Tensor, y: Tensor) -> Tensor:
    return x


def stack(*args: object) -> object:
    return args


def refusal(attempt: Any) -> RegistrationError:
    with pytest.raises(RegistrationError) as caught:
        attempt()
    return caught.value


def test_the_schema_may_stand_before_after_or_inside_the_options() -> None:
    kernels = Options().kernel("CPU", one)
    ways: list[tuple[str | None, Options]] = [
        (SCHEMA, kernels),
        (None, kernels.schema(SCHEMA)),
        (None, Options().schema(SCHEMA).kernel("CPU", one)),
        (NAME, kernels),
        (None, kernels.schema(NAME)),
    ]
    found = []
    for way in ways:
        dispatcher = Dispatcher(builtin_fallbacks=False)
        with RegisterOperators(dispatcher=dispatcher).op(*way):
            found.append(str(dispatcher.find_schema(NAME)))
    assert found == [SCHEMA] * 3 + ["_test::dummy(Tensor _0) -> Tensor _0"] * 2


def test_a_schema_without_kernels_is_an_operator() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    register = RegisterOperators(dispatcher=dispatcher)
    register.op(SCHEMA)
    assert str(dispatcher.find_schema(NAME)) == SCHEMA
    assert slots(dispatcher, operator=dispatcher.operators()[0]) == {}


def test_a_name_without_kernels_is_refused() -> None:
    register = RegisterOperators(dispatcher=Dispatcher(builtin_fallbacks=False))
    assert refusal(lambda: register.op(NAME)).kind is ErrorKind.CANNOT_INFER_SCHEMA


def test_a_schema_is_inferred_from_the_first_kernel_that_has_one() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    options = Options().kernel("CPU", boxed(stack)).kernel("CUDA", one).kernel("XLA", boxed(stack))
    register = RegisterOperators(dispatcher=dispatcher).op(NAME, options)
    assert str(dispatcher.find_schema(NAME)) == "_test::dummy(Tensor _0) -> Tensor _0"
    assert len(register.handles) == 1


CONTRADICTIONS: dict[str, tuple[Any, ErrorKind, str]] = {
    "neither schema nor name": (
        lambda register: register.op(options=Options().kernel("CPU", one)),
        ErrorKind.OTHER,
        "an op needs a schema or a name and has neither: pass one to op, or set schema in its options",
    ),
    "a name without a kernel": (
        lambda register: register.op(NAME),
        ErrorKind.CANNOT_INFER_SCHEMA,
        "the op _test::dummy gives a name alone and no kernel to infer its schema from: write the schema",
    ),
    "no kernel that can infer": (
        lambda register: register.op(NAME, Options().kernel("CPU", boxed(stack)).catch_all_kernel(boxed(stack))),
        ErrorKind.CANNOT_INFER_SCHEMA,
        "the op _test::dummy gives a name alone and none of its 2 kernels has a schema: write the schema, or add a "
        "kernel whose arguments are typed",
    ),
    "two kernels for one key": (
        lambda register: register.op(SCHEMA, Options().kernel("CPU", one).kernel("CPU", one)),
        ErrorKind.OTHER,
        "one op call for _test::dummy has two kernels for CPU: leave one out, or register it by a call of its own",
    ),
    "two catch-alls": (
        lambda register: register.op(SCHEMA, Options().catch_all_kernel(one).kernel("Undefined", one)),
        ErrorKind.OTHER,
        "one op call for _test::dummy has two catch-all kernels: leave one out, or register it by a call of its own",
    ),
    "FROM_SCHEMA with an inferred schema": (
        lambda register: register.op(NAME, Options().kernel("CPU", one).alias_analysis("FROM_SCHEMA")),
        ErrorKind.OTHER,
        "the alias kind of the op _test::dummy is FROM_SCHEMA and its schema is inferred, which says nothing about "
        "aliasing: write the schema, or choose another kind",
    ),
    "a schema twice": (
        lambda register: register.op(SCHEMA, Options().schema(NAME)),
        ErrorKind.OTHER,
        f"an op has one schema and two are given, _test::dummy and {SCHEMA}: pass it to op, or set it in the options",
    ),
    "an alias kind twice": (
        lambda register: Options().alias_analysis("CONSERVATIVE").alias_analysis(AliasKind.PURE_FUNCTION),
        ErrorKind.OTHER,
        "the options have the alias kind CONSERVATIVE already, and PURE_FUNCTION is given too: leave one out",
    ),
    "an alias kind that is none": (
        lambda register: Options().alias_analysis("PURE"),
        ErrorKind.UNKNOWN_ALIAS_KIND,
        "'PURE' is not a valid alias kind: expected one of CONSERVATIVE, FROM_SCHEMA, PURE_FUNCTION, "
        "INTERNAL_SPECIAL_CASE",
    ),
    "a key that is none": (
        lambda register: Options().kernel("Cpu", one),
        ErrorKind.UNKNOWN_KEY,
        "'Cpu' is not a dispatch key; did you mean CPU?",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_options_that_contradict_themselves_are_refused_with_a_reason(name: str) -> None:
    attempt, kind, message = CONTRADICTIONS[name]
    dispatcher = Dispatcher(builtin_fallbacks=False)
    error = refusal(lambda: attempt(RegisterOperators(dispatcher=dispatcher)))
    assert (error.kind, error.message) == (kind, message)
    assert state(dispatcher) == {}


@each_semantics
def test_an_op_whose_kernel_is_refused_leaves_no_registration(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    before = state(dispatcher)
    register = RegisterOperators(dispatcher=dispatcher)
    options = Options().kernel("CPU", one).kernel("CUDA", two)
    error = refusal(lambda: register.op(SCHEMA, options))
    assert error.kind is (ErrorKind.SCHEMA_MISMATCH if semantics == "pr35061" else ErrorKind.SIGNATURE_MISMATCH)
    assert dispatcher.find_schema(NAME) is None
    assert dispatcher.def_and_impl_count(NAME) == 0
    assert register.handles == ()
    if semantics != "torch-2.13":
        assert state(dispatcher) == before


def test_kernels_of_different_signatures_are_refused_in_either_order_and_across_calls() -> None:
    kinds = []
    for first, second in ((one, two), (two, one)):
        for keys in (("CPU", "CUDA"), ("", "CPU"), ("CPU", "")):
            options = Options()
            for key, function in zip(keys, (first, second), strict=True):
                options = options.kernel(key, function) if key else options.catch_all_kernel(function)
            register = RegisterOperators(dispatcher=Dispatcher(builtin_fallbacks=False))
            kinds.append(refusal(lambda: register.op(NAME, options)).kind)  # noqa: B023
    assert kinds == [ErrorKind.SIGNATURE_MISMATCH] * 6


def test_the_same_op_twice_is_a_second_def() -> None:
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher.for_scenario(semantics)
        register = RegisterOperators(dispatcher=dispatcher).op(SCHEMA, Options().kernel("CPU", one))
        error = refusal(lambda: register.op(SCHEMA, Options().kernel("CUDA", one)))  # noqa: B023
        assert error.kind is ErrorKind.DUPLICATE_DEF
        assert dispatcher.def_and_impl_count(NAME) == 2


def test_the_same_op_twice_is_merged_in_2020() -> None:
    old = Dispatcher.for_scenario("pr35061")
    both = RegisterOperators(dispatcher=old).op(SCHEMA, Options().kernel("CPU", one))
    both.op(SCHEMA, Options().kernel("CUDA", one))
    assert (old.def_count(NAME), old.def_and_impl_count(NAME)) == (2, 4)
    assert refusal(lambda: both.op("_test::dummy(int x) -> int")).kind is ErrorKind.SCHEMA_CONFLICT
    with pytest.warns(OverrideWarning, match="the CPU kernel of _test::dummy is overridden"):
        both.op(SCHEMA, Options().kernel("CPU", one))


@pytest.mark.parametrize(
    ("first", "second", "merges"),
    [
        (AliasKind.PURE_FUNCTION, AliasKind.PURE_FUNCTION, True),
        (AliasKind.PURE_FUNCTION, None, True),
        (None, AliasKind.PURE_FUNCTION, False),
        (AliasKind.PURE_FUNCTION, AliasKind.CONSERVATIVE, False),
    ],
)
def test_alias_kinds_of_two_ops_merge_as_those_of_two_defs(
    first: AliasKind | None, second: AliasKind | None, *, merges: bool
) -> None:
    register = RegisterOperators(dispatcher=Dispatcher.for_scenario("pr35061"))
    options = [Options() if kind is None else Options().alias_analysis(kind) for kind in (first, second)]
    register.op(SCHEMA, options[0])
    if merges:
        register.op(SCHEMA, options[1])
        assert len(register.handles) == 2
    else:
        assert refusal(lambda: register.op(SCHEMA, options[1])).kind is ErrorKind.ALIAS_KIND_CONFLICT


def test_a_kernel_that_goes_leaves_the_schema_and_the_catch_all() -> None:
    dispatcher = Dispatcher.for_scenario("pr35061")
    catch_all = RegisterOperators(dispatcher=dispatcher).op(SCHEMA, Options().catch_all_kernel(one))
    cpu = RegisterOperators(dispatcher=dispatcher).op(SCHEMA, Options().kernel("CPU", one))
    operator = dispatcher.operators()[0]
    assert slots(dispatcher, K.CPU, operator=operator) == {"CPU": f"{DEBUG} [kernel]"}
    cpu.release()
    assert slots(dispatcher, K.CPU, operator=operator) == {"CPU": f"{DEBUG} [catchall kernel]"}
    catch_all.release()
    assert dispatcher.find_schema(NAME) is None


@pytest.mark.parametrize("overload", ["default", "__name__"])
def test_an_illegal_overload_name_is_refused(overload: str) -> None:
    with pytest.raises(ParseError) as caught:
        RegisterOperators(dispatcher=Dispatcher(builtin_fallbacks=False)).op(
            f"_test::dummy.{overload}(Tensor x) -> Tensor"
        )
    assert caught.value.kind is ErrorKind.ILLEGAL_OVERLOAD
