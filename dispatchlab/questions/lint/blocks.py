"""Findings of lint as blocks: by cause, the most harmful first; in a page every finding by itself, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from dispatchlab.questions.lint.rule import (
    LEVELS,
    Finding,
    FindingGroup,
    Identity,
    Kind,
    Level,
    LintReport,
    level_counts,
)
from dispatchlab.questions.lint.rules import RULES, rule_named
from dispatchlab.records.debug_text import sites_in
from dispatchlab.sources.find_sources import LIVE
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted
from dispatchlab.views.source_locations import short_debug
from dispatchlab.views.view import View

SHOWN = 20
"""How many findings of a source are shown, findings of one cause counted once, unless all are requested."""

OTHERS = 3
"""How many findings of one cause are named, unless all are requested."""

_FEW = 50
LEVEL_MOODS: dict[Level, b.Mood] = {Level.ERROR: "bad", Level.WARNING: "warn", Level.INFORMATION: ""}
_TITLES = {Level.ERROR: "errors", Level.WARNING: "warnings", Level.INFORMATION: "information"}

_Reports = Mapping[str, Sequence[LintReport]]


def lint_view(reports: Sequence[LintReport], *, complete: bool = False) -> View[_Reports]:
    """How findings are shown.

    Args:
        reports: the findings of each source.
        complete: show every finding, and every operator of a cause.
    """
    lines, screen = partial(_lines, complete=complete), partial(_screen, complete=complete)
    return View({"sources": reports}, lines=lines, screen=screen, document=_page, indent=1, whole=complete)


@as_json.register
def _(value: Finding) -> dict[str, object]:
    lint = any(rule.code == value.code for rule in RULES)  # else another question's
    rule = rule_named(value.code).name if lint else value.code
    return {"code": value.code, "rule": rule, **fields_of(value, without=("code",))}


@as_json.register
def _(value: Identity) -> str:
    return str(value)


@as_json.register
def _(value: LintReport) -> dict[str, object]:
    codes = sorted({finding.code for finding in value.findings})
    rules = {code: {part: getattr(rule_named(code), part) for part in _PARTS} for code in codes}
    return fields_of(value, groups=value.groups, rules=rules)


_PARTS = ("name", "what", "why", "mend", "unknown")


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


# -- lines and a terminal: by cause, and how many there are of each rule and what was left out


def _lines(found: _Reports, *, complete: bool) -> Iterator[b.Block]:
    for number, report in enumerate(found["sources"]):
        if number:
            yield b.Line()
        groups = _groups(report, complete=complete)
        for group in groups:
            yield b.Line(f"{group.level}: {group.first}")
            yield from _details(group, complete=complete)
        if groups:
            yield b.Line()
        yield from _summary(report, complete=complete)


def _screen(found: _Reports, *, complete: bool) -> Iterator[b.Block]:
    for number, report in enumerate(found["sources"]):
        if number:
            yield b.Line()
        first, *rest = _summary(report, complete=complete)
        yield b.Frame((b.Line(first.content, "strong"), *rest), "bad" if report.exit_code else "good")
        for group in _groups(report, complete=complete):
            yield from group_screen(group, f"{group.code} {rule_named(group.code).name}")
            yield from _details(group, complete=complete)


def group_screen(group: FindingGroup, name: str) -> Iterator[b.Line]:
    """What was found, on a terminal.

    Args:
        group: findings of one cause.
        name: the code and the name of their kind.
    """
    finding = group.first
    key = "" if finding.key is None else f" {finding.key}"
    level = b.Span(f"{group.level} {name}", LEVEL_MOODS[group.level] or "strong")
    yield b.Line()
    yield b.Line((level, b.strong(f" {finding.operator}{key}")), hang=4)
    yield b.Line(finding.message, indent=2)


def _groups(report: LintReport, *, complete: bool) -> tuple[FindingGroup, ...]:
    return report.groups if complete else report.groups[:SHOWN]


def _details(group: FindingGroup, *, complete: bool) -> Iterator[b.Line]:
    """The operators with the same cause, and what fixes it."""
    shared = Counter(site for finding in group.findings for site in set(_sites(finding)))
    yield from same_and_fix(group, lambda finding: _site(finding, shared), complete=complete)


def same_and_fix(
    group: FindingGroup, site: Callable[[Finding], str] = lambda _: "", *, complete: bool
) -> Iterator[b.Line]:
    """The operators with the same cause, and what fixes it.

    Args:
        group: findings of one cause.
        site: what is said behind an operator.
        complete: show every operator.
    """
    others = group.findings[1:]
    if others:
        shown = others if complete else others[:OTHERS]
        more = f", and {len(others) - len(shown):,} more" if len(others) > len(shown) else ""
        names = ", ".join(f"{finding.operator}{site(finding)}" for finding in shown)
        yield b.Line(f"{names}{more}", indent=2, label=b.quiet("the same: "))
    if group.first.mend:
        yield b.Line(group.first.mend, indent=2, label=b.quiet("to fix it: "))


def _site(finding: Finding, shared: Mapping[tuple[str, int], int]) -> str:
    """The line to look at: the first of the callers that is not that of other findings, too."""
    sites = _sites(finding)
    site = next((site for site in sites if shared[site] == 1), next(iter(sites), None))
    return "" if site is None else f" ({site[0]}:{site[1]})"


def _sites(finding: Finding) -> tuple[tuple[str, int], ...]:
    """The lines of the first registration that takes part and has any, its callers first."""
    return next((sites for debug in finding.owners if (sites := tuple(sites_in(debug)))), ())


def summary(report: LintReport) -> str:
    """How many findings there are, in one line."""
    by_level = level_counts([finding.level for finding in report.findings])
    what = f"{counted(len(report.findings), 'finding')} in {counted(report.operators, 'operator')}"
    return f"{report.source}: {what}{f' ({by_level})' if by_level else ''}"


def _summary(report: LintReport, *, complete: bool) -> Iterator[b.Line]:
    """How many findings there are and of which rules; what was left out and why."""
    yield b.Line(summary(report))
    for text in _summary_rows(report, complete=complete):
        yield b.Line(text, indent=2)


def _summary_rows(report: LintReport, *, complete: bool) -> Iterator[str]:
    for code, count in report.counts().items():
        if count:
            yield f"{code} {rule_named(code).name}: {count:,}"
    hidden = report.groups[SHOWN:]
    if hidden and not complete:
        findings = counted(sum(len(group.findings) for group in hidden), "finding")
        yield f"{len(hidden):,} more causes with {findings} are not shown; --all shows them"
    if report.known:
        yield f"{report.known:,} more were there before"
    if report.own:
        yield f"{counted(report.own, 'operator')} that PyTorch registered for itself left out"
    for package, count in report.others.items():
        how = f"lint them with --import {package}" if report.source == LIVE else f"lint a record of {package}"
        yield f"{counted(count, 'finding')} about operators of {package} left out: {how}"
    if report.accepted:
        yield f"{report.accepted:,} more are accepted by the baseline"
    if report.outdated:
        shown = ", ".join(map(str, report.outdated[:3])) + (", ..." if len(report.outdated) > 3 else "")
        yield f"{len(report.outdated):,} of the baseline are not found any more: {shown}"
    for code, why in report.not_checked.items():
        yield f"{code} {rule_named(code).name} was not checked: {why}"


# -- a page: findings by cause, every finding by itself, and what their rules are about


def _page(found: _Reports) -> b.Document:
    reports = found["sources"]
    findings = [finding for report in reports for finding in report.findings]
    is_bad = any(report.exit_code for report in reports)
    text = "likely mistakes" if is_bad else "nothing but information" if findings else "nothing found"
    counts = ((_TITLES[level], sum(finding.level is level for finding in findings)) for level in LEVELS)
    facts = b.Facts((*counts, ("operators", sum(report.operators for report in reports))))
    alone = len(reports) == 1
    sections = [section for at, report in enumerate(reports) for section in _sections(report, at, alone=alone)]
    lead = (b.Verdict(text, "bad" if is_bad else "good"), facts)
    return b.Document("lint", ", ".join(report.source for report in reports), (*lead, *sections, *_rules(findings)))


def _sections(report: LintReport, at: int, *, alone: bool) -> Iterator[b.Section]:
    of = "" if alone else f" in {report.source}"
    heads: tuple[str, ...] = ("such as", "operators", "level", "rule", "what was found, and how to fix it")
    errors = frozenset(number for number, group in enumerate(report.groups) if group.level is Level.ERROR)
    causes = b.Table(f"Causes{of}, the most harmful first", heads, tuple(map(_group, report.groups)), errors)
    yield b.Section(f"Causes{of}", (causes,), f"s{at}-causes")
    heads = ("operator", "key", "rule", "level", "what was found", "registered at")
    findings = b.Table(f"Findings{of}", heads, tuple(map(_finding, report.findings)))
    number = len(report.findings)
    folded = b.Folded(counted(number, "finding"), (findings,), is_open=number <= _FEW)
    yield b.Section(f"Findings{of}", (folded,), f"s{at}-findings")
    yield b.Section(f"Summary{of}", (b.Frame(tuple(_summary(report, complete=True))),), f"s{at}-summary")


def _group(group: FindingGroup) -> b.Row:
    first = group.first
    found = (short_debug(first.message), *([b.quiet(f"To fix it: {first.mend}")] if first.mend else ()))
    return (
        b.Cell(first.operator, "name"),
        len(group.findings),
        b.Cell(b.mark(str(group.level), LEVEL_MOODS[group.level]), "name", LEVELS.index(group.level)),
        b.Cell(f"{group.code} {rule_named(group.code).name}", "name"),
        b.Cell(b.Stack(found), "prose"),
    )


def _finding(finding: Finding) -> b.Row:
    return (
        b.Cell(finding.operator, "name"),
        b.Cell("" if finding.key is None else str(finding.key), "name"),
        b.Cell(finding.code, "name"),
        b.Cell(str(finding.level), "name", LEVELS.index(finding.level)),
        short_debug(finding.message),
        b.Cell(b.Stack(tuple(map(b.source, finding.owners))), "code"),
    )


def _rules(findings: Sequence[Finding]) -> Iterator[b.Section]:
    codes = sorted({finding.code for finding in findings})
    if codes:
        yield b.Section(
            "Rules", tuple(about(rule_named(code), f"{code} {rule_named(code).name}") for code in codes), "rules"
        )


def about(kind: Kind, title: str) -> b.Folded:
    """What findings of a kind are about, for a page."""
    lines = (b.Line(kind.what), b.Line((b.strong("Why: "), kind.why)), b.Line((b.strong("To fix it: "), kind.mend)))
    return b.Folded(title, lines)
