"""The page of each cause has a program that fails for it, and the same with the fix: both are run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.questions.why.cause import Cause, causes
from dispatchlab.questions.why.run import answer_of
from tests.why_programs import why

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a fork")
CAUSES = [cause for cause in causes() if cause.file.is_file()]
WITHOUT_PAGE = {"WHY233", "WHY431", "WHY531", "WHY532", "WHY721"}
"""What trials of `check` find without an exception, and what takes Inductor twice."""


def part(cause: Cause, title: str) -> tuple[str, str]:
    """Return the language and the text of the block in a part of a page."""
    found = re.search(rf"^## {title}\n.*?^```(\w+)\n(.*?)^```$", cause.page, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{cause.code}.md has no block below '## {title}'"
    return found[1], found[2]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_the_program_of_a_page_fails_for_its_cause(cause: Cause, tmp_path: Path) -> None:
    language, text = part(cause, "Fails")
    arguments = ("--text", "program.txt") if language == "text" else ("program.py",)
    code, fields = why(tmp_path, {arguments[-1]: text}, *arguments)
    assert fields is not None, f"exit {code} without an answer"
    answer = answer_of(fields)
    assert (answer.code, answer.title, answer.dispatcher) == (cause.code, cause.title, cause.dispatcher), answer.cause
    assert answer.fixes or not cause.dispatcher, "no fix is left"
    works = part(cause, "Works")[1]
    for trial in answer.fixes:
        assert trial.outcome in ("works", "not tried"), trial
        if trial.outcome == "works" and trial.fix.code:
            assert call_of(trial.fix.code) in works, f"the page shows another fix than {trial.fix.code}"


def call_of(code: str) -> str:
    """Return the name that a fix calls or sets: the last line up to its first bracket or equals sign."""
    return re.split(r"[(=]", code.strip().splitlines()[-1])[0].strip().rpartition(".")[2]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_the_program_with_the_fix_ends_well(cause: Cause, tmp_path: Path) -> None:
    assert why(tmp_path, {"program.py": part(cause, "Works")[1]}, "program.py") == (0, None)


def test_every_other_cause_has_a_page() -> None:
    assert {cause.code for cause in causes()} - {cause.code for cause in CAUSES} == WITHOUT_PAGE
