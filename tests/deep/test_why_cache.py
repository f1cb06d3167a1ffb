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


PACK = """\
import torch

@torch.library.custom_op("boxes::pack", mutates_args=())
def pack(x: torch.Tensor) -> torch.Tensor:
    return (x[:, ::2] + x[:, 1::2]).contiguous()

@pack.register_fake
def _(x):
    return x.new_empty(x.shape[0], WIDTH)

torch.compile(lambda x: pack(x) * 2, fullgraph=True)(torch.ones(4, 8))
"""


def test_code_that_was_compiled_for_another_fake_kernel_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    answers = []
    for width in ("x.shape[1]", "x.shape[1] // 2"):  # wrong, then right
        (tmp_path / "program.py").write_text(PACK.replace("WIDTH", width), encoding="utf-8")
        answer = why_program(["program.py"], quiet=True).answer
        assert answer is not None
        answers.append(answer)
    assert [answer.code for answer in answers] == ["WHY403", "WHY721"]
    assert "compiled for an earlier fake kernel of boxes::pack" in answers[-1].cause
