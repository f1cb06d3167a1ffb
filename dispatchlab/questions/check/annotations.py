"""Findings as annotations of a GitHub workflow, which GitHub shows beside the code of a pull request.

Format: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatchlab.questions.check.blocks import hidden_text, summary
from dispatchlab.questions.check.findings import kinds, name_of
from dispatchlab.questions.check.report import CheckReport
from dispatchlab.questions.check.trials import NO_INPUT
from dispatchlab.questions.lint.blocks import SHOWN
from dispatchlab.questions.lint.checkout import Checkout
from dispatchlab.questions.lint.rule import Finding, FindingGroup, Level, LintReport
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.lint.sarif import sarif
from dispatchlab.registries.debug_text import sites_in
from dispatchlab.views.formatting import escaped

_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFORMATION: "notice"}


def github_annotations(report: CheckReport, checkout: Checkout) -> str:
    """Return the findings, the most harmful first, and then a line for each question.

    Args:
        report: the report of the check.
        checkout: the checkout of relative paths; a finding in a file outside of it gets no source location.
    """
    lines = [_line(group, checkout) for group in report.groups[:SHOWN]]
    lines += [f"{answer.question}: {answer.shown}" for answer in report.answers]
    # A green workflow must not hide operators that were never called.
    lines += [
        f"::warning title=dispatchlab {answer.question}::{escaped(note)}"
        for answer in report.answers
        for note in answer.notes
        if note.startswith(NO_INPUT)
    ]
    hidden = hidden_text(report)
    return "".join(f"{line}\n" for line in (*lines, *([hidden] if hidden else ()), summary(report)))


def _line(group: FindingGroup, checkout: Checkout) -> str:
    finding = group.first
    more = f" (and {len(group.findings) - 1:,} more with this cause)" if len(group.findings) > 1 else ""
    fix = f"\nTo fix it: {finding.fix}" if finding.fix else ""
    key = "" if finding.key is None else f" {finding.key}"
    about = f"{finding.operator}{key}: " if finding.operator else ""
    sites = (site for debug in finding.owners for site in sites_in(debug))
    places = (
        f"file={escaped(file, property=True)},line={line}," for path, line in sites if (file := checkout.find(path))
    )
    title = escaped(f"dispatchlab {name_of(group.code)}", property=True)
    place = next(places, "")
    return f"::{_COMMANDS[group.level]} {place}title={title}::{escaped(f'{about}{finding.message}{more}{fix}')}"


def findings_sarif(source: str, findings: Iterable[Finding], packages: Sequence[str], checkout: Checkout) -> str:
    """Return the findings of questions about packages, as SARIF.

    Args:
        source: the command.
        findings: the findings.
        packages: the imported packages.
        checkout: the checkout of relative paths.
    """
    found = LintReport(source, 0, (), tuple(findings))
    return sarif((found,), checkout, imports=packages, rules=(*RULES, *kinds().values()))
