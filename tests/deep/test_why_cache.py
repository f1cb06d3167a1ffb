"""The program of WHY721 is run to its end, which takes Inductor six times."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.questions.why.cause import causes
from tests.live.test_why_pages import part
from tests.why_programs import why

STALE = next(cause for cause in causes() if cause.code == "WHY721")


def test_code_that_was_compiled_for_another_schema_is_found(tmp_path: Path) -> None:
    _, answer = why(tmp_path, {"program.py": part(STALE, "Fails")[1]}, "program.py")
    assert answer is not None
    assert answer.code == "WHY721", answer.cause


def test_the_program_without_caches_ends_well(tmp_path: Path) -> None:
    assert why(tmp_path, {"program.py": part(STALE, "Works")[1]}, "program.py") == (0, None)
