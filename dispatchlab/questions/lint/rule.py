"""A lint rule: a code, a page, and a function from a registry to findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.certify.certificate import OrderReason
from dispatchlab.questions.lint.provenance import NOTHING_KNOWN, OperatorCalls
from dispatchlab.registries.backend_coverage import Filled, FillOf
from dispatchlab.registries.debug_text import file_in
from dispatchlab.registries.model import Recorded, RecordedOperator
from dispatchlab.views.formatting import counted

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonLayer, PythonRegistration


class Level(WordEnum):
    """The harm of a finding, the worst first."""

    ERROR = "error"  # something that was registered cannot be used
    WARNING = "warning"  # calls fail, or do something else than what was written, under some circumstances
    INFORMATION = "information"  # nothing fails; whether it is meant, only its author knows


LEVELS = tuple(Level)
"""The levels, the worst first."""


def level_counts(levels: Sequence[Level]) -> str:
    """Return the number of each level, the worst first: `1 error, 2 warnings`; empty when there is none."""
    return ", ".join(
        counted(count, level, level if level is Level.INFORMATION else "")
        for level in LEVELS
        if (count := levels.count(level))
    )


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """The part of a finding that stays the same when lines move.

    Args:
        code: the code of the rule.
        operator: the operator.
        key: the dispatch key; empty when it is about the operator as a whole.
        files: the files of the registrations that take part, so that another package is another finding.
    """

    code: str
    operator: str
    key: str = ""
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(part for part in (self.code, self.operator, self.key) if part)


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in one operator.

    Args:
        code: the code of the rule, `DL001`.
        operator: the operator.
        key: the dispatch key that it is about; None when it is about the operator as a whole.
        message: what was found, whose it is and why it matters, in a sentence.
        owners: the debug texts of the registrations that take part, the one to change first.
        level: how much harm it does.
        cause: what findings that one change fixes have in common; empty when the rule and the namespace say it.
        fix: the call that fixes it, or what to do.
    """

    code: str
    operator: str
    key: DispatchKey | None
    message: str
    owners: tuple[str, ...] = ()
    level: Level = Level.WARNING
    cause: str = ""
    fix: str = ""

    @property
    def identity(self) -> Identity:
        """See `Identity`."""
        files = tuple(dict.fromkeys(file_in(debug) for debug in self.owners))
        return Identity(self.code, self.operator, "" if self.key is None else str(self.key), files)

    @property
    def namespace(self) -> str:
        """The namespace of the operator."""
        return self.operator.partition("::")[0]

    def __str__(self) -> str:
        return f"{self.operator}: {self.code}{'' if self.key is None else f' {self.key}'}: {self.message}"


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one rule with one cause, in one namespace, which a reader looks at together.

    Args:
        findings: by operator; never empty.
    """

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding that speaks for all."""
        return self.findings[0]

    @property
    def code(self) -> str:
        """The code of the rule."""
        return self.first.code

    @property
    def level(self) -> Level:
        """The harm of each of them."""
        return self.first.level


def grouped(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Return the findings by cause, the most harmful first: by level, then by the number of operators."""
    groups: dict[tuple[str, Level, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.code, finding.level, finding.namespace, finding.cause), []).append(finding)
    ranked = sorted(groups.items(), key=lambda item: (LEVELS.index(item[0][1]), -len(item[1]), item[0]))
    return tuple(FindingGroup(tuple(found)) for _, found in ranked)


def cause_counts(findings: Iterable[Finding]) -> str:
    """Return the number of causes of each level, as they are shown; empty when there is none."""
    return level_counts([group.level for group in grouped(findings)])


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings in one source.

    Args:
        source: what was looked at, as it was named.
        operators: how many operators that is.
        checked: the codes of the rules that ran.
        findings: by operator, and of one operator by code.
        known: how many findings were left out because the registry that it is compared with has them, too.
        own: how many operators were left out because PyTorch alone has registered them.
        others: how many findings were left out because other packages registered what they are about, by package.
        accepted: how many were left out because a baseline accepts them.
        outdated: accepted findings that are not found any more.
        not_checked: code of a rule that could not run here -> why, a clause.
    """

    source: str
    operators: int
    checked: tuple[str, ...]
    findings: tuple[Finding, ...]
    known: int = 0
    own: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    accepted: int = 0
    outdated: tuple[Identity, ...] = ()
    not_checked: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 when a finding is more than information, else 0."""
        return 1 if any(finding.level is not Level.INFORMATION for finding in self.findings) else 0

    @property
    def groups(self) -> tuple[FindingGroup, ...]:
        """The findings by cause, the most harmful first."""
        return grouped(self.findings)


OrderOf: TypeAlias = Callable[[Sequence[RecordedOperator]], Mapping[str, tuple[OrderReason, ...]]]
"""Finds why the order of registrations matters, by operator; one without a reason may be left out."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of rules.

    Args:
        recorded: the registry.
        fill: what a dispatcher puts into a slot of one of its operators.
        order_of: see `OrderOf`; None where no engine is at hand.
        earlier: the same registry at an earlier moment, or what it should still contain; None when there is none.
        python: what packages register in Python, the newest of each slot last.
        calls: operator -> the calls that registered it, as far as they are known; a dump does not say.
        beneath: what PyTorch itself has in Python, of a record that is laid over its registry; None where unknown.
    """

    recorded: Recorded
    fill: FillOf
    order_of: OrderOf | None = None
    earlier: Recorded | None = None
    calls: Mapping[str, OperatorCalls] = field(default_factory=dict)
    python: tuple[PythonRegistration, ...] = ()
    beneath: PythonLayer | None = None

    def calls_of(self, operator: RecordedOperator) -> OperatorCalls:
        """Return the calls that registered an operator; nothing is known when they were not watched."""
        return self.calls.get(str(operator.name), NOTHING_KNOWN)

    def slot(self, operator: RecordedOperator, key: DispatchKey) -> Filled:
        """Return the content of a slot of an operator."""
        return self.fill(operator, key)


Check: TypeAlias = "Callable[[Subject, Iterable[RecordedOperator]], Iterator[Found]]"
"""The function of a rule: what is wrong with some operators of a registry."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding without its code; without a level it has its rule's level."""

    operator: str
    key: DispatchKey | None
    message: str
    owners: tuple[str, ...] = ()
    level: Level | None = None
    cause: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of findings with one code.

    Args:
        code: the code; never used again for something else.
        name: a few words with dashes.
        level: how much harm they do, unless one says otherwise.
        what: what is found.
        why: why that matters.
        fix: how to fix it.
        unknown: what cannot be known, so that a finding may be meant, or a defect is not found.
    """

    code: str
    name: str
    level: Level
    what: str
    why: str
    fix: str
    unknown: str

    @property
    def page(self) -> str:
        """Its page of documentation, as Markdown."""
        return (
            f"# {self.code}: {self.name}\n\n{self.what}\n\nLevel: {self.level}.\n\n"
            f"## Why it matters\n\n{self.why}\n\n## How to fix it\n\n{self.fix}\n\n"
            f"## What it cannot know\n\n{self.unknown}\n{self._examples()}"
        )

    def _examples(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Rule(Kind):
    """One rule, `DL001`.

    Args:
        bad: registrations that it finds, as a scenario has them.
        good: registrations next to these that it does not.
        check: the function.
        needs: why it may not be able to run, a clause; empty when it always can.
        can_run: whether it can.
    """

    bad: str
    good: str
    check: Check
    needs: str = ""
    can_run: Callable[[Subject], bool] = lambda subject: True

    def _examples(self) -> str:
        return f"\n## Found\n\n```yaml\n{self.bad}\n```\n\n## Not found\n\n```yaml\n{self.good}\n```\n"


_PAGE = re.compile(
    r"# (?P<code>\w+): (?P<name>.+)\n\n(?P<what>.+)\n\nLevel: (?P<level>\w+)\.\n\n"
    r"## Why it matters\n\n(?P<why>.+)\n\n## How to fix it\n\n(?P<fix>.+)\n\n"
    r"## What it cannot know\n\n(?P<unknown>.+)\n\n"
    r"## Found\n\n```yaml\n(?P<bad>(?s:.+))\n```\n\n## Not found\n\n```yaml\n(?P<good>(?s:.+))\n```\n"
)


def rule(
    code: str, *, needs: str = "", can_run: Callable[[Subject], bool] = lambda subject: True
) -> Callable[[Check], Rule]:
    """Make a rule of the function that checks; its page in `pages/` says everything else about it.

    Args:
        code: `DL001`.
        needs: see `Rule`.
        can_run: likewise.
    """
    page = (files("dispatchlab.questions.lint") / "pages" / f"{code}.md").read_text(encoding="utf-8")
    match = _PAGE.fullmatch(page)
    assert match is not None, f"the page of {code} has other parts than the pages of other rules"
    parts = match.groupdict()
    level = Level(parts.pop("level"))
    return lambda check: Rule(level=level, **parts, check=check, needs=needs, can_run=can_run)
