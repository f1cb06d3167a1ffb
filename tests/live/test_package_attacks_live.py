"""Each attack on order independence is one, and each innocent group is innocent: asked of the running PyTorch alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests import effort
from tests.live.package_attacks import ATTACKS, INNOCENT

EVERY = 100 // effort.percent
"""Of how many groups one is asked about: what PyTorch says of them does not change with dispatchlab."""


@pytest.fixture(scope="module")
def truths() -> dict[str, Any]:
    """What every order of each group leads to."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.live.package_attacks", str(EVERY)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_each_group_has_a_name_of_its_own() -> None:
    names = [group.name for group in ATTACKS + INNOCENT]
    assert len(names) == len(set(names))


def test_the_result_of_each_attack_depends_on_the_order_and_on_nothing_else(truths: dict[str, Any]) -> None:
    wrong = {group.name: truths[group.name] for group in ATTACKS[::EVERY]}
    assert {
        name: truth for name, truth in wrong.items() if not truth["differences"] or truth["dropped"] or truth["stuck"]
    } == {}


def test_no_innocent_group_depends_on_the_order_and_every_probe_of_one_has_a_result(truths: dict[str, Any]) -> None:
    wrong = {group.name: truths[group.name] for group in INNOCENT[::EVERY]}
    assert {name: truth for name, truth in wrong.items() if any(truth.values())} == {}
