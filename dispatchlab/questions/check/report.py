"""The check of packages as values: an answer for each question, and the report of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.lint.rule import LEVELS, Finding, FindingGroup, Identity, Level, grouped
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
    """The answer to one question.

    Args:
        question: the question.
        text: the answer in one line, or the reason why the question was not asked.
        findings: the findings, without those that a baseline accepts.
        notes: further sentences for the reader.
        asked: whether it was asked.
        trials: the trials of the question trials.
    """

    question: Question
    text: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    asked: bool = True
    trials: tuple[TrialRun, ...] = ()

    @property
    def shown(self) -> str:
        """The answer in a line, which says so if the question was not asked."""
        return self.text if self.asked else f"not asked: {self.text}"

    @property
    def is_bad(self) -> bool:
        """True if there is a warning or an error."""
        return any(finding.level is not Level.INFORMATION for finding in self.findings)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The report on packages: facts and findings.

    Args:
        packages: the packages, as the user named them.
        torch: the version of PyTorch.
        registered: a clause about their registrations.
        nothing: the packages that register nothing.
        answers: the answer to each question.
        fails: the questions whose findings fail the check.
        fail_on: the least harmful level that fails it.
        accepted: the number of findings that a baseline accepts.
        outdated: accepted findings that no longer exist.
        notes: a sentence for each unreadable part.
        later: the modules of the packages that were also imported.
        failed: the modules of the packages whose import failed.
    """

    packages: tuple[str, ...]
    torch: str
    registered: str
    nothing: tuple[str, ...]
    answers: tuple[Answer, ...]
    fails: tuple[Question, ...] = tuple(Question)
    fail_on: Level = Level.WARNING
    accepted: int = 0
    outdated: tuple[Identity, ...] = ()
    notes: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all questions together."""
        return tuple(finding for answer in self.answers for finding in answer.findings)

    @property
    def groups(self) -> tuple[FindingGroup, ...]:
        """The findings by cause, the most harmful first; if two questions find a defect, it appears once."""
        ranks = {finding: at for at, answer in enumerate(self.answers) for finding in answer.findings}
        groups = grouped(_once(self.findings))
        return tuple(sorted(groups, key=lambda group: (LEVELS.index(group.level), ranks[group.first])))

    @property
    def lost(self) -> bool:
        """Whether every trial was lost."""
        return any({run.status for run in answer.trials} == {"not tried"} for answer in self.answers)

    @property
    def exit_code(self) -> int:
        """2 if a package registers nothing, 1 if a finding fails the check or every trial was lost, else 0."""
        levels = LEVELS[: LEVELS.index(self.fail_on) + 1]
        counting = [answer for answer in self.answers if answer.question in self.fails]
        lost = self.lost and Question.TRIALS in self.fails
        return (
            2 if self.nothing else int(lost or any(one.level in levels for each in counting for one in each.findings))
        )


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings without lint's findings about an order that the question order also found."""
    every = tuple(findings)
    depends = [(one.operator, _lines(one)) for one in every if one.code == Question.ORDER]
    return tuple(
        one
        for one in every
        if one.code not in _OF_ORDER
        or not any(one.operator == operator and lines and lines <= _lines(one) for operator, lines in depends)
    )


_OF_ORDER = ("DL002", "DL009")
"""The rules of lint about what the order of imports decides."""


def _lines(finding: Finding) -> frozenset[tuple[str, int]]:
    return frozenset(next(sites_in(debug), (debug, 0)) for debug in finding.owners)
