"""The rows of the causes of `why` have expressions that compile, and name groups, facts or what a function saw."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Formatter

import pytest

from dispatchlab.model.failure import Event, Failure, OperatorFacts, Raised
from dispatchlab.questions.why import cause as cause_module
from dispatchlab.questions.why.cause import FAMILIES, Cause, _family
from dispatchlab.questions.why.facts import OF_FAILURE, OF_SCHEMA, OF_WORDS, Words
from dispatchlab.questions.why.row import _CHOICE, _FIELD_IN_EXPRESSION, Row

OF_FAMILY = {family: tuple(_family(family)) for family in FAMILIES}
ROWS = [
    pytest.param(family, cause, row, id=f"{cause.code}-{number}")
    for family, causes in OF_FAMILY.items()
    for cause in causes
    for number, row in enumerate(cause.rows)
]


class NoRegistry:
    """A dispatcher that holds nothing."""

    version = ""

    def operator(self, name: str) -> None: ...

    def overloads(self, packet: str) -> tuple[str, ...]:
        return ()

    def names(self, namespace: str) -> tuple[str, ...]:
        return ()


FACTS = {name for holder in (Words, Failure, OperatorFacts) for name in vars(holder) if not name.startswith("_")}
FACTS |= {*OF_FAILURE, *OF_SCHEMA, *OF_WORDS}


def conditions(row: Row) -> Iterator[tuple[str, str]]:
    """Return the name and the expression of each condition of a row."""
    choices = (_CHOICE.fullmatch(text) for text in (*row.says, *row.fix, *row.evidence))
    for text in (*row.when, *(choice[2] for choice in choices if choice is not None and choice[2])):
        for condition in re.split(r" (?:and|or) ", text):
            name, _, expression = condition.removeprefix("not ").partition(" ~ ")
            yield name, expression


def fields(row: Row) -> set[str]:
    """Return the fields of the texts of a row."""
    texts = [_CHOICE.sub(r"\3", text) for text in (*row.says, *row.fix, *row.evidence)]
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}


@cache
def seen(family: str, code: str) -> set[str]:
    """Return the words that the function of a cause gives."""
    file = files("dispatchlab.questions.why.causes") / f"{family}.py"
    words: set[str] = set()
    for function in ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else ():
        if not isinstance(function, ast.FunctionDef):
            continue
        of = {ast.unparse(decorator) for decorator in function.decorator_list}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "saw" and f"looks_for('{code}')" in of:
                words |= {keyword.arg for keyword in node.keywords if keyword.arg}
            elif isinstance(node, ast.Dict):  # what helpers of the function give
                words |= {key.value for key in node.keys if is_text(key)}  # type: ignore[union-attr]
    return words


def is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.parametrize(("family", "cause", "row"), ROWS)
def test_a_row_names_what_is_known(family: str, cause: Cause, row: Row) -> None:
    patterns = row.pattern or cause.pattern
    expressions = [re.compile(text) for text in (*row.pattern, *cause.pattern, *(text for _, text in conditions(row)))]
    given = seen(family, cause.code) | {name for each in expressions for name in each.groupindex}
    given |= {"subject", "detail", "event_at"} if row.event else set()
    numbers = range(min((re.compile(text).groups for text in patterns), default=-1) + 1)
    named = {field for _, text in conditions(row) for field in _FIELD_IN_EXPRESSION.findall(text)}
    named |= fields(row) | {name for name, _ in conditions(row)}
    assert named <= FACTS | given | set(map(str, numbers))
    assert row.says
    words = Words(Failure((Raised("builtins.Error", "x"),), (), (), NoRegistry()))
    words.groups = ("x", "x")
    words |= dict.fromkeys(given, "x") | ({"event": Event("function", "")} if row.event else {})
    assert {name for name in named - set(map(str, numbers)) if words[name] is None} == set(), (
        "a fact that needs what the row does not know"
    )


@pytest.mark.parametrize(("family", "cause", "row"), ROWS)
def test_each_expression_of_a_row_has_the_groups_that_its_texts_name(family: str, cause: Cause, row: Row) -> None:
    of_each = [set(re.compile(text).groupindex) for text in row.pattern or cause.pattern]
    named = fields(row) | {name for name, _ in conditions(row)}
    given = FACTS | seen(family, cause.code)
    given |= {name for _, text in conditions(row) for name in re.compile(text).groupindex}
    assert all(named & set().union(*of_each) - given <= groups for groups in of_each)


def test_each_number_stands_once_and_each_function_has_a_cause() -> None:
    causes = [(family, cause) for family, causes in OF_FAMILY.items() for cause in causes]
    codes = [cause.code for _, cause in causes]
    assert len(set(codes)) == len(codes)
    assert set(cause_module._LOOKS) <= set(codes)


def test_a_cause_has_at_most_40_lines() -> None:
    folder = files("dispatchlab.questions.why.causes")
    lines: Counter[str] = Counter()
    for family in FAMILIES:
        rows = re.split(r"^\[(WHY\d+)\]$", (folder / f"{family}.toml").read_text(encoding="utf-8"), flags=re.MULTILINE)
        for code, text in zip(rows[1::2], rows[2::2], strict=True):
            lines[code] += len(text.strip().splitlines()) + 1
    for code, look in cause_module._LOOKS.items():
        lines[code] += sum(not line.startswith("@") for line in inspect.getsource(look).strip().splitlines()) + 1
    assert {code: count for code, count in lines.items() if count > 40} == {}


def test_the_site_has_the_message_of_each_page() -> None:
    messages = json.loads((Path(__file__).parents[1] / "tools" / "cause_messages.json").read_text(encoding="utf-8"))
    pages = {cause.code for causes in OF_FAMILY.values() for cause in causes if cause.file.is_file()}
    assert messages.keys() == pages, "run python tools/cause_messages.py"


def test_a_row_with_an_unknown_part_is_refused() -> None:
    with pytest.raises(TypeError, match="advise"):
        Row.of({"says": "x", "advise": "y"}, {})
