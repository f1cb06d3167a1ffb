"""The long tests of tests/test_model_schema.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.model.schema_parser import parse_schema
from tests.test_model_schema import CORPUS


def test_every_schema_of_torch_is_equal_to_what_its_text_gives() -> None:
    schemas = [parse_schema(text) for text in CORPUS]
    assert [s for s in schemas if parse_schema(str(s)) != s or hash(parse_schema(str(s))) != hash(s)] == []
    assert len(set(schemas)) == 3598
