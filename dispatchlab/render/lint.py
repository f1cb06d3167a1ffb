"""Findings of lint as text, as JSON and for a terminal: by cause, the most harmful first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dispatchlab.analysis.sources import LIVE
from dispatchlab.escape import printable
from dispatchlab.lint.debug_text import sites_in
from dispatchlab.lint.rule import LEVELS, Finding, FindingGroup, Identity, Level, LintReport
from dispatchlab.lint.rules import rule_named
from dispatchlab.render.as_json import as_json, fields_of, json_text

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 20
"""How many findings of a source are shown, findings of one cause counted once, unless all are requested."""

_OTHERS = 3


def lint_text(report: LintReport, *, complete: bool = False) -> str:
    """What was found, by cause, and then how many there are of each rule and what was left out.

    Args:
        report: the findings.
        complete: show every finding, and every operator of a cause.
    """
    lines = [line for group in _shown(report, complete=complete) for line in _group_lines(group, complete=complete)]
    summary = lint_summary(report, complete=complete)
    return "".join(f"{line}\n" for line in [*lines, *([""] if lines else []), *summary])


def _shown(report: LintReport, *, complete: bool) -> tuple[FindingGroup, ...]:
    return report.groups if complete else report.groups[:SHOWN]


def _group_lines(group: FindingGroup, *, complete: bool) -> Iterator[str]:
    yield printable(f"{group.level}: {group.first}")
    yield from (f"  {line}" for line in _details(group, complete=complete))


def _details(group: FindingGroup, *, complete: bool) -> Iterator[str]:
    """The operators with the same cause, and what mends it."""
    others = group.findings[1:]
    if others:
        shown = others if complete else others[:_OTHERS]
        more = f", and {len(others) - len(shown):,} more" if len(others) > len(shown) else ""
        shared = Counter(site for each in group.findings for site in set(_lines_of(each)))
        names = ", ".join(f"{each.operator}{_line_of(each, shared)}" for each in shown)
        yield printable(f"the same: {names}{more}")
    if group.first.mend:
        yield printable(f"to mend it: {group.first.mend}")


def _line_of(finding: Finding, shared: Mapping[tuple[str, int], int]) -> str:
    """The line to look at: the first of the callers that is not that of other findings, too."""
    sites = _lines_of(finding)
    site = next((site for site in sites if shared[site] == 1), next(iter(sites), None))
    return "" if site is None else f" ({site[0]}:{site[1]})"


def _lines_of(finding: Finding) -> tuple[tuple[str, int], ...]:
    """The lines of the first registration that takes part and has any, its callers first."""
    return next((sites for debug in finding.owners if (sites := tuple(sites_in(debug)))), ())


def lint_summary(report: LintReport, *, complete: bool = False) -> Iterator[str]:
    """How many findings there are and of which rules; what was left out and why."""
    number = len(report.findings)
    operators = f"{report.operators:,} operator{'' if report.operators == 1 else 's'}"
    levels = [(level, sum(finding.level is level for finding in report.findings)) for level in LEVELS]
    by_level = ", ".join(_counted(count, level) for level, count in levels if count)
    yield f"{report.source}: {_counted(number, 'finding')} in {operators}{f' ({by_level})' if by_level else ''}"
    for code, count in report.counts().items():
        if count:
            yield f"  {code} {rule_named(code).name}: {count:,}"
    hidden = report.groups[SHOWN:]
    if hidden and not complete:
        findings = _counted(sum(len(group.findings) for group in hidden), "finding")
        yield f"  {len(hidden):,} more causes with {findings} are not shown; --all shows them"
    if report.known:
        yield f"  {report.known:,} more were there before"
    if report.own:
        yield f"  {_counted(report.own, 'operator')} that PyTorch registered for itself left out"
    for package, count in report.others.items():
        how = f"lint them with --import {package}" if report.source == LIVE else f"lint a record of {package}"
        yield f"  {_counted(count, 'finding')} about operators of {package} left out: {how}"
    if report.accepted:
        yield f"  {report.accepted:,} more are accepted by the baseline"
    if report.outdated:
        shown = ", ".join(map(str, report.outdated[:3])) + (", ..." if len(report.outdated) > 3 else "")
        yield f"  {len(report.outdated):,} of the baseline are not found any more: {printable(shown)}"
    for code, why in report.not_checked.items():
        yield f"  {code} {rule_named(code).name} was not checked: {why}"


def _counted(number: int, what: str) -> str:
    plural = "" if number == 1 or what == Level.INFORMATION else "s"
    return f"{number:,} {what}{plural}"


def lint_json(reports: Sequence[LintReport]) -> str:
    """All findings of all sources, and by cause; `version` says which fields there are."""
    return json_text({"sources": reports}, indent=1)


@as_json.register
def _(value: Finding) -> dict[str, object]:
    return {"code": value.code, "rule": rule_named(value.code).name, **fields_of(value, without=("code",))}


@as_json.register
def _(value: Identity) -> str:
    return str(value)


@as_json.register
def _(value: LintReport) -> dict[str, object]:
    rules = {code: _rule_fields(code) for code in sorted({finding.code for finding in value.findings})}
    return fields_of(value, groups=value.groups, rules=rules)


@as_json.register
def _(value: FindingGroup) -> dict[str, object]:
    return {
        "code": value.code,
        "level": value.level,
        "cause": value.first.cause,
        "message": value.first.message,
        "mend": value.first.mend,
        "operators": [finding.operator for finding in value.findings],
    }


def _rule_fields(code: str) -> dict[str, str]:
    rule = rule_named(code)
    return {"name": rule.name, "what": rule.what, "why": rule.why, "mend": rule.mend, "unknown": rule.unknown}


def print_lint(console: Console, reports: Sequence[LintReport], *, complete: bool = False) -> None:
    """Print the summary, then the findings by cause, for each source."""
    for number, report in enumerate(reports):
        if number:
            console.print()
        _print_report(console, report, complete=complete)


def _print_report(console: Console, report: LintReport, *, complete: bool) -> None:
    from rich.text import Text

    from dispatchlab.render.page import Page, words
    from dispatchlab.render.styles import BAD, GOOD, QUIET, TITLE, WARNING

    styles = {Level.ERROR: BAD, Level.WARNING: f"bold {WARNING}", Level.INFORMATION: TITLE}
    page = Page(console, whole=complete)
    with page.framed(BAD if report.exit_code else GOOD):
        first, *rest = lint_summary(report, complete=complete)
        page.line(first, TITLE)
        for line in rest:
            page.line(line.strip(), indent=2)
    for group in _shown(report, complete=complete):
        found = group.first
        key = "" if found.key is None else f" {found.key}"
        page.blank()
        head = words(f"{group.level} {group.code} {rule_named(group.code).name}", styles[group.level])
        page.flow([*head, *words(f" {found.operator}{key}", TITLE)], indent=4, first=Text())
        page.line(found.message, indent=2)
        for line in _details(group, complete=complete):
            title, _, content = line.partition(": ")
            page.flow(page.words(content), indent=4, first=Text(f"  {title}:", QUIET))
