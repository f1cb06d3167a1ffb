"""Runs of readiness: operators with one defect each are found, right ones are not condemned, and opcheck agrees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.readiness_operators import DRIVER, OPCHECK, PLANTED, RIGHT

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


def _run(folder: Path, *arguments: str, seed: int = 0) -> subprocess.CompletedProcess[str]:
    for name, text in (("planted", PLANTED), ("right", RIGHT), ("driver", DRIVER), ("beside_opcheck", OPCHECK)):
        (folder / f"readiness_{name}.py").write_text(text)
    paths = os.pathsep.join((str(ROOT), str(folder)))
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths, "RIGHT_SEED": str(seed)},
        check=False,
    )


def _cells(folder: Path, module: str, *slow: str, seed: int = 0) -> Any:
    done = _run(folder, "readiness_driver.py", module, *slow, seed=seed)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_planted_defect_is_found_in_a_column_of_its_kind(tmp_path: Path) -> None:
    found, expected = _cells(tmp_path, "readiness_planted")
    missed = {
        name: runs for name, runs in found.items() if not any(runs[column][0] == "fails" for column in expected[name])
    }
    assert not missed
    assert len(found) >= 50
    shown = " ".join(how for runs in found.values() for outcome, how in runs.values() if outcome == "fails")
    for text in (
        "its fake gives shape [3, 4] instead of [4]",
        "its fake gives dtype torch.float32 instead of torch.float64",
        "its fake gives stride [4, 1] instead of [1, 3]",
        "the largest of",
        "beside a loop: shape [3, 1, 3, 4] instead of [3, 3, 4]",
        "its gradient is wrong",
        "with tensors that are not contiguous",
        "is not defined as mutable but was mutated",
    ):
        assert text in shown


def test_no_right_operator_is_condemned(tmp_path: Path) -> None:
    assert not condemned(tmp_path, seed=0)


def condemned(folder: Path, *, seed: int) -> dict[tuple[str, str], str]:
    """The cells of right operators that fail on the random inputs of a seed: those that have to be none."""
    found, excepted = _cells(folder, "readiness_right", seed=seed)
    assert len(found) >= 60
    works = sum(outcome == "works" for runs in found.values() for outcome, _ in runs.values())
    assert works >= 600, "too few runs show something"
    return {
        (name, column): how
        for name, runs in found.items()
        for column, (outcome, how) in runs.items()
        if outcome == "fails" and column not in excepted.get(name, ())
    }


def test_the_four_tests_are_those_of_opcheck(tmp_path: Path) -> None:
    done = _run(tmp_path, "readiness_beside_opcheck.py")
    assert done.returncode == 0, done.stderr[-3000:]
    compared, differ = json.loads(done.stdout.splitlines()[-1])
    assert not differ
    assert compared["works"] >= 300
    assert compared["fails"] >= 40


def test_an_operator_that_exits_costs_the_cell_in_which_it_does(tmp_path: Path) -> None:
    options = ("--operator", "planted::*exits", "--inputs", "readiness_planted:INPUTS", "--format", "json")
    done = _run(tmp_path, "-m", "dispatchlab", "readiness", "readiness_planted", *options, "--fail-on", "repeat")
    assert done.returncode == 1, done.stderr
    cells = {one["operator"]: one["cells"] for one in json.loads(done.stdout)["operators"]}
    for name, column in (("exits", "repeat"), ("empty_exits", "empty"), ("fake_exits", "fake")):
        cell = cells[f"planted::{name}"][column]
        assert (cell["answer"], cell["by_run"]) == ("no", True)
        assert "it ends the process" in cell["reason"]
    assert cells["planted::empty_exits"]["strides"]["answer"] == "yes"
    assert cells["planted::exits"]["strides"]["answer"] == "unknown"
