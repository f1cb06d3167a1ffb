"""The JSON Schema of what commands print. Each JSON that tests print is compared with it, see `command_line.run`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from dispatchlab.cli import COMMANDS
from tests.command_line import check_json, run

LINE = ("explain", "aten::add.Tensor", "--arg", "cpu", "--from", "torch-2.13", "--format", "json")


def test_it_is_printed_for_every_command_that_prints_json() -> None:
    with_json = {name for name in COMMANDS if "json" in str(run(name, "--help").stdout).partition("--format")[2][:60]}
    assert len(with_json) >= 11
    for name in with_json - {"schema"}:
        found = json.loads(run("schema", name).stdout)
        assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert all("version" in one["required"] for one in found["anyOf"])


def test_a_command_without_json_has_none() -> None:
    result = run("schema", "expalin")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("expalin prints no JSON: choose from certify, check, ")
    assert result.stderr.endswith("; did you mean explain?\n")


def test_key_sets_are_texts_as_numbers_of_json_are_too_small() -> None:
    hop = json.loads(run(*LINE).stdout)["hops"][0]
    assert int(hop["set"]["raw"]) >= 2**32
    assert isinstance(hop["set"]["raw"], str)


def _places(value: Any) -> Iterator[Any]:
    """The objects in a value."""
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _places(each)
    if isinstance(value, dict):
        yield value


def test_a_field_that_is_missing_or_new_or_of_another_type_is_found() -> None:
    good = json.loads(run(*LINE).stdout)
    check_json(LINE, json.dumps(good))
    number = len(list(_places(good)))
    assert number > 20
    for at in range(number):
        wrong = deepcopy(good)
        place = list(_places(wrong))[at]
        place["another"] = None
        with pytest.raises(AssertionError, match="another is not allowed"):
            check_json(LINE, json.dumps(wrong))
        del place["another"]
        for name, value in list(place.items()):
            for other in (None,) if value is None else (None, {"of": "another type"}):  # of null, no type may be known
                place.pop(name) if other is None else place.update({name: other})
                with pytest.raises(AssertionError, match=name):
                    check_json(LINE, json.dumps(wrong))
                place[name] = value
