"""The list of PyTorch's defects: every one has a scenario and a short program, and the page is true."""

from __future__ import annotations

import pytest

from dispatchlab.errors import RequestError
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.questions.setup.defects import defects_found, known_defects
from tools.defects import DEFECTS, PAGE, PROGRAMS, SCENARIOS, Defect, has


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_has_a_scenario_and_a_short_program(defect: Defect) -> None:
    assert (SCENARIOS / f"{defect.scenario}.yaml").is_file()
    lines = [line for line in defect.program.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 20
    assert "import torch" in lines[:2]
    assert defect.program.read_text(encoding="utf-8").strip() in PAGE.read_text(encoding="utf-8")


def test_every_program_is_listed() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {defect.name for defect in DEFECTS}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_some_model_has_each_defect_and_the_page_says_which(defect: Defect) -> None:
    (row,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if f"| [{defect.name}](" in line]
    marks = [cell.strip() == "x" for cell in row.strip("|").split("|")[1:]]
    assert marks == [has(defect, model) for model in bundled_profiles()]
    assert any(marks)


def test_programs_that_cannot_be_run_say_nothing_of_pytorch() -> None:
    first, *others = known_defects()
    raised = ["SystemExit: defect: a slot is stale\nmore", *["ImportError: no module"] * (len(others) - 1), ""]
    found = defects_found("2.99", raised)
    assert [defect.found for defect in found] == [True, *[None] * (len(others) - 1), False]
    assert (found[0].name, found[0].said, found[1].said) == (first.name, "a slot is stale", "ImportError: no module")
    with pytest.raises(RequestError, match=rf"on PyTorch 2.99, such as: {first.name}: ImportError: no module$"):
        defects_found("2.99", ["ImportError: no module"] * len(found))
