"""What `explain --mode` predicts against what runs in PyTorch: wrappers where FakeTensorMode looks see the one mode,
probes in the dispatch tables the transforms and autocast.

The figures of 500 operators, and those of torch.compile, are in tests/deep/test_explain_modes.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

TRANSFORMS = ("vmap", "grad", "functionalize", "autocast")


def compared(mode: str, count: int, seed: int, *, predict: str = "") -> dict[str, Any]:
    """Compare predictions with what runs, in a process of its own, since the calls import most of PyTorch."""
    module = "transform_calls" if mode in ("casts", *TRANSFORMS) else "mode_calls"
    call = [sys.executable, "-W", "ignore", "-m", f"tests.live.{module}", mode, str(count), str(seed), predict]
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


@pytest.mark.parametrize("mode", TRANSFORMS)
def test_every_hop_that_is_predicted_is_taken(mode: str) -> None:
    found = compared(mode, 60, 7)
    assert found["differences"] == []
    assert found["agree"] >= 58


def test_a_wrong_transform_is_seen() -> None:
    assert len(compared("grad", 40, 7, predict="vmap")["differences"]) > 30


def test_autocast_casts_what_the_policy_says() -> None:
    found = compared("casts", 60, 7)
    assert found["looked"] >= 15
    assert found["wrong"] == []
