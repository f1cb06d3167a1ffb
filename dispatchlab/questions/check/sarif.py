"""The findings of a check as SARIF 2.1.0: one run, with the rules of lint and the kinds of the other questions."""

from __future__ import annotations

from dispatchlab.questions.check.findings import KINDS
from dispatchlab.questions.check.report import CheckReport
from dispatchlab.questions.lint.checkout import Checkout
from dispatchlab.questions.lint.rule import LintReport
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.lint.sarif import sarif


def check_sarif(report: CheckReport, checkout: Checkout) -> str:
    """The findings of all questions, without those that two of them have.

    Args:
        report: what was found.
        checkout: what paths are relative to.
    """
    findings = tuple(finding for group in report.groups for finding in group.findings)
    found = LintReport("check", 0, (), findings)
    return sarif((found,), checkout, imports=report.packages, rules=(*RULES, *KINDS.values()))
