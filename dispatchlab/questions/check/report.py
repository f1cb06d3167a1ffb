"""The check of packages as values: an answer for each question, and the report of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dispatchlab._short_repr import WordEnum
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.lint.rule import LEVELS, Finding, FindingGroup, Identity, Level, grouped
from dispatchlab.questions.order.report import Report
from dispatchlab.registries.debug_text import sites_in


class Question(WordEnum):
    """A question about packages, in the order in which findings of one level are shown."""

    ORDER = "order"
    LINT = "lint"
    TRIALS = "trials"
    UPGRADE = "upgrade"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one question.

    Args:
        question: the question.
        text: the answer in a line; why it could not be asked, where it was not.
        findings: what was found, without what a baseline accepts.
        notes: what else a reader should know, a sentence each.
        asked: whether it was asked.
    """

    question: Question
    text: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    asked: bool = True

    @property
    def shown(self) -> str:
        """The answer in a line, which says so where the question was not asked."""
        return self.text if self.asked else f"not checked: {self.text}"

    @property
    def is_bad(self) -> bool:
        """Whether something was found that is more than information."""
        return any(finding.level is not Level.INFORMATION for finding in self.findings)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What is known of packages, and what is wrong with them.

    Args:
        packages: the packages, as they were named.
        torch: the PyTorch that they were imported into.
        registered: what they register, a clause.
        nothing: those that register nothing.
        answers: what came of each question.
        fails: the questions whose findings fail the check.
        accepted: how many findings a baseline accepts.
        outdated: accepted findings that are not found any more.
        order: the verdict on the order of registrations; None where it was not asked for.
        notes: what could not be read, a sentence each.
    """

    packages: tuple[str, ...]
    torch: str
    registered: str
    nothing: tuple[str, ...]
    answers: tuple[Answer, ...]
    fails: tuple[Question, ...] = tuple(Question)
    accepted: int = 0
    outdated: tuple[Identity, ...] = ()
    order: Report | None = None
    notes: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found, those of each question together."""
        return tuple(finding for answer in self.answers for finding in answer.findings)

    @property
    def groups(self) -> tuple[FindingGroup, ...]:
        """The findings by cause, the most harmful first; what two questions say of one defect is there once."""
        ranks = {finding: at for at, answer in enumerate(self.answers) for finding in answer.findings}
        groups = grouped(_once(self.findings))
        return tuple(sorted(groups, key=lambda group: (LEVELS.index(group.level), ranks[group.first])))

    @property
    def exit_code(self) -> int:
        """2 when a package registers nothing, 1 when something was found that fails; else that of the verdict."""
        if self.nothing:
            return 2
        if any(answer.is_bad for answer in self.answers if answer.question in self.fails):
            return 1
        undecided = self.order is not None and self.order.exploration.verdict not in _DECIDED
        return self.order.exit_code if undecided and self.order is not None and Question.ORDER in self.fails else 0


_DECIDED = (Verdict.ORDER_INDEPENDENT, Verdict.ORDER_DEPENDENT, Verdict.NO_VIOLATION_FOUND)


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without what lint only informs of where the order of the same lines matters."""
    every = tuple(findings)
    depends = {(one.operator, _lines(one)) for one in every if one.code == Question.ORDER and one.level is Level.ERROR}
    return tuple(
        one
        for one in every
        if not (
            _is_of_lint(one)
            and one.level is Level.INFORMATION
            and one.owners
            and (one.operator, _lines(one)) in depends
        )
    )


def _is_of_lint(finding: Finding) -> bool:
    return finding.code.partition("-")[0] not in frozenset(map(str, Question))


def _lines(finding: Finding) -> frozenset[tuple[str, int]]:
    return frozenset(next(sites_in(debug), (debug, 0)) for debug in finding.owners)
