"""The upgrade report from 2.12 to 2.15 against the `native_functions.yaml` of both, in both directions.

`tests/data/native-functions.txt.xz` has what `torchgen.gen.parse_native_yaml` of each version makes of the file that
its wheel ships: a line for each operator, with its class and its schema. The classes are

- `yaml`: an entry of the file;
- `autogen`: an out or functional variant that torchgen makes of an entry, which names it in `autogen`.

Every other operator is registered outside of that file: by hand in C++ or in Python, as its debug text says.
"""

from __future__ import annotations

import lzma
import re
from functools import cache
from pathlib import Path

import pytest

from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.questions.upgrade.compare_sources import compare_registries
from dispatchlab.questions.upgrade.operator_changes import Upgrade
from dispatchlab.questions.upgrade.slot_models import models_of
from dispatchlab.registries.file import open_bundled
from dispatchlab.registries.model import RecordedOperator
from tests.command_line import run

FILE = Path(__file__).parents[1] / "data" / "native-functions.txt.xz"
BEFORE, AFTER = "torch-2.12", "torch-2.15"


@cache
def listed() -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """The class and the schema of each operator in the yaml of both versions."""
    found: list[dict[str, tuple[str, str]]] = []
    for line in lzma.decompress(FILE.read_bytes()).decode().splitlines():
        if line.startswith("# "):
            found.append({})
        else:
            kind, schema = line.split("\t")
            found[-1][schema.partition("(")[0]] = kind, schema
    before, after = found
    return before, after


@cache
def report() -> Upgrade:
    first, second = open_bundled(BEFORE), open_bundled(AFTER)
    return compare_registries(first, second, models_of(first.torch, second.torch))


def generated(debug: str) -> bool:
    """Whether an operator is defined by the code that torchgen makes."""
    return re.search(r"build/aten/src/ATen/RegisterSchema\.cpp:\d+$", debug) is not None


def outside(debug: str) -> str:
    """The class of an operator that no yaml has."""
    if debug == "registered by RegisterOperators" or re.search(r"\.(cpp|cu|h|mm):\d+$", debug):
        return "by hand in C++"
    assert re.search(r"\.py:\d+( via |$)", debug), debug
    return "in Python"


def text(schema: str) -> str:
    """A schema of the yaml as dispatchers print it, to which the name of a dimension is a text."""
    name, found, rest = schema.partition("(")
    return str(parse_schema(name + found + re.sub(r"\bDimname\b", "str", rest)))


def test_the_registries_have_what_the_yaml_has() -> None:
    for names, name in zip(listed(), (BEFORE, AFTER), strict=True):
        registry = open_bundled(name)
        assert len(names) > 3000
        assert {kind for kind, _ in names.values()} == {"yaml", "autogen"}
        operators: dict[str, RecordedOperator] = {str(operator.name): operator for operator in registry}
        for operator, (_, schema) in names.items():
            assert operators[operator].schema == text(schema)


def test_every_operator_that_came_or_went_did_so_in_the_yaml_and_the_reverse() -> None:
    before, after = listed()
    removed = {each.operator for each in report().removed if generated(each.debug)}
    added = {each.operator for each in report().added if generated(each.debug)}
    assert removed == before.keys() - after.keys()
    assert added == after.keys() - before.keys()
    assert (len(removed), len(added)) == (120, 14)
    others = [*report().removed, *report().added]
    classes = [outside(each.debug) for each in others if not generated(each.debug)]
    assert set(classes) == {"by hand in C++", "in Python"}
    for each in others:
        assert generated(each.debug) == (each.operator in before or each.operator in after)


def test_every_schema_that_changed_did_so_in_the_yaml_and_the_reverse() -> None:
    before, after = listed()
    changed = dict(report().schemas)
    in_yaml = {name for name in before.keys() & after.keys() if text(before[name][1]) != text(after[name][1])}
    assert in_yaml == {name for name in changed if name in before or name in after}
    assert len(in_yaml) == 5
    for name in in_yaml:
        assert (changed[name].before, changed[name].after) == (text(before[name][1]), text(after[name][1]))
    operators = open_bundled(AFTER)
    for name in changed.keys() - in_yaml:
        operator = operators.operator(name)
        assert operator is not None
        assert not generated(operator.debug)
        assert outside(operator.debug)


def test_the_guide_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.chdir(docs.parent)
    shown = re.findall(
        r"^    \$ dispatchlab (diff .*)\n((?:    .*\n|\n(?=    ))+)", (docs / "upgrade.md").read_text(), re.M
    )
    for command, block in shown:
        lines = [line.removeprefix("    ") for line in block.splitlines()]
        assert lines.pop() == "..."
        assert run(*command.split()).stdout.splitlines()[: len(lines)] == lines
    assert len(shown) == 2
