"""No group of modules whose results depend on the order of imports is called order-independent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

_RUN = """
import json, sys
from dataclasses import asdict
from tests.live.package_attacks import ATTACKS, INNOCENT
from tests.live.package_groups import generated
from tests.live.package_truth import comparisons
every, count, seed = map(int, sys.argv[1:])
groups = [*ATTACKS[::every], *INNOCENT[::every], *(generated(number, seed) for number in range(count))]
print(json.dumps([asdict(row) for row in comparisons(groups, 2)]))
"""

_BY_DEFINITION = {"overloads/list"}
"""The order in which overloads are listed counts where a call may go to either of two; see docs/packages.md."""


def compared(every: int, count: int, seed: int) -> list[dict[str, Any]]:
    """The truth and the verdict of every so many attacks and innocent groups, and of generated ones."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(every), str(count), str(seed)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def false_proofs(rows: list[dict[str, Any]]) -> list[str]:
    """The groups whose results differ, and that are called order-independent."""
    found = [row["name"] for row in rows if row["differences"] and row["verdict"] == "order-independent"]
    return [name for name in found if name not in _BY_DEFINITION]


def proved_of_agreeing(rows: list[dict[str, Any]]) -> float:
    """The share of proofs among the groups whose orders agree, without those that cannot be imported."""
    agreeing = [row for row in rows if not row["differences"] and row["verdict"] != "not recorded"]
    proved = [row for row in agreeing if row["verdict"] == "order-independent"]
    return len(proved) / len(agreeing)


def test_no_proof_is_false_and_most_that_agree_are_proved() -> None:
    rows = compared(every=12, count=10, seed=5)
    assert false_proofs(rows) == []
    assert proved_of_agreeing(rows) > 0.7
