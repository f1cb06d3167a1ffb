"""The first difference between a def's schema and a kernel's: recorded verdicts, the order of reasons, SymInt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.model.schema_difference import Difference, DifferenceKind, schema_difference
from dispatchlab.model.schema_parser import parse_inferred, parse_schema

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "schemas.json").read_text())["diff"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['expected']} | {case['other']}")
def test_the_verdict_is_the_recorded_one(case: dict[str, Any]) -> None:
    expected, other = parse_schema(case["expected"]), parse_schema(case["other"])
    found = {
        "real_nosym": schema_difference(expected, other, symint_kernel=False),
        "real_sym": schema_difference(expected, other, symint_kernel=True),
    }
    said = {how: {"ok": str(difference) if difference else "(none)"} for how, difference in found.items()}
    assert said == {how: case[how] for how in found}


def test_there_are_verdicts_of_every_kind() -> None:
    assert len(CASES) == 24
    assert sum(case["real_nosym"] != case["real_sym"] for case in CASES) == 1


def reason(expected: str, found: str, *, symint_kernel: bool = False) -> str | None:
    difference = schema_difference(parse_schema(expected), parse_inferred(found), symint_kernel=symint_kernel)
    return difference.reason if difference else None


def test_the_first_reason_wins_in_the_order_of_the_check() -> None:
    assert reason("f(int x) -> int", "(float _0, int _1) -> ()") == "The number of arguments is different. 1 vs 2."
    assert reason("f(int x) -> int", "(float _0) -> ()") == "The number of returns is different. 1 vs 0."
    assert reason("f(int x) -> int", "(float _0) -> float _0") == "Type mismatch in argument 1: int vs float."
    assert reason("f(int x) -> int", "(int _0) -> float _0") == "Type mismatch in return 1: int vs float."
    assert reason("f(int x) -> int", "(int _0) -> int _0") is None


def test_a_difference_carries_both_sides() -> None:
    difference = schema_difference(
        parse_schema("f(Tensor x, int[3]? y) -> ()"), parse_inferred("(Tensor _0, int[] _1) -> ()"), symint_kernel=False
    )
    assert difference == Difference(DifferenceKind.ARGUMENT_TYPE, "int[]?", "int[]", 2)


@pytest.mark.parametrize("shape", ["{}", "{}?", "{}[]", "{}[]?", "{}[2]"])
def test_an_int_kernel_fits_a_symint_schema_and_not_the_other_way(shape: str) -> None:
    symint, plain = shape.format("SymInt"), shape.format("int")
    assert reason(f"f({symint} x) -> ()", f"({plain} _0) -> ()") is None
    assert reason(f"f({symint} x) -> ()", f"({symint} _0) -> ()", symint_kernel=True) is None
    assert reason(f"f({plain} x) -> ()", f"({symint} _0) -> ()", symint_kernel=True) is not None


def test_other_containers_of_symint_are_not_read_as_int() -> None:
    assert reason("f(SymInt?[] x) -> ()", "(int?[] _0) -> ()") == "Type mismatch in argument 1: SymInt?[] vs int?[]."


def test_symint_returns_are_compared_as_they_are() -> None:
    assert reason("f() -> SymInt", "() -> SymInt _0") is None
    assert reason("f() -> SymInt", "() -> int _0") == "Type mismatch in return 1: SymInt vs int."


def test_all_type_variables_are_equal_to_upstream() -> None:
    assert reason("f(t x, Dict(str, u) y) -> t[]", "(a _0, Dict(str, b) _1) -> c[] _0") is None
    assert reason("f(t x) -> ()", "(Tensor _0) -> ()") == "Type mismatch in argument 1: t vs Tensor."
