"""Findings of lint as text, as JSON, as SARIF 2.1.0 and for a terminal.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dispatchlab import __version__
from dispatchlab.lint.rule import Finding, LintReport, Rule
from dispatchlab.lint.rules import RULES, rule_named
from dispatchlab.render.as_json import as_json, fields_of, json_text, plain_json_text
from dispatchlab.render.formatting import printable

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
    return json_text({"sources": reports}, indent=1)


@as_json.register
def _(value: Finding) -> dict[str, object]:
    return {"code": value.code, "rule": rule_named(value.code).name, **fields_of(value, without=("code",))}


def print_lint(console: Console, reports: Sequence[LintReport]) -> None:
    """Print the findings of each rule under its name, then the summary, for each source."""
    for report in reports:
        _print_report(console, report)


def _print_report(console: Console, report: LintReport) -> None:
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


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_PLACE = re.compile(r"(?:registered at )?(?P<path>[^\s:][^:\n]*\.\w+):(?P<line>[1-9]\d*)")
_INDEX = {rule.code: at for at, rule in enumerate(RULES)}


def sarif(reports: Sequence[LintReport]) -> str:
    """One run for each source, with every rule and where each finding comes from, as far as its debug text says."""
    value = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(report) for report in reports]}
    return plain_json_text(value, indent=1)


def _run(report: LintReport) -> dict[str, object]:
    driver = {"name": "dispatchlab", "version": __version__, "rules": [_rule(rule) for rule in RULES]}
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"dispatchlab/{report.source}"},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding) for finding in report.findings],
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.mend, "markdown": rule.page()},
        "defaultConfiguration": {"level": "warning"},
    }


def _result(finding: Finding) -> dict[str, object]:
    key = "" if finding.key is None else f" {finding.key}"
    location: dict[str, object] = {
        "logicalLocations": [{"fullyQualifiedName": f"{finding.operator}{key}", "kind": "function"}]
    }
    places = [place for debug in finding.owners if (place := _place(debug)) is not None]
    if places:
        location["physicalLocation"] = places[0]
    result: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": _INDEX[finding.code],
        "level": "warning",
        "message": {"text": f"{finding.operator}{key}: {finding.message}"},
        "locations": [location],
        "partialFingerprints": {"dispatchlab/v1": "/".join(finding.identity)},
    }
    if places[1:]:
        result["relatedLocations"] = [
            {"id": number, "physicalLocation": place} for number, place in enumerate(places[1:], 1)
        ]
    return result


def _place(debug: str) -> dict[str, object] | None:
    found = _PLACE.fullmatch(debug)
    if found is None:
        return None
    uri = found["path"].replace("\\", "/").replace(" ", "%20")
    return {
        "artifactLocation": {"uri": f"file://{uri}" if uri.startswith("/") else uri},
        "region": {"startLine": int(found["line"])},
    }
