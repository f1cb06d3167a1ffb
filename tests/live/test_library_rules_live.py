"""What PyTorch does with registrations in Python is what the data says of its version."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest

torch = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

from tests.live.library_rules import ABSENT, MORE_RULES, RULES  # noqa: E402
from tools.library_rules import known  # noqa: E402


def _measured(rules: Iterable[str]) -> dict[str, str]:
    """The outcomes, measured in a process of its own, since a process with threads is not to be forked."""
    call = [sys.executable, "-W", "ignore", "-m", "tests.live.library_rules", *rules]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _expected() -> dict[str, str]:
    version = ".".join(torch.__version__.split(".")[:2])
    found = {rule: text for rule, outcomes in known().items() for text, has in outcomes.items() if version in has}
    if not found:
        pytest.skip(f"PyTorch {version} was not measured")
    return found


@pytest.mark.parametrize("rules", [RULES, MORE_RULES], ids=["torch", "inductor_and_dtensor"])
def test_the_outcome_of_each_rule_is_that_of_the_version(rules: dict[str, object]) -> None:
    expected = _expected()
    found = _measured(rules)
    assert found == {rule: expected[rule] for rule in rules}
    assert len({*found.values()} - {ABSENT}) > 4


def test_the_data_has_each_rule_once_for_each_version() -> None:
    data = known()
    assert {*data} == {*RULES, *MORE_RULES}
    versions = {version for outcomes in data.values() for has in outcomes.values() for version in has}
    for outcomes in data.values():
        assert sorted(version for has in outcomes.values() for version in has) == sorted(versions)
