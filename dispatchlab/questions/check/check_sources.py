"""Lint scenarios, registries and the running PyTorch, as the report of a check with one question."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from dispatchlab.questions.check.report import Answer, CheckReport, Question
from dispatchlab.questions.check.selection import EVERYTHING, Selection
from dispatchlab.questions.lint.rule import Identity, LintReport, cause_counts
from dispatchlab.questions.lint.rules import rule_named
from dispatchlab.questions.lint.run import lint_source
from dispatchlab.questions.sources.find_sources import LIVE, check_sources
from dispatchlab.views.formatting import counted


def lint_sources(
    sources: Sequence[str],
    selection: Selection,
    *,
    imports: Sequence[str] = (),
    operators: Sequence[str] = (),
    against: str | None = None,
    accepted: Collection[Identity] = (),
    report: Callable[[str], None] | None = None,
) -> CheckReport:
    """Run rules on sources.

    Args:
        sources: registries, scenarios or `live`.
        selection: the findings to show.
        imports: the packages that are imported into `live`.
        operators: see `lint_source`.
        against: likewise.
        accepted: likewise.
        report: likewise.

    Raises:
        DispatchLabError: a source or an operator cannot be used.
    """
    check_sources(sources if against is None else (*sources, against))
    found = []
    for source in sources:
        packages = imports if source == LIVE else ()
        one = lint_source(
            source,
            selection.rules,
            operators=operators,
            imports=packages,
            against=against,
            accepted=accepted,
            report=report,
        )
        found.append(replace(one, source=" and ".join(packages) or source))
    return check_report(found, selection)


def check_report(reports: Sequence[LintReport], selection: Selection = EVERYTHING) -> CheckReport:
    """Return the findings in sources as the report of a check."""
    answers = []
    for report in reports:
        findings = selection.kept(report.findings)
        ignored = len(report.findings) - len(findings)
        left_out = [f"{counted(ignored, 'finding')} ignored"] * bool(ignored)
        of = f"{report.source}: " if len(reports) > 1 else ""
        text = f"{of}{cause_counts(findings) or 'no likely mistake'}"
        answers.append(Answer(Question.LINT, text, findings, (*_notes(report), *left_out)))
    operators = counted(sum(report.operators for report in reports), "operator")
    return CheckReport(
        tuple(report.source for report in reports),
        "",
        operators,
        (),
        tuple(answers),
        accepted=sum(report.accepted for report in reports),
        outdated=tuple(sorted(set.intersection(*({*report.outdated} for report in reports)))),
    )


def _notes(report: LintReport) -> Iterator[str]:
    """Return notes on what was left out and why."""
    if report.known:
        yield f"not shown: {counted(report.known, 'finding')} of PyTorch itself or of the source that is compared with"
    if report.own:
        yield f"{counted(report.own, 'operator')} left out, which only PyTorch registered"
    for package, count in report.others.items():
        yield f"{counted(count, 'finding')} about operators of {package} left out: dispatchlab check {package}"
    for code, why in report.not_checked.items():
        yield f"{code} {rule_named(code).name} was not checked: {why}"
