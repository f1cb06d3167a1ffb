"""The report of `lint`: findings by cause, every finding by itself, and what their rules are about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.lint.rule import LEVELS, Finding, FindingGroup, Level, LintReport
from dispatchlab.lint.rules import rule_named
from dispatchlab.render.html.elements import Html, breakable, element, joined
from dispatchlab.render.html.page import Section, page
from dispatchlab.render.html.parts import Cell, Mood, Row, data_table, facts, folded, lines, short_debug, verdict
from dispatchlab.render.lint import lint_summary

_MOODS: dict[Level, Mood] = {Level.ERROR: "bad", Level.WARNING: "warn", Level.INFORMATION: ""}
_TITLES = {Level.ERROR: "errors", Level.WARNING: "warnings", Level.INFORMATION: "information"}


def lint_report(reports: Sequence[LintReport]) -> str:
    """The findings of some sources."""
    sections = [
        section for at, report in enumerate(reports) for section in _sections(report, at, alone=len(reports) == 1)
    ]
    title = ", ".join(report.source for report in reports)
    return page("lint", title, _lead(reports), [*sections, *_rules(reports)])


def _lead(reports: Sequence[LintReport]) -> Html:
    findings = [finding for report in reports for finding in report.findings]
    bad = any(report.exit_code for report in reports)
    text = "likely mistakes" if bad else "nothing but information" if findings else "nothing found"
    counted = [(_TITLES[level], sum(finding.level is level for finding in findings)) for level in LEVELS]
    operators = sum(report.operators for report in reports)
    return joined((element("p", verdict(text, "bad" if bad else "good")), facts([*counted, ("operators", operators)])))


def _sections(report: LintReport, at: int, *, alone: bool) -> Iterator[Section]:
    of = "" if alone else f" in {report.source}"
    groups = [_group(group) for group in report.groups]
    heads: tuple[str, ...] = ("such as", "operators", "level", "rule", "what was found, and how to mend it")
    bad = [number for number, group in enumerate(report.groups) if group.level is Level.ERROR]
    causes = data_table(f"Causes{of}, the most harmful first", heads, groups, bad=bad)
    yield Section(f"s{at}-causes", f"Causes{of}", causes)
    heads = ("operator", "key", "rule", "level", "what was found", "registered at")
    findings = data_table(f"Findings{of}", heads, map(_finding, report.findings))
    number = f"{len(report.findings):,} finding{'' if len(report.findings) == 1 else 's'}"
    yield Section(f"s{at}-findings", f"Findings{of}", folded(number, findings, is_open=len(report.findings) <= _FEW))
    text = "\n".join(lint_summary(report, complete=True))
    yield Section(f"s{at}-summary", f"Summary{of}", element("pre", text, tabindex=0))


_FEW = 50


def _group(group: FindingGroup) -> Row:
    first = group.first
    found = [element("div", breakable(short_debug(first.message)))]
    found += [element("div", breakable(f"To mend it: {first.mend}"), class_="quiet")] * bool(first.mend)
    return (
        Cell(first.operator, "name"),
        len(group.findings),
        Cell(_level(group.level), "name", LEVELS.index(group.level)),
        Cell(f"{group.code} {rule_named(group.code).name}", "name"),
        Cell(found, "prose"),
    )


def _level(level: Level) -> Html:
    return verdict(str(level), _MOODS[level])


def _finding(finding: Finding) -> Row:
    return (
        Cell(finding.operator, "name"),
        Cell("" if finding.key is None else str(finding.key), "name"),
        Cell(finding.code, "name"),
        Cell(str(finding.level), "name", LEVELS.index(finding.level)),
        short_debug(finding.message),
        Cell(lines(short_debug(owner) for owner in finding.owners), "code"),
    )


def _rules(reports: Sequence[LintReport]) -> Iterator[Section]:
    codes = sorted({finding.code for report in reports for finding in report.findings})
    if not codes:
        return
    rules = [
        folded(
            f"{code} {rule.name}",
            element("p", rule.what),
            element("p", element("b", "Why: "), rule.why),
            element("p", element("b", "To mend it: "), rule.mend),
        )
        for code, rule in ((code, rule_named(code)) for code in codes)
    ]
    yield Section("rules", "Rules", joined(rules))
