"""The program of WHY721 is run to its end, which takes Inductor six times."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.questions.why.cause import causes
from dispatchlab.questions.why.run import Outcome, why_program
from tests.live.test_why_pages import part

STALE = next(cause for cause in causes() if cause.code == "WHY721")


@pytest.mark.parametrize(("heading", "code"), [("Fails", "WHY721"), ("Works", None)])
def test_code_that_was_compiled_for_another_schema_is_found(
    heading: str, code: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(part(STALE, heading)[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    outcome = why_program(["program.py"], quiet=True)
    if code is None:
        assert outcome == Outcome(0)
    else:
        assert outcome.answer is not None
        assert outcome.answer.code == code, outcome.answer.cause
