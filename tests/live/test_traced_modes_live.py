"""What `explain` predicts for calls that are traced, or made with DTensors, against what runs in PyTorch.

The figures of 500 operators are in tests/deep/test_traced_modes.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.live import forked

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


def compared(paths: str, count: int, seed: int, *, predict: str = "") -> dict[str, dict[str, Any]]:
    """Compare predictions with what runs, in a process of its own, since the calls import most of PyTorch."""
    done = forked.module("tests.live.traced_modes", paths, str(count), str(seed), predict)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("paths", "count", "least"),
    [
        ("make_fx core_aten,symbolic make_fx inductor,dtensor", 60, 54),
        ("aot_eager,inductor", 20, 18),
        ("export", 20, 18),
    ],
)
def test_what_is_predicted_runs(paths: str, count: int, least: int) -> None:
    for path, found in compared(paths, count, 7).items():
        assert found["differences"] == [], path
        assert found["agree"] >= least, path
        assert found["agree"] + len(found["refused"]) + len(found["unseen"]) == count


def test_dynamo_refuses_operators_that_give_a_plain_value() -> None:
    for found in compared("aot_eager,make_fx none", 0, 0).values():
        assert found["differences"] == []
        assert found["agree"] == 16


def test_a_wrong_prediction_is_seen() -> None:
    found = compared("make_fx core_aten", 40, 7, predict="dtensor")
    assert len(found["make_fx core_aten"]["differences"]) > 10
