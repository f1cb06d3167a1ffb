"""Which changes of a schema break its callers, and the sentence for each."""

from __future__ import annotations

import pytest
from hypothesis import given

from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_compatibility import backward_break
from dispatchlab.model.schema_parser import parse_schema
from tests.effort import examples
from tests.test_model_schema_properties import schemas

BROKEN = {
    ("(Tensor x) -> Tensor", "(Tensor x, int n) -> Tensor"): "the new argument `int n` has no default",
    ("(Tensor x, int n) -> Tensor", "(Tensor x) -> Tensor"): "it lost `n`",
    ("(Tensor x) -> Tensor", "(Tensor y) -> Tensor"): "`y` stands where `x` stood",
    ("(Tensor x, int n) -> ()", "(Tensor x, *, int n) -> ()"): "`n` is keyword-only now",
    ("(Scalar x) -> ()", "(int x) -> ()"): "`x` took Scalar and takes int",
    ("(int[2] x) -> ()", "(int[] x) -> ()"): "`x` took int[2] and takes int[]",
    ("(int x=1) -> ()", "(int x=2) -> ()"): "the default of `x` was 1 and is 2",
    ("(int x=1) -> ()", "(int x) -> ()"): "the default of `x` was 1 and is none",
    ("(Tensor x) -> ()", "(Tensor(a!) x) -> ()"): "the alias annotation of `x` was none and is (a!)",
    ("() -> Tensor", "() -> (Tensor, Tensor)"): "it returned 1 value and returns 2 values",
    ("() -> ()", "() -> Tensor"): "it returned nothing and returns 1 value",
    ("() -> int", "() -> int?"): "it returned `int` and returns `int?`",
    ("() -> (int a, int b)", "() -> (int a, Any b)"): "`b` was `int b`, is `Any b`",
    ("(Tensor x) -> ()", "(Tensor x, ...) -> ()"): "a `...` came or went",
}
KEPT = [
    ("(Tensor x) -> Tensor", "(Tensor x, int n=1) -> Tensor"),
    ("(Tensor x, *, Tensor(a!) out) -> ()", "(Tensor x, int n=1, *, Tensor(a!) out) -> ()"),
    ("(Tensor x, *, int n) -> ()", "(Tensor x, int n) -> ()"),
    ("(int x) -> ()", "(Scalar? x) -> ()"),
    ("(int x) -> ()", "(SymInt x) -> ()"),
    ("() -> int?", "() -> int"),
    ("(int x) -> ()", "(int x=3) -> ()"),
]


def schema(text: str) -> FunctionSchema:
    return parse_schema(f"test::foo{text}")


@pytest.mark.parametrize(("pair", "reason"), BROKEN.items(), ids=lambda value: str(value)[:40])
def test_a_break_is_a_sentence(pair: tuple[str, str], reason: str) -> None:
    old, new = map(schema, pair)
    assert backward_break(old, new) == reason


@pytest.mark.parametrize("pair", KEPT, ids=str)
def test_callers_of_the_old_schema_can_use_the_new_one(pair: tuple[str, str]) -> None:
    old, new = map(schema, pair)
    assert backward_break(old, new) is None


def test_another_operator_is_compatible_with_nothing() -> None:
    other = parse_schema("test::bar() -> ()")
    assert backward_break(schema("() -> ()"), other) == "it was called test::foo and is called test::bar"


@given(schemas())
@examples(150)
def test_a_schema_breaks_none_of_its_own_callers(one: FunctionSchema) -> None:
    assert backward_break(one, one) is None
