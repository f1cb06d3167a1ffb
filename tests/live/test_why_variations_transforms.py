"""Programs that fail under transforms and overrides, or for no reason of the dispatcher, and right programs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.live.why_programs_side import Program, outcome_of, programs


@pytest.mark.parametrize("program", programs("failing"), ids=lambda program: program.name)
def test_a_program_fails_for_its_cause(program: Program, tmp_path: Path) -> None:
    code, answer = outcome_of(program, tmp_path)
    assert code == 1, (tmp_path / "output").read_text()[-2000:]
    assert answer is not None
    assert answer.code == program.code, answer.cause
    shown = "\n".join([answer.cause, *(trial.fix.text for trial in answer.fixes)])
    assert [word for word in program.words if word not in shown] == [], shown


@pytest.mark.parametrize("program", programs("right"), ids=lambda program: program.name)
def test_a_right_program_has_no_finding(program: Program, tmp_path: Path) -> None:
    code, answer = outcome_of(program, tmp_path)
    assert (code, answer) == (0, None), (tmp_path / "output").read_text()[-2000:]
