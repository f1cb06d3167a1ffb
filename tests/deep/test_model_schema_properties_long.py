"""The long tests of tests/test_model_schema_properties.py, which the quick tier leaves out."""

from __future__ import annotations

from hypothesis import given

from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_schema
from tests.effort import examples
from tests.test_model_schema_properties import schemas


@given(schemas())
@examples(500)
def test_a_schema_reads_back_from_its_text(schema: FunctionSchema) -> None:
    text = str(schema)
    again = parse_schema(text)
    assert again == schema
    assert str(again) == text
    assert hash(again) == hash(schema)
