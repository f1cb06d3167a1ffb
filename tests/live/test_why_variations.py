"""Programs that fail for one cause in several ways: it is found, its line names what it must, and so do its fixes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.questions.why.run import why_program
from tests.why_programs import Variation, variations, why

pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a fork")
FILES = sorted((Path(__file__).parent / "why_variations").glob("*.txt"))
ALL = [variation for file in FILES for variation in variations(file)]


@pytest.mark.parametrize("variation", ALL, ids=lambda variation: f"{variation.code}-{variation.name}")
def test_a_variation_gets_its_cause(variation: Variation, tmp_path: Path) -> None:
    code, answer = why(tmp_path, variation.files, "program.py")
    if variation.code == "right":
        assert (code, answer) == (0, None)
    else:
        assert answer is not None, f"exit {code} without an answer"
        assert answer.code == variation.code, answer.cause
        assert [word for word in variation.cause if word not in answer.cause] == [], answer.cause
        assert not variation.fix or [fix for fix in fixes(answer) if holds(fix, variation.fix)], fixes(answer)


def fixes(answer: Answer) -> list[str]:
    """Return the fixes of an answer, each with its outcome."""
    return [f"{trial.fix.text}(tried: {trial.outcome})" for trial in answer.fixes]


def holds(fix: str, wanted: str) -> bool:
    """Return whether a fix holds a text, and was seen to work where the text ends so."""
    text, tried, _ = wanted.partition("(tried: works)")
    return text in fix and (not tried or fix.endswith(tried))


@pytest.mark.parametrize("crashes", ["area(torch.ones(2))", "ctypes.string_at(8)"])
def test_a_crash_in_an_operator_that_is_gone_is_explained(
    crashes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""\
import ctypes
import torch

def register():
    lib = torch.library.Library("boxes", "FRAGMENT")
    lib.define("area(Tensor x) -> Tensor")
    lib.impl("area", lambda x: x.prod(), "CPU")
    return torch.ops.boxes.area

bounds = register()
{crashes.replace("area", "bounds")}
"""
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    outcome = why_program(["program.py"], quiet=True)
    assert outcome.exit_code < 0
    assert outcome.answer is not None
    assert outcome.answer.code == ("WHY102" if "area" in crashes else "")
    assert ("boxes::area was defined at program.py:6 and released" in outcome.answer.cause) == ("area" in crashes)


def test_a_crash_after_a_function_with_too_many_results_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """\
import torch

@torch.library.custom_op("boxes::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:1].clone(), x[1:].clone(), x.clone()

halves(torch.ones(2))
"""
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    outcome = why_program(["program.py"], quiet=True)
    assert outcome.exit_code < 0
    assert outcome.answer is not None
    assert outcome.answer.code == "WHY212"
    assert "the call of boxes::halves crashed the process" in outcome.answer.cause
    assert "(Tensor, Tensor)" in outcome.answer.cause
