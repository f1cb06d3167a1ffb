"""Tests that the table of the design documents names fail when the behaviour of their row is switched off."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.planted_faults import FAULTS
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
    assert found == dict.fromkeys(FAULTS, 1)


def test_each_fault_belongs_to_a_row() -> None:
    named = {place for row in rows() for place in row.shown_by}
    assert sorted(FAULTS.keys() - named) == []


def test_half_of_the_rows_that_a_test_shows_have_a_fault() -> None:
    """Others are shown by scenarios, commands and golden files, or by tests that need PyTorch."""
    with_fault = [row for row in rows() if FAULTS.keys() & {*row.shown_by}]
    assert 2 * len(with_fault) >= len([row for row in rows() if any("::test_" in place for place in row.shown_by)])
    said = f"one for each of {len(FAULTS)} tests, which {len(with_fault)} of the rows name"
    assert said in " ".join(PAGE.read_text(encoding="utf-8").split())
