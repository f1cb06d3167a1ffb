"""Values as JSON: a dataclass is an object with its fields, and every object that is printed has a version."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import pytest

from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import Beaten
from dispatchlab.model.registration import SourceLocation
from dispatchlab.views.as_json import JSON_VERSION, as_json, fields_of, json_text, plain_json_text


@dataclass(frozen=True)
class Row:
    key: K
    names: tuple[OperatorName, ...]
    at: SourceLocation | None = None


ROW = Row(K.CPU, (OperatorName("test", "foo", "out"),), SourceLocation("a.py", 3))


def test_a_dataclass_is_an_object_with_its_fields() -> None:
    assert as_json(ROW) == {"key": "CPU", "names": ["test::foo.out"], "at": {"file": "a.py", "line": 3, "column": 1}}
    assert as_json(Beaten("CPU", "fn", Provenance.MATH, "why")) == {
        "source": "CPU",
        "debug": "fn",
        "reason": "math kernel",
        "why": "why",
    }


def test_fields_can_be_left_out_replaced_or_added() -> None:
    found = fields_of(ROW, without=("at",), key=K.CUDA, more=(1, None))
    assert found == {"key": "CUDA", "names": ["test::foo.out"], "more": [1, None]}
    assert list(found) == ["key", "names", "more"]


def test_a_key_set_has_its_bits_and_its_keys_by_priority() -> None:
    keys = DispatchKeySet.of(K.CPU, K.AutogradCPU)
    assert as_json(keys) == {"raw": str(keys.bits), "keys": ["AutogradCPU", "CPU"]}


def test_what_is_printed_starts_with_the_version_and_ends_its_line() -> None:
    text = json_text({"found": ROW, "é": {K.CPU: True}})
    assert text.startswith(f'{{"version": {JSON_VERSION}, "found": ')
    assert (text.count("\n"), text[-1], text.isascii()) == (1, "\n", True)
    assert json.loads(text)["é"] == {"CPU": True}
    assert plain_json_text({"version": "2.1.0"}, indent=1) == '{\n "version": "2.1.0"\n}\n'


def test_a_value_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no form in JSON: register one with as_json"):
        as_json(object())


def test_a_value_that_nests_deeper_than_frames_do_is_written() -> None:
    value: tuple[object, ...] = ()
    for _ in range(800):
        value = (value,)
    limit = sys.getrecursionlimit()
    assert json_text({"deep": value}) == f'{{"version": 5, "deep": {"[" * 801}{"]" * 801}}}\n'
    assert sys.getrecursionlimit() == limit
