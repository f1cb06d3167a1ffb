"""The long tests of tests/test_model_printed_schema.py, which the quick tier leaves out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.schema import (
    AliasInfo,
    Argument,
    Default,
    FunctionSchema,
    ListType,
    OptionalType,
    SimpleType,
    optional_of,
    source_text,
    union_of,
)
from dispatchlab.model.schema_parser import parse_schema
from tests.effort import examples
from tests.test_model_printed_schema import NUMBERS, SCALAR, TENSOR
from tests.test_model_schema_properties import schemas


@st.composite
def odd_arguments(draw: st.DrawFn) -> Argument:
    """Arguments of the kinds that upstream prints and does not read."""
    fresh = AliasInfo(frozenset(("$0",)), frozenset(), is_write=True)
    alias = AliasInfo(frozenset("a"), frozenset("ab"), is_write=draw(st.booleans()))
    number = draw(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
    text = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
    members = [SimpleType(name) for name in draw(st.sets(st.sampled_from(["Tensor", "str", "Device"]), min_size=1))]
    contained = AliasInfo(frozenset(), frozenset(), alias.is_write, (alias,))
    kinds = [
        Argument("x", TENSOR, alias=fresh),
        Argument("x", ListType(OptionalType(TENSOR)), alias=contained),
        Argument("x", SimpleType("complex"), Default(complex(0.0, number))),
        Argument("x", SimpleType("float"), Default(draw(st.sampled_from([0, 1, 4, 6, 9])))),
        Argument("x", SimpleType("Device"), Default(draw(st.sampled_from(["cpu", "cuda:1", "meta"])))),
        Argument("x", SimpleType("str"), Default(text)),
        Argument("x", union_of([*members, *NUMBERS])),
        Argument("x", optional_of(optional_of(SCALAR))),
    ]
    return draw(st.sampled_from(kinds))


@given(schemas(), odd_arguments())
@examples(500)
def test_every_schema_reads_back_from_its_print_and_from_its_source(schema: FunctionSchema, odd: Argument) -> None:
    odd = replace(odd, kwarg_only=True)
    whole = replace(schema, arguments=(*schema.arguments, odd), is_vararg=False)
    assert parse_printed(str(whole)) == whole
    source = source_text(whole)
    assert parse_schema(source) == whole
    assert parse_printed(source) == whole
