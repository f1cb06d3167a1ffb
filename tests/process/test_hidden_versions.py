"""A copy of the checkout that holds nothing of most versions of PyTorch works with what it has left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dispatchlab.model.measured import NO_MEASURE
from tests.live.answers import name_here
from tools.hide_versions import differences, hide

LEFT = "torch-2.9"


def test_a_copy_has_the_versions_that_were_kept_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    hide(folder, (LEFT,))

    def command(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "dispatchlab", *arguments],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(folder), NO_MEASURE: "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    code, said = command("explain", "aten::add.Tensor", "cpu", "cpu", "--from", LEFT)
    assert (code, "runs: AutogradCPU -> CPU" in said) == (0, True), said
    assert "key sets are those of torch-2.13; in torch-2.9 these keys are others" in said
    code, said = command("dump", "aten::relu", "--from", "torch-2.13")
    assert (code, f"{LEFT} to {LEFT}" in said) == (2, True), said


def test_what_a_copy_says_otherwise_is_found(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
    folder = tmp_path / "copy"
    hide(folder, (name_here(),))
    assert [*differences(folder, Path(sys.executable), ("explain",), "5")] == [("explain", 5, [])]
    blocks = folder / "dispatchlab" / "questions" / "explain" / "blocks.py"
    blocks.write_text(blocks.read_text().replace('"runs: ', '"goes: '))
    ((section, count, differ),) = differences(folder, Path(sys.executable), ("explain",), "5")
    assert (section, count) == ("explain", 5)
    assert differ
