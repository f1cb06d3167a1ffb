"""The pages that can be filed as issues: made of one record each, with a test that fails where there is the defect."""

from __future__ import annotations

import unittest
from typing import Any

import pytest

from tests.commute import CommuteTest
from tools.defect_programs import HAS, outcomes, programs
from tools.defect_reports import PACKAGED, PAGES, PATCHES, packaged, page, reports
from tools.defects import DEFECTS
from tools.python_defects import PYTHON_DEFECTS
from tools.torch_stand_in import stand_in

TESTED = [name for name, report in reports().items() if "test" in report]


def test_every_defect_has_a_page_that_is_what_its_records_say() -> None:
    assert set(reports()) == {one.name for one in (*DEFECTS, *PYTHON_DEFECTS)} == set(programs())
    assert {path.stem: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")} == {
        name: page(name) for name in reports()
    }
    assert PACKAGED.read_text(encoding="utf-8") == packaged()
    assert len({report["title"] for report in reports().values()}) == len(reports())


def test_every_program_ran_on_several_pytorchs_and_says_what_it_found() -> None:
    for name, found in outcomes().items():
        assert len(found) >= 2, name
        assert HAS in found.values(), name
        program = programs()[name].read_text(encoding="utf-8")
        assert 'raise SystemExit("defect: ' in program or 'raise SystemExit(f"defect: ' in program
        assert 'print("fixed")' in program
        assert "dispatchlab" not in program


def test_a_patch_of_python_code_is_named_by_a_defect() -> None:
    patches = {path.stem for path in PATCHES.glob("*.patch")}
    assert patches <= set(reports())
    assert len(patches) >= 8
    assert [name for name in reports() if name not in patches and "patch" not in reports()[name]] == []


def failures(name: str, semantics: str) -> list[str]:
    """Run the test of a report on a dispatcher of the lab; the first line of each failure."""
    C = stand_in(semantics, recorded=False)["torch._C"]
    namespace: dict[str, Any] = {"C": C}
    exec(reports()[name]["test"], namespace)
    (method,) = (one for key, one in namespace.items() if key.startswith("test_"))
    result = unittest.TestResult()
    type("OneTest", (CommuteTest,), {"C": C, "test_it": method})("test_it").run(result)
    assert result.testsRun == 1
    return [text.strip().splitlines()[-1] for _, text in (*result.failures, *result.errors)]


@pytest.mark.parametrize("name", TESTED)
def test_the_test_of_a_report_fails_on_the_model_of_pytorch_and_holds_where_it_is_fixed(name: str) -> None:
    assert failures(name, "strict") == []
    assert failures(name, "torch-2.13") != []
