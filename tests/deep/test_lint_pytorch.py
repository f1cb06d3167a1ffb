"""Every lint rule on all of the bundled registry."""

from __future__ import annotations

from collections import Counter

from tests.test_lint import lint


def test_the_findings_on_pytorch_2_13_are_counted_by_rule() -> None:
    report = lint("torch-2.13-cpu")
    counts = dict(Counter(finding.code for finding in report.findings))
    assert counts == {"DL006": 21, "DL009": 8, "DL010": 111, "DL011": 2}
    assert list(report.not_checked) == ["DL007"]
    assert report.operators == 3_598


def test_nothing_is_new_against_itself() -> None:
    report = lint("torch-2.13-cpu", against="torch-2.13-cpu")
    assert (report.findings, report.not_checked, report.exit_code) == ((), {}, 0)


def test_only_the_operators_that_are_asked_for_are_looked_at() -> None:
    report = lint("torch-2.13-cpu", operators=("aten::matmul",))
    assert report.operators == 1
    assert {finding.operator for finding in report.findings} == {"aten::matmul"}
