"""What `check` makes of a verdict and of an upgrade: a finding for everything, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab import diff, load_scenario
from dispatchlab.questions.check.findings import upgrade_findings
from dispatchlab.questions.lint.rule import Level

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("before", "after"), [("torch-2.9", "torch-2.15"), ("torch-2.12", "torch-2.15")])
def test_every_change_of_an_upgrade_is_a_finding_and_nothing_else_is(before: str, after: str) -> None:
    found = diff(before, after, package=str(ROOT / "docs" / "upgrade.yaml")).report.package
    assert found is not None
    findings = list(upgrade_findings(found, load_scenario(str(ROOT / "docs" / "upgrade.yaml")), to=after))
    both = [one for one in found.refused if one.before == one.after]
    changes = (found.refused, found.dangling, found.schemas, found.kernels)
    assert len(findings) == sum(map(len, changes)) - len(both)
    assert bool(findings) == found.is_affected
    refused = [one for one in findings if one.level is Level.ERROR and one.cause == "refused"]
    assert len(refused) == len(found.newly_refused)
    assert all(one.fix for one in refused)
    assert [one.operator for one in findings if one.cause == "dangling"] == list(found.dangling)
