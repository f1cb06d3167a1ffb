"""Lint one source: load its registry at the moments that rules compare, and run the rules on it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping, Sequence

from dispatchlab._gc_pause import collector_paused
from dispatchlab.analysis.certificate import OrderReason, pattern_of
from dispatchlab.analysis.certify import certification_of
from dispatchlab.analysis.coverage import Fill
from dispatchlab.analysis.replay_on_lab import for_registry
from dispatchlab.analysis.sources import LIVE, chosen, recorded_from
from dispatchlab.analysis.stale_slots import may_leave_behind
from dispatchlab.lint.rule import LintReport, Rule, Subject
from dispatchlab.lint.run import lint
from dispatchlab.registry.model import Recorded, RecordedOperator

_ORDERED = "torch-2.13"  # what calls use can depend on order there, and nowhere else


def lint_source(
    source: str,
    rules: Sequence[Rule],
    *,
    operators: Sequence[str] = (),
    imports: Sequence[str] = (),
    against: str | None = None,
    accepted: Collection[tuple[str, str, str]] = (),
    report: Callable[[str], None] | None = None,
) -> LintReport:
    """Run rules on one source.

    Args:
        source: a registry, a scenario or `live`.
        rules: which rules to run.
        operators: names and globs; all operators when there are none.
        imports: modules to import first, for `live` alone; the findings are theirs.
        against: a source whose findings are left out.
        accepted: the identities of findings that a baseline accepts.
        report: see `recorded_from`.

    Raises:
        DispatchLabError: the source or an operator cannot be used.
    """
    base, recorded, earlier = _moments(source, imports, against, report)
    return lint(
        _subject(recorded, earlier),
        rules,
        source=source,
        base=None if base is None else _subject(base, None),
        operators=tuple(chosen(recorded, operators)) if operators else None,
        accepted=accepted,
    )


def _moments(
    source: str, imports: Sequence[str], against: str | None, report: Callable[[str], None] | None
) -> tuple[Recorded | None, Recorded, Recorded | None]:
    """What was there before, what is there, and what should be there.

    Of a live process these are before the imports, after garbage was collected, and after the imports.
    """
    base = None if against is None else recorded_from(against, report=report)
    if source != LIVE:
        return base, recorded_from(source, imports=imports, report=report), base
    with collector_paused():  # else what nobody keeps may go unseen, or while it is being read
        if base is None and imports:
            base = recorded_from(LIVE)
        after = recorded_from(LIVE, imports=imports)
        gc.collect()
        return base, recorded_from(LIVE, imports=imports), after


def _subject(recorded: Recorded, earlier: Recorded | None) -> Subject:
    fill = Fill(for_registry("strict"), recorded.fallbacks)
    return Subject(recorded, fill, _Order(recorded), earlier)


class _Order:
    """Certifies the operators of which the order can matter under PyTorch's refreshes; the others need no look."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def __call__(self, operators: Sequence[RecordedOperator]) -> Mapping[str, tuple[OrderReason, ...]]:
        patterns = may_leave_behind(for_registry(_ORDERED), {pattern_of(operator) for operator in operators})
        concerned = [operator for operator in operators if pattern_of(operator) in patterns]
        if not concerned:
            return {}
        found = certification_of(self._recorded, name="", semantics=_ORDERED, operators=concerned)
        return {each.operator: each.reasons for each in found.certificates}
