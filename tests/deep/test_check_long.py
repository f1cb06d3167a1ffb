"""What `check` makes of a verdict and of an upgrade: a finding for everything, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dispatchlab import Expectation, check_order, diff, load_scenario
from dispatchlab.questions.check.findings import order_findings, upgrade_findings
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
    assert all(one.mend for one in refused)
    assert [one.operator for one in findings if one.cause == "dangling"] == list(found.dangling)


def test_a_verdict_that_is_not_as_expected_has_a_finding() -> None:
    """Whatever makes `permute` end with 1 makes `check` end with 1."""
    ends = dict.fromkeys((0, 1), 0)
    for file in sorted((ROOT / "scenarios").rglob("*.yaml")):
        scenario = load_scenario(str(file))
        if len(scenario.registrations) > 5 or scenario.expect is not Expectation.ORDER_DEPENDENT:
            continue
        scenario = replace(scenario, expect=Expectation.ORDER_INDEPENDENT)
        report = check_order(scenario).report
        findings = list(order_findings(report, scenario))
        assert any(one.level is Level.ERROR for one in findings) == (report.exit_code == 1), file
        assert bool(findings) or report.as_expected, file
        ends[report.exit_code] += 1
    assert ends[1] > 20
