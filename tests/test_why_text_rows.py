"""Each row of the texts of `why` has a pattern that compiles, and names no more groups than the pattern has."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from dispatchlab.model.failure import Failure
from dispatchlab.questions.why.causes import text_rows

TABLE = text_rows._table()
ROWS = [
    (code, row) for family, codes in TABLE.items() if family != "say" for code, e in codes.items() for row in e["row"]
]


class NoRegistry:
    """A dispatcher that holds nothing."""

    version = ""

    def operator(self, name: str) -> None: ...

    def overloads(self, packet: str) -> tuple[str, ...]:
        return ()

    def names(self, namespace: str) -> tuple[str, ...]:
        return ()


def words_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize(("code", "row"), ROWS, ids=[f"{code}-{at}" for at, (code, _) in enumerate(ROWS)])
def test_a_row_names_what_its_pattern_finds(code: str, row: dict[str, object]) -> None:
    groups = {str(number) for number in range(re.compile(str(row["pattern"])).groups + 1)}
    fixes = row["fix"]
    assert isinstance(fixes, list)
    known = groups | set(text_rows._words(Failure((), (), (), NoRegistry()), ""))
    assert words_of(str(row["says"])) <= known, code
    for fix in fixes:
        assert words_of(fix) <= known, code


@pytest.mark.parametrize("name", TABLE["say"])
def test_the_fixes_of_a_text_ask_for_words_of_the_code(name: str) -> None:
    entry = TABLE["say"][name]
    assert entry["says"]
    assert entry["fix"]
    assert all(word.isidentifier() for text in (entry["says"], *entry["fix"]) for word in words_of(text))
