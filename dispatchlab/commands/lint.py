"""`dispatchlab lint`: rules on a registry, a scenario or the running PyTorch, with a baseline for what is accepted."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dispatchlab._gc_pause import collector_paused
from dispatchlab.analysis.certificate import OrderReason, pattern_of
from dispatchlab.analysis.replay_on_lab import for_registry
from dispatchlab.analysis.sources import LIVE, chosen, recorded_from
from dispatchlab.analysis.stale_slots import may_leave_behind
from dispatchlab.atomic_write import write_file
from dispatchlab.commands.certify import certification_of
from dispatchlab.commands.coverage import Fill
from dispatchlab.commands.output import note, out
from dispatchlab.lint.baseline import baseline_text, load_baseline
from dispatchlab.lint.rule import LintReport, Subject
from dispatchlab.lint.rules import rule_named, selected
from dispatchlab.lint.run import lint
from dispatchlab.registry.model import Recorded, RecordedOperator

LintFormat: TypeAlias = Literal["rich", "text", "json", "sarif"]

_ORDERED = "torch-2.13"  # what calls use can depend on order there, and nowhere else


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRequest:
    """What was asked for; each field is an option of the command."""

    sources: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    against: str | None = None
    baseline: str | None = None
    write_baseline: str | None = None
    explain: str | None = None
    format: LintFormat | None = None
    color: bool = True


def run_lint(request: LintRequest) -> int:
    """Run the rules and print what they find.

    Returns:
        The exit code: 1 when something was found that no baseline accepts, else 0.

    Raises:
        DispatchLabError: a source, a rule, an operator or the baseline cannot be used.
    """
    if request.explain is not None:
        out(rule_named(request.explain).page())
        return 0
    accepted = frozenset[tuple[str, str, str]]() if request.baseline is None else load_baseline(request.baseline)
    reports = [lint_source(source, request, accepted) for source in request.sources or (LIVE,)]
    _show(reports, request)
    if request.write_baseline is not None:
        findings = [finding for report in reports for finding in report.findings]
        outdated = set.intersection(*({*report.outdated} for report in reports))
        still = [one for one in accepted if " ".join(one).strip() not in outdated]
        write_file(request.write_baseline, baseline_text(findings, still))
        note(f"{request.write_baseline} accepts {len({*still, *(one.identity for one in findings)}):,} findings")
        return 0
    return max(report.exit_code for report in reports)


def lint_source(source: str, request: LintRequest, accepted: frozenset[tuple[str, str, str]]) -> LintReport:
    """What the rules find in one source.

    Raises:
        DispatchLabError: the source, a rule or an operator cannot be used.
    """
    rules = selected(request.select, request.ignore)
    base, recorded, earlier = _moments(source, request)
    operators = tuple(chosen(recorded, request.operators)) if request.operators else None
    subject = _subject(recorded, earlier)
    return lint(
        subject,
        rules,
        source=source,
        base=None if base is None else _subject(base, None),
        operators=operators,
        accepted=accepted,
    )


def _moments(source: str, request: LintRequest) -> tuple[Recorded | None, Recorded, Recorded | None]:
    """What was there before, what is there, and what should be there.

    Of a live process these are before the imports, after garbage was collected, and after the imports.
    """
    if source != LIVE:
        against = None if request.against is None else recorded_from(request.against, report=note)
        return against, recorded_from(source, imports=request.imports, report=note), against
    against = None if request.against is None else recorded_from(request.against, report=note)
    with collector_paused():  # else what nobody keeps may go unseen, or while it is being read
        if against is None and request.imports:
            against = recorded_from(LIVE)
        after = recorded_from(LIVE, imports=request.imports)
        gc.collect()
        return against, recorded_from(LIVE, imports=request.imports), after


def _subject(recorded: Recorded, earlier: Recorded | None) -> Subject:
    fill = Fill(for_registry("strict"), recorded.fallbacks)
    return Subject(recorded, fill, _Order(recorded), earlier)


class _Order:
    """Certifies the operators of which it can matter under PyTorch's refreshes; the others need no look."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def __call__(self, operators: Sequence[RecordedOperator]) -> Mapping[str, tuple[OrderReason, ...]]:
        patterns = may_leave_behind(for_registry(_ORDERED), {pattern_of(operator) for operator in operators})
        concerned = [operator for operator in operators if pattern_of(operator) in patterns]
        if not concerned:
            return {}
        found = certification_of(self._recorded, name="", semantics=_ORDERED, operators=concerned)
        return {each.operator: each.reasons for each in found.certificates}


def _show(reports: Sequence[LintReport], request: LintRequest) -> None:
    match request.format or ("rich" if sys.stdout.isatty() else "text"):
        case "json":
            from dispatchlab.render.lint import lint_json

            out(lint_json(reports))
        case "sarif":
            from dispatchlab.render.lint import sarif

            out(sarif(reports))
        case "text":
            from dispatchlab.render.lint import lint_text

            out("\n".join(lint_text(report) for report in reports))
        case "rich":
            from dispatchlab.render.lint import print_lint
            from dispatchlab.render.rich_view import console

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                for report in reports:
                    print_lint(terminal, report)
            out(captured.get())
