"""Programs about overrides, wrappers, modes and registrations, on the lab and on the running PyTorch.

`tests/data/upstream_override_tests.tsv` has a row for each test of PyTorch's test_python_dispatch.py and
test_overrides.py, as they were on its main branch after 2.13: the program that asks the same here, or why there is
none.
"""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.live import dispatch_programs, override_programs
from tests.live.override_sides import sides

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "data" / "upstream_override_tests.tsv"
PROGRAMS = {**dispatch_programs.PROGRAMS, **override_programs.PROGRAMS}


def _rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, dialect="excel-tab"))


def _run(program: Any, side: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program(side)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_here_what_it_does_on_torch(name: str) -> None:
    ours, theirs = sides()
    found, expected = _run(PROGRAMS[name], ours), _run(PROGRAMS[name], theirs)
    assert found == expected
    assert expected


def test_no_program_has_the_name_of_another_one() -> None:
    assert len(PROGRAMS) == len(dispatch_programs.PROGRAMS) + len(override_programs.PROGRAMS)


def test_each_upstream_test_has_a_program_or_a_reason() -> None:
    rows = _rows()
    for row in rows:
        assert bool(row["ours"]) != bool(row["reason"]), row
        path, _, name = row["ours"].rpartition("::")
        if path:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), row
        elif name:
            assert name in PROGRAMS, row
    assert len({(row["file"], row["test"]) for row in rows}) == len(rows)


def test_each_program_is_for_an_upstream_test_or_named_here() -> None:
    own = {
        "a_handler_of_operators_may_be_an_instance_method_without_a_warning",
        "a_handler_may_take_what_a_function_in_python_would_refuse_and_others_are_checked_first",
        "a_write_to_a_tensor_of_another_class_is_seen_by_its_base",
        "composed_functions_compute_what_they_say",
        "several_values_come_out_of_a_handler_as_a_list_or_as_a_tuple",
        "the_function_that_a_handler_gets_for_an_operator_is_its_method",
        "the_types_of_a_method_that_comes_to_a_mode_are_those_with_handlers_or_that_of_a_lone_self",
    }
    assert set(PROGRAMS) - {row["ours"] for row in _rows()} == own


def test_most_upstream_tests_have_a_program() -> None:
    counted = Counter((row["file"], bool(row["ours"])) for row in _rows())
    assert counted == {
        ("test_python_dispatch.py", True): 76,
        ("test_python_dispatch.py", False): 37,
        ("test_overrides.py", True): 61,
        ("test_overrides.py", False): 9,
    }
