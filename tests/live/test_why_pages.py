"""The page of each cause has a program that fails for it, and the same with the fix: both are run."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.questions.check.trials import TrialRequest, trial_process
from dispatchlab.questions.why.cause import Cause, causes
from dispatchlab.questions.why.run import why_text
from tests.why_programs import why

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a fork")
BY_TRIALS = {"WHY233", "WHY431", "WHY532"}
"""What the trials of `check` find without an exception: their programs are packages."""
CAUSES = [cause for cause in causes() if cause.code not in {*BY_TRIALS, "WHY721"}]  # tests/deep has what compiles often


def part(cause: Cause, title: str) -> tuple[str, str]:
    """Return the language and the text of the block in a part of a page."""
    found = re.search(rf"^## {title}\n.*?^```(\w+)\n(.*?)^```$", cause.page, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{cause.code}.md has no block below '## {title}'"
    return found[1], found[2]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_the_program_of_a_page_fails_for_its_cause(cause: Cause, tmp_path: Path) -> None:
    language, text = part(cause, "Fails")
    code, answer = (1, why_text(text)) if language == "text" else why(tmp_path, {"program.py": text}, "program.py")
    assert answer is not None, f"exit {code} without an answer"
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


@pytest.mark.parametrize("code", sorted(BY_TRIALS))
def test_trials_find_the_cause_of_a_page(code: str, tmp_path: Path) -> None:
    cause = next(cause for cause in causes() if cause.code == code)
    for title in ("Fails", "Works"):
        folder = tmp_path / title
        folder.mkdir()
        (folder / "package.py").write_text(part(cause, title)[1], encoding="utf-8")
        with trial_process(TrialRequest(("package",), (str(folder), *sys.path))) as process:
            process.facts()
            found = {answer.code for _, answer in process.runs(300) if answer is not None}
        assert (code in found) == (title == "Fails"), found
