"""Findings as SARIF 2.1.0: one run, with the rules of lint and the kinds of the other questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatchlab.questions.check.findings import KINDS
from dispatchlab.questions.lint.checkout import Checkout
from dispatchlab.questions.lint.rule import Finding, LintReport
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.lint.sarif import sarif


def findings_sarif(source: str, findings: Iterable[Finding], packages: Sequence[str], checkout: Checkout) -> str:
    """The findings of questions about packages.

    Args:
        source: the command.
        findings: what was found.
        packages: what was imported.
        checkout: what paths are relative to.
    """
    found = LintReport(source, 0, (), tuple(findings))
    return sarif((found,), checkout, imports=packages, rules=(*RULES, *KINDS.values()))
