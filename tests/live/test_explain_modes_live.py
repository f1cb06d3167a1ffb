"""What `explain --mode fake` predicts against what runs in PyTorch, seen by wrappers where FakeTensorMode looks.

The figures of 500 operators, and those of torch.compile, are in tests/deep/test_explain_modes.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


def compared(mode: str, count: int, seed: int, *, predict: str = "") -> dict[str, Any]:
    """Compare predictions with what runs, in a process of its own, since the calls import most of PyTorch."""
    call = [sys.executable, "-W", "ignore", "-m", "tests.live.mode_calls", mode, str(count), str(seed), predict]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_what_is_predicted_runs() -> None:
    found = compared("fake", 80, 7)
    assert found["agree"] == 80
    assert not found["differences"]


def test_a_wrong_prediction_is_seen() -> None:
    assert len(compared("fake", 40, 7, predict="compile")["differences"]) > 10
