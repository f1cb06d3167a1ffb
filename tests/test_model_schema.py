"""Schemas as text and as values: what is accepted, what is refused, and what is printed."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.errors import ErrorKind, ParseError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import (
    INT,
    TENSOR,
    AliasInfo,
    Argument,
    Default,
    FunctionSchema,
    ListType,
    OptionalType,
    SimpleType,
    UnionType,
    clone_with_name,
    union_of,
)
from dispatchlab.model.schema_parser import parse_inferred, parse_name, parse_schema, parse_schema_or_name

DATA = Path(__file__).parent / "data"
CASES: dict[str, Any] = json.loads((DATA / "schemas.json").read_text())
CORPUS = (DATA / "torch-2.13-schemas.txt").read_text().splitlines()
ALIAS_SETS = re.compile(r"[\w*]+(?:\|[\w*]+)+")


def sorted_sets(text: str) -> str:
    return ALIAS_SETS.sub(lambda sets: "|".join(sorted(sets[0].split("|"), key=lambda name: (name == "*", name))), text)


def test_every_schema_of_torch_reads_and_prints_back_to_the_character() -> None:
    different = [text for text in CORPUS if str(parse_schema(text)) != text]
    assert len(CORPUS) == 3598
    assert [text.partition("(")[0] for text in different] == ["static_runtime::select_tensor"]
    assert [str(parse_schema(text)) for text in different] == [sorted_sets(text) for text in different]


@pytest.mark.parametrize("text", CASES["schema"])
def test_a_schema_is_accepted_or_refused_as_recorded(text: str) -> None:
    recorded = CASES["schema"][text]
    if "ok" in recorded:
        assert str(parse_schema(text)) == sorted_sets(recorded["ok"])
    else:
        with pytest.raises(ParseError) as refused:
            parse_schema(text)
        assert refused.value.kind is ErrorKind.OTHER


@pytest.mark.parametrize("text", CASES["name"])
def test_a_name_is_accepted_or_refused_as_recorded(text: str) -> None:
    recorded = CASES["name"][text]
    if "ok" in recorded:
        name = parse_name(text)
        assert [name.qualified, name.overload, str(name)] == recorded["ok"]
    else:
        kinds = {"but function schema was given": ErrorKind.NOT_A_NAME, "is not a legal": ErrorKind.ILLEGAL_OVERLOAD}
        with pytest.raises(ParseError) as refused:
            parse_name(text)
        expected = [kind for fragment, kind in kinds.items() if fragment in recorded["error"]]
        assert [refused.value.kind] == (expected or [ErrorKind.OTHER])


@pytest.mark.parametrize("text", CASES["schema_or_name"])
def test_either_is_accepted_or_refused_as_recorded(text: str) -> None:
    recorded = CASES["schema_or_name"][text]
    if "ok" in recorded:
        found = parse_schema_or_name(text)
        assert f"{'schema' if isinstance(found, FunctionSchema) else 'name'}:{found}" == recorded["ok"]
    else:
        with pytest.raises(ParseError):
            parse_schema_or_name(text)


def test_the_recorded_cases_are_all_there() -> None:
    assert {what: len(cases) for what, cases in CASES.items()} == {
        "schema": 59,
        "name": 15,
        "schema_or_name": 4,
        "diff": 24,
    }


def test_a_name_where_a_schema_is_wanted_has_its_own_kind() -> None:
    with pytest.raises(ParseError) as refused:
        parse_schema("ns::foo")
    assert refused.value.kind is ErrorKind.NOT_A_SCHEMA


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("f(int x=0x10) -> ()", "f(int x=0) -> ()"),
        ("f(int x=1e3) -> ()", "f(int x=1000.) -> ()"),
        ("f(Scalar x=1E3) -> ()", "f(Scalar x=1) -> ()"),
        ("f(float x=1e22) -> ()", "f(float x=1e+22) -> ()"),
        ("f(float x=1e17) -> ()", "f(float x=100000000000000000.) -> ()"),
        ("f(float x=9223372036854775808) -> ()", "f(float x=9.2233720368547758e+18) -> ()"),
        ("f(float x=-0.0) -> ()", "f(float x=0.) -> ()"),
        ("f(float x=0.1) -> ()", "f(float x=0.10000000000000001) -> ()"),
        ("f(complex x=-2j) -> ()", "f(complex x=0.-2.j) -> ()"),
        ("f(complex x=12) -> ()", "f(complex x=0.+1.j) -> ()"),
        ("f(ScalarType x=float, Layout y=strided) -> ()", "f(ScalarType x=6, Layout y=0) -> ()"),
        ("f(ScalarType x=int, ScalarType? y=bfloat16) -> ()", "f(ScalarType x=3, ScalarType? y=15) -> ()"),
        ("f(ScalarType[] x=[uint8, strided]) -> ()", "f(ScalarType[] x=[0, 0]) -> ()"),
        ("f(int x=int) -> ()", None),
        ("f(int[2] x=[1,1]) -> ()", "f(int[2] x=1) -> ()"),
        ("f(SymInt[2] x=1) -> ()", "f(SymInt[2] x=[1, 1]) -> ()"),
        ("f(Device x='cuda:1') -> ()", "f(Device x=cuda:1) -> ()"),
        ("f(Device x='cuda:255') -> ()", "f(Device x=cuda) -> ()"),
        ("f(str x='''a\"b''') -> ()", 'f(str x="a\\"b") -> ()'),
        ('f(str x="\\101\\001") -> ()', 'f(str x="A\\001") -> ()'),
        ('f(str x="\\377") -> ()', 'f(str x="\\00/") -> ()'),
        ('f(str x="é") -> ()', 'f(str x="\\0)+\\/.)") -> ()'),
        ("f(float x='s') -> ()", "f(float x=s) -> ()"),
        ("f(int?? x) -> ()", "f(int? x) -> ()"),
        ("f(Scalar?? x) -> ()", "f(Union(Scalar)? x) -> ()"),
        ("f(Union(str, int) x) -> ()", "f(Union(int, str) x) -> ()"),
        ("f(Union(int, None) x) -> ()", "f(int? x) -> ()"),
        ("f(Union(str, int)? x) -> ()", "f(Union(int, str)? x) -> ()"),
        ("f(Union(Scalar, str) x) -> ()", "f(Union(, str, Scalar) x) -> ()"),
        ("f(Union(Scalar, Tensor) x) -> ()", "f(Union(TensorScalar) x) -> ()"),
        ("f((ScalarType, SymInt[]) x) -> ()", "f((int, int[]) x) -> ()"),
        ("f(Dict(SymInt, Tensor(a!)) x) -> ()", "f(Dict(int, Tensor) x) -> ()"),
        ("f(Tensor! x, Tensor! y) -> ()", "f(Tensor($0! -> ) x, Tensor($1! -> ) y) -> ()"),
        ("f(Tensor(a!)?[] x) -> ()", "f(Tensor?(a!)[] x) -> ()"),
        ("f(Tensor(a!)[][] x) -> ()", "f(Tensor[](!)[] x) -> ()"),
        ("f(Tensor(a -> *|b|*) x) -> ()", None),
        ("f(Tensor(a|*) x) -> ()", "f(Tensor(a|*) x) -> ()"),
        ("f(Tensor(b! -> c|b|a) x) -> ()", "f(Tensor(b! -> a|b|c) x) -> ()"),
        ("f() -> ((int, int)[])", "f() -> ((int, int)[])"),
        ("f() -> (...)", "f() -> ..."),
        ("f() -> (Tensor x, ...)", "f() -> (Tensor x, ...)"),
        ("f(*, ...) -> ()", "f(...) -> ()"),
        ("f(int x, # why\n  int y) -> \\\n ()\n", "f(int x, int y) -> ()"),
        ("f(int x) ->\n()", None),
        ("f(int x) -> ()\ng() -> ()", None),
        ("f(int x) -> () # type: no", None),
        ("f(a.b x) -> a.b", "f(a.b x) -> a.b"),
    ],
)
def test_a_text_prints_as_upstream_prints_it(text: str, printed: str | None) -> None:
    if printed is None:
        with pytest.raises(ParseError):
            parse_schema(text)
    else:
        assert str(parse_schema(text)) == printed


def test_in_2020_returns_stood_in_parentheses() -> None:
    texts = ["f(Tensor x) -> Tensor", "f() -> ()", "f() -> (Tensor a, int b)", "f(int x, ...) -> ..."]
    assert [parse_schema(text).text_2020() for text in texts] == [
        "f(Tensor x) -> (Tensor)",
        "f() -> ()",
        "f() -> (Tensor a, int b)",
        "f(int x, ...) -> (...)",
    ]
    assert parse_inferred("(Tensor _0) -> Tensor _0").text_2020() == "(Tensor _0) -> (Tensor _0)"


def test_alias_sets_compare_as_sets() -> None:
    left, right = parse_schema("f(Tensor(a|b) x) -> Tensor(b|a)"), parse_schema("f(Tensor(b|a) x) -> Tensor(a|b)")
    assert left == right
    assert hash(left) == hash(right)
    assert left != parse_schema("f(Tensor(a) x) -> Tensor(b|a)")
    assert left.arguments[0].alias == AliasInfo(frozenset("ab"), frozenset("ab"))


def test_a_schema_is_what_its_parts_say() -> None:
    schema = parse_schema("ns::f.ov(Tensor(a!)[] x, *, int[2]? n=1) -> (Tensor out, ...)")
    inner = AliasInfo(frozenset("a"), frozenset("a"), is_write=True)
    assert schema == FunctionSchema(
        OperatorName("ns", "f", "ov"),
        (
            Argument("x", ListType(TENSOR), alias=AliasInfo(frozenset(), frozenset(), True, (inner,))),  # noqa: FBT003
            Argument("n", OptionalType(ListType(INT, 2)), Default(1), kwarg_only=True),
        ),
        (Argument("out", TENSOR),),
        is_varret=True,
    )


def test_schemas_are_frozen() -> None:
    schema = parse_schema("f(Tensor(a!) x, int n=1, str s='x') -> Tensor(a!)")
    with pytest.raises(FrozenInstanceError):
        schema.is_vararg = True  # type: ignore[misc]
    assert not hasattr(schema, "__dict__")


def test_schemas_survive_pickling() -> None:
    schema = parse_schema("f(Tensor(a!) x, int n=1, str s='x') -> Tensor(a!)")
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_defaults_of_different_types_differ() -> None:
    defaults = [Default(value) for value in (1, True, 1.0, 1 + 0j, "1", (1,), (True,), (1.0,), None, ())]
    assert len(set(defaults)) == len(defaults)
    assert Default((1, 2)) == Default((1, 2))


def test_clone_with_name_keeps_all_but_the_name() -> None:
    schema = parse_schema("f(Tensor x, *, int n=1, ...) -> ...".replace("=1", ""))
    renamed = clone_with_name(schema, OperatorName("ns", "g", "ov"))
    assert str(renamed) == "ns::g.ov(Tensor x, *, int n, ...) -> ..."
    assert clone_with_name(renamed, schema.name) == schema


def test_dispatch_arguments_are_the_four_kinds_of_tensor_argument() -> None:
    schema = parse_schema(
        "f(Tensor a, int b, Tensor? c, Tensor[] d, Tensor?[] e, Tensor[2] f, Tensor[]? g, Generator h, t i, (Tensor) j)"
        " -> Tensor"
    )
    assert f"{schema.dispatch_arguments():b}" == "111101"
    assert parse_schema("f() -> Tensor").dispatch_arguments() == 0
    many = parse_schema(f"f({', '.join(f'Tensor x{at}' for at in range(70))}) -> ()")
    assert many.dispatch_arguments() == 2**70 - 1


def test_type_variables_can_be_forbidden_but_not_in_aten() -> None:
    assert str(parse_schema("aten::f(t x) -> t", typevars=False)) == "aten::f(t x) -> t"
    with pytest.raises(ParseError):
        parse_schema("ns::f(t x) -> t", typevars=False)


def test_custom_classes_are_those_that_are_named() -> None:
    text = "f(__torch__.torch.classes.mine.Thing x) -> ()"
    assert str(parse_schema(text, custom_classes={"mine.Thing"})) == text
    with pytest.raises(ParseError):
        parse_schema(text)


def test_an_inferred_schema_has_no_name_and_reads_back() -> None:
    text = "(Tensor _0, int _1) -> (Tensor _0, int _1)"
    assert str(parse_inferred(text)) == text
    assert parse_inferred(text).name == OperatorName("", "")
    with pytest.raises(ParseError):
        parse_inferred(f"f{text}")


def test_a_union_has_one_form() -> None:
    string = SimpleType("str")
    assert union_of([string, INT]) == union_of([INT, string, INT]) == UnionType((INT, string))
    with pytest.raises(ValueError, match="two different types"):
        union_of([INT, INT])
    with pytest.raises(ValueError, match="two different types"):
        union_of([INT, SimpleType("Any")])


def test_a_size_that_upstream_would_cut_to_32_bits_is_refused() -> None:
    assert str(parse_schema("f(int[2147483647] x) -> ()")) == "f(int[2147483647] x) -> ()"
    with pytest.raises(ParseError):
        parse_schema("f(int[2147483648] x) -> ()")
    with pytest.raises(ParseError):
        parse_schema("f(int[2147483647] x=1) -> ()")
