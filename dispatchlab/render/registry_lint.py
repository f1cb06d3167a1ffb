"""What the rules found, as text, as JSON and for people on a terminal; SARIF is in sarif.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dispatchlab.lint.finding import Finding, LintReport
from dispatchlab.lint.rules import rule_named
from dispatchlab.render.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


def lint_text(report: LintReport) -> str:
    """A line for each finding, and then how many there are of each rule and what was left out."""
    lines = [printable(str(finding)) for finding in report.findings]
    return "".join(f"{line}\n" for line in [*lines, *([""] if lines else []), *lint_summary(report)])


def lint_summary(report: LintReport) -> Iterator[str]:
    """How many findings there are and of which rules; what was left out and why."""
    number = len(report.findings)
    operators = f"{report.operators:,} operator{'' if report.operators == 1 else 's'}"
    yield f"{report.source}: {number:,} finding{'' if number == 1 else 's'} in {operators}"
    for code, count in report.counts().items():
        if count:
            yield f"  {code} {rule_named(code).name}: {count:,}"
    if report.known:
        yield f"  {report.known:,} more were there before"
    if report.accepted:
        yield f"  {report.accepted:,} more are accepted by the baseline"
    if report.outdated:
        shown = ", ".join(report.outdated[:3]) + (", ..." if len(report.outdated) > 3 else "")
        yield f"  {len(report.outdated):,} of the baseline are not found any more: {printable(shown)}"
    for code, why in report.not_checked.items():
        yield f"  {code} {rule_named(code).name} was not checked: {why}"


def lint_json(reports: Sequence[LintReport]) -> str:
    """All findings of all sources; `version` says which fields there are."""
    value = {
        "version": 1,
        "sources": [
            {
                "source": report.source,
                "operators": report.operators,
                "checked": list(report.checked),
                "not_checked": dict(report.not_checked),
                "known": report.known,
                "accepted": report.accepted,
                "outdated": list(report.outdated),
                "findings": [_finding(finding) for finding in report.findings],
            }
            for report in reports
        ],
    }
    return f"{json.dumps(value, indent=1)}\n"


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "rule": rule_named(finding.code).name,
        "operator": finding.operator,
        "key": None if finding.key is None else str(finding.key),
        "message": finding.message,
        "owners": list(finding.owners),
    }


def print_lint(console: Console, report: LintReport) -> None:
    """Print the findings of each rule under its name, then the summary."""
    from rich.panel import Panel
    from rich.text import Text

    for code, count in report.counts().items():
        if not count:
            continue
        rule = rule_named(code)
        console.print(Text(f"{code} {rule.name}: {rule.what}", "bold"))
        for finding in report.findings:
            if finding.code == code:
                key = "" if finding.key is None else f" {finding.key}"
                console.print(
                    Text.assemble("  ", (f"{finding.operator}{key}", "cyan"), f": {printable(finding.message)}")
                )
        console.print()
    text = "\n".join(lint_summary(report))
    console.print(Panel(Text(text), border_style="red" if report.findings else "green", expand=False))
