"""Each call that readiness names closes the gap that it is named for: packages are made without, and then with them."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.live import forked
from tests.process.readiness_closing import OPERATORS, package

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


def _cells(folder: Path, source: str, *options: str) -> dict[str, dict[str, dict[str, Any]]]:
    """What readiness says of a package: operator -> column -> cell."""
    (folder / "closing_package.py").write_text(source)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    command = ("-m", "dispatchlab", "readiness", "closing_package", "--format", "json", *options)
    done = forked.python(*command, folder=folder, environment=environment, having=forked.COMPILERS)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["notes"] == []
    return {one["operator"]: one["cells"] for one in found["operators"]}


def test_a_gap_is_closed_by_the_call_that_is_named_for_it(tmp_path: Path) -> None:
    before = _cells(tmp_path, package())
    assert set(before) == {f"closing::{one.name}" for one in OPERATORS}
    calls = {
        name: tuple(dict.fromkeys(cell["closes"] for cell in cells.values() if cell["closes"]))
        for name, cells in before.items()
    }
    # NB: read in one process and run in another, so that a run which fails takes a "yes" back
    after = _cells(tmp_path, package(calls), "--inputs", "closing_package:ARGUMENTS")
    closed: Counter[str] = Counter()
    left, ran = [], 0
    for name, cells in before.items():
        for column, cell in cells.items():
            if cell["closes"]:
                closed[column] += 1
                if after[name][column]["answer"] not in ("yes", "registered", "not needed"):
                    left.append((name, column, cell["closes"], after[name][column]))
                ran += after[name][column]["by_run"]
    assert not left
    assert ran >= 120, "too few of the calls were run for this to show anything"
    named = {"cpu", "fake", "autograd", "functionalize", "vmap", "autocast", "dtensor", "export", "inductor", "tags"}
    assert set(closed) >= named, "a column with a call that nothing here lacks"
    assert sum(closed.values()) >= 150, closed
