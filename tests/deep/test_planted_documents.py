"""What the table of the design documents names fails when the behaviour of its row is switched off."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.planted_faults import FAULTS, WITHOUT_FAULT
from tests.test_design_documents import PAGE, ROOT, rows


def test_each_test_that_a_row_names_fails_when_its_behaviour_is_switched_off() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.planted_faults"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = re.findall(r"^planted (\d+) (\S+)$", run.stdout, re.MULTILINE)
    found = {test: int(status) for status, test in lines}
    assert [test for test, status in found.items() if status != 1] == []
    needing_more = ("tests/live/", "tests/process/")  # PyTorch 2.13, a compiler
    assert [test for test in FAULTS.keys() - found.keys() if not test.startswith(needing_more)] == []


def test_each_row_that_something_shows_has_a_fault_or_a_reason() -> None:
    shown = [row for row in rows() if row.shown_by]
    assert sorted(FAULTS.keys() - {place for row in shown for place in row.shown_by}) == []
    without = {row.statement for row in shown if not FAULTS.keys() & {*row.shown_by}}
    assert without == WITHOUT_FAULT.keys()
    said = f"one for each of {len(FAULTS)} tests and scenarios; {len(shown) - len(without)} of the {len(shown)} rows"
    assert said in " ".join(PAGE.read_text(encoding="utf-8").split())
