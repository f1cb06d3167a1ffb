"""The list of PyTorch's defects: every one has a scenario and a short program, and the search finds what is known."""

from __future__ import annotations

import re

import pytest

from dispatchlab.adopt.defects import NoProgramRanError, defects_found, known_defects
from dispatchlab.model.profile import bundled_profile, bundled_profiles
from tools.defects import DEFECTS, PAGE, PROGRAMS, SCENARIOS, Defect
from tools.search_defects import CHANGES, Item, behaviour, changes, is_order_dependent, stale_slots


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_has_a_scenario_that_is_listed_and_a_short_program(defect: Defect) -> None:
    assert (SCENARIOS / f"{defect.scenario}.yaml").is_file()
    lines = [line for line in defect.program.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 20
    assert "import torch" in lines[:2]
    assert defect.program.read_text(encoding="utf-8").strip() in PAGE.read_text(encoding="utf-8")


def test_every_program_and_every_model_is_on_the_page() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {defect.name for defect in DEFECTS}
    text = PAGE.read_text(encoding="utf-8")
    (head,) = re.findall(r"^\| defect \| (.*) \|$", text, re.MULTILINE)
    assert [f"torch-{version}" for version in head.split(" | ")] == [*bundled_profiles()]
    assert text.endswith(CHANGES.read_text(encoding="utf-8"))


def test_programs_that_cannot_be_run_say_nothing_of_pytorch() -> None:
    first, *others = known_defects()
    raised = ["SystemExit: defect: a slot is stale\nmore", *["ImportError: no module"] * (len(others) - 1), ""]
    found = defects_found("2.99", raised)
    assert [defect.found for defect in found] == [True, *[None] * (len(others) - 1), False]
    assert (found[0].name, found[0].said, found[1].said) == (first.name, "a slot is stale", "ImportError: no module")
    with pytest.raises(NoProgramRanError, match=rf"on PyTorch 2.99, such as: {first.name}: ImportError: no module$"):
        defects_found("2.99", ["ImportError: no module"] * len(found))


def test_the_search_finds_the_defect_that_came_and_the_one_that_went() -> None:
    batched, fallback = (Item("FuncTorchBatchedDecomposition"),), (Item("AutogradPrivateUse1", is_fallback=True),)
    independent = (Item("CPU"), Item("AutogradCPU"))
    tried = [batched, fallback, (Item("CPU"),), (Item("AutogradCPU"),), independent, (*batched, *independent[:1])]
    found, (change,) = changes(tried, ("torch-2.9", "torch-2.10"))
    assert (change.came, change.went, change.new_keys) == ((fallback,), (batched,), ())
    assert found["torch-2.9"] == {each: each == batched for each in tried[:-1]}  # the last has a smaller one in it
    assert found["torch-2.10"] == {each: each == fallback for each in tried}


def test_stale_slots_are_those_of_every_order_and_release() -> None:
    both = (Item("CompositeImplicitAutograd"), Item("QuantizedCPU"))
    assert stale_slots("torch-2.13", both) == ("AutogradOther",)
    assert stale_slots("strict", both) == ()
    assert is_order_dependent("torch-2.13", both)
    assert not is_order_dependent("strict", both)


def test_models_are_searched_once_where_they_behave_alike() -> None:
    profiles = {name: behaviour(bundled_profile(name)) for name in bundled_profiles()}
    assert profiles["torch-2.14"] == profiles["torch-2.15"]
    assert profiles["torch-2.9"] != profiles["torch-2.10"]
