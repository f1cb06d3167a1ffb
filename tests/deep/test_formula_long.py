"""The long tests of tests/test_formula.py, which the quick tier leaves out."""

from __future__ import annotations

import pytest

from dispatchlab.codegen.read.formula import MAX_DEPTH, MAX_TOKENS, parse_formula
from dispatchlab.errors import ParseError


@pytest.mark.parametrize(
    ("text", "at", "wanted"),
    [
        ("", 0, "a value"),
        ("grad *", 6, "a value"),
        ("grad grad", 5, "an operator or the end of the formula"),
        ("f(a b)", 4, "','"),
        ("(a", 2, "')'"),
        ("x.5", 1, "an operator or the end of the formula"),
        ("x.(y)", 2, "the name of a method"),
        ("a ? b", 5, "':'"),
        ("g[0", 3, "']'"),
        ("std::vector<int", 15, "a type, or '>'"),
        ("[](int i)", 0, "a value"),
        ("a; b", 1, "a name, a number, or an operator"),
        ('"open', 0, "a name, a number, or an operator"),
        ("(" * (MAX_DEPTH + 1), MAX_DEPTH, f"a formula that nests at most {MAX_DEPTH} deep"),
        ("-" * 300, 300, "a value"),
        ("-" * 100_000, MAX_TOKENS, f"a formula of at most {MAX_TOKENS} names and signs"),
        ("x + " * 1_000, 4 * MAX_TOKENS // 2, f"a formula of at most {MAX_TOKENS} names and signs"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(text: str, at: int, wanted: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_formula(text)
    assert (caught.value.at, caught.value.wanted) == (at, wanted)
