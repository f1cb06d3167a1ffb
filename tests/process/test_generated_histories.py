"""`python -m tests.histories`: generated histories on the installed PyTorch equal its model at every step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests.effort import share
from tests.histories.file import unpacked
from tests.live.packages import ROOT

COUNT = 200


def test_generated_histories_equal_the_model_and_are_written(tmp_path: Path) -> None:
    file, count = tmp_path / "new.json.xz", share(COUNT)
    done = subprocess.run(
        [sys.executable, "-m", "tests.histories", str(file), "--count", str(count), "--kept", "20", "--seed", "8"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["histories"], figures["differences"]) == (count, 0)
    assert figures["steps"] > 8 * count
    assert sum(figures["refusals"].values()) > count // 2
    assert len(unpacked(file.read_bytes()).histories) == min(20, count)
