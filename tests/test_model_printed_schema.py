"""What the printer prints, the printed reader reads; and the source text of a schema means the schema."""

from __future__ import annotations

import pytest

from dispatchlab.errors import ParseError
from dispatchlab.model.printed_schema import parse_printed, parse_printed_inferred
from dispatchlab.model.schema import SimpleType, source_text
from dispatchlab.model.schema_parser import parse_schema

TENSOR, INT, SCALAR = SimpleType("Tensor"), SimpleType("int"), SimpleType("Scalar")
NUMBERS = [SimpleType(name) for name in ("int", "float", "complex")]

PRINTED = {
    "f(Tensor! out) -> ()": "f(Tensor($0! -> ) out) -> ()",
    "f(Tensor! a, Tensor! b) -> Tensor!": "f(Tensor($0! -> ) a, Tensor($1! -> ) b) -> Tensor($2! -> )",
    "f(Tensor(a!)?[] x) -> ()": "f(Tensor?(a!)[] x) -> ()",
    "f(Device on='cuda:1') -> ()": "f(Device on=cuda:1) -> ()",
    "f(complex z=1j) -> ()": "f(complex z=0.+1.j) -> ()",
    "f(complex[] z=[1j, -2e-9j]) -> ()": "f(complex[] z=[0.+1.j, 0.-2.0000000000000001e-09j]) -> ()",
    "f(Scalar x='mean') -> ()": "f(Scalar x=mean) -> ()",
    "f(Device? on='cpu', *, Tensor y) -> ()": "f(Device? on=cpu, *, Tensor y) -> ()",
    "f(int[] x=[1, 1]) -> ()": "f(int[] x=1) -> ()",
    "f(float eps=strided, complex z=long) -> ()": "f(float eps=0, complex z=4) -> ()",
    r"f(str s='\015\200') -> ()": r'f(str s="\r\.00") -> ()',
    "f(Union(Tensor, Scalar) x) -> ()": "f(Union(TensorScalar) x) -> ()",
    "f(Union(str, Scalar) x) -> ()": "f(Union(, str, Scalar) x) -> ()",
    "f(Scalar?? x) -> ()": "f(Union(Scalar)? x) -> ()",
    "f() -> Union(Future(int), NoneType)(a!)": "f() -> Future(int)(a!)?",
}


@pytest.mark.parametrize(("written", "printed"), PRINTED.items(), ids=PRINTED.values())
def test_a_print_that_pytorch_does_not_read_is_read_as_what_was_written(written: str, printed: str) -> None:
    schema = parse_schema(written)
    assert str(schema) == printed
    assert parse_printed(printed) == schema
    assert parse_schema(source_text(schema)) == schema


def test_what_a_print_loses_is_read_as_something_that_prints_the_same() -> None:
    for written in (
        "f(int[] x=[1, 1, 1]) -> ()",
        "f(int[1] x=[5, 5]) -> ()",
        "f(int(a)[][] x) -> ()",
        "f(Scalar x='1e3') -> ()",
    ):
        printed = str(parse_schema(written))
        assert str(parse_printed(printed)) in (printed, "f(Scalar x=1000.) -> ()", "f(int[1] x=[5]) -> ()")


def test_a_dump_may_name_any_class_and_opaque_values() -> None:
    read = parse_printed("ns::f(__torch__.torch.classes.mine.Thing x, PyObject y) -> PyObject?")
    assert [str(one.type) for one in read.arguments] == [
        "__torch__.torch.classes.mine.Thing",
        "__torch__.torch.classes.python.Object",
    ]
    assert str(parse_printed_inferred("(__torch__.torch.classes.mine.Thing _0) -> ()")).startswith("(__torch__")


@pytest.mark.parametrize("text", ["f(Tensor($) x) -> ()", "f(Tensor x", "f(Union(Scalar x) -> ()", "f(int x=1 -> ()"])
def test_what_nobody_prints_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_printed(text)


def test_most_of_these_prints_are_read_by_no_other_parser() -> None:
    refused = 0
    for printed in PRINTED.values():
        try:
            refused += parse_schema(printed) != parse_printed(printed)
        except ParseError:
            refused += 1
    assert refused == len(PRINTED)
