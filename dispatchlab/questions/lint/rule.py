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
    """Return the number of findings of each level, the worst first: `1 error, 2 warnings`; empty without findings."""
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
        key: the dispatch key; empty for the whole operator.
        files: the files of the registrations in the finding; another package is another finding.
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
        key: its dispatch key; None for the whole operator.
        message: a sentence about the mistake, its source, and why it matters.
        owners: the debug texts of the registrations in the finding; the registration to change comes first.
        level: its level.
        cause: the common cause of findings that one change fixes; empty if the rule and the namespace are the cause.
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
        """The namespace of the operator; of a module, its package."""
        namespace, is_operator, _ = self.operator.partition("::")
        return namespace if is_operator else namespace.partition(".")[0]

    @property
    def fix_of_any(self) -> str:
        """The fix without the name of the operator."""
        fix = self.fix.replace(self.operator, "...").replace(self.operator.replace("::", "."), "...")
        return fix.replace(f'"{self.operator.partition("::")[2]}"', "...")

    def __str__(self) -> str:
        return f"{self.operator}: {self.code}{'' if self.key is None else f' {self.key}'}: {self.message}"


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one rule with one cause and one fix, in one namespace; the fix may contain the operator's name.

    Args:
        findings: by operator; never empty.
    """

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding that represents the group."""
        return self.findings[0]

    @property
    def code(self) -> str:
        """The code of the rule."""
        return self.first.code

    @property
    def level(self) -> Level:
        """The level of the findings."""
        return self.first.level


def grouped(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Return the findings by cause, the most harmful first: by level, then by the number of operators."""
    groups: dict[tuple[str, Level, str, str, str], list[Finding]] = {}
    for finding in findings:
        namespace = "" if finding.cause else finding.namespace
        kind = (finding.code, finding.level, namespace, finding.cause, finding.fix_of_any)
        groups.setdefault(kind, []).append(finding)
    ranked = sorted(groups.items(), key=lambda item: (LEVELS.index(item[0][1]), -len(item[1]), item[0]))
    return tuple(FindingGroup(tuple(found)) for _, found in ranked)


def cause_counts(findings: Iterable[Finding]) -> str:
    """Return the number of causes of each level, for output; empty without causes."""
    return level_counts([group.level for group in grouped(findings)])


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings in one source.

    Args:
        source: the source, as the user named it.
        operators: the number of operators.
        checked: the codes of the rules that ran.
        findings: the findings by operator, then by code.
        known: the number of findings that were left out, because the compared registry has them, too.
        own: the number of operators that were left out, because only PyTorch has registered them.
        others: by package, the number of findings that were left out, because they are about other packages.
        accepted: the number of findings that were left out, because a baseline accepts them.
        outdated: accepted findings that no longer exist.
        not_checked: for the code of each rule that could not run here, a clause with the reason.
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
        """1 if there is a warning or an error, else 0."""
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
        fill: the function that fills a slot of one of its operators.
        order_of: see `OrderOf`; None without an engine.
        earlier: the same registry at an earlier moment, or a registry that it should contain; may be None.
        python: the registrations of packages in Python; for each slot, the newest comes last.
        calls: for each operator, the known calls that registered it; a dump does not show them.
        beneath: for a record over a registry, PyTorch's own registrations in Python; None if unknown.
    """

    recorded: Recorded
    fill: FillOf
    order_of: OrderOf | None = None
    earlier: Recorded | None = None
    calls: Mapping[str, OperatorCalls] = field(default_factory=dict)
    python: tuple[PythonRegistration, ...] = ()
    beneath: PythonLayer | None = None

    def calls_of(self, operator: RecordedOperator) -> OperatorCalls:
        """Return the calls that registered an operator; no calls if they were not watched."""
        return self.calls.get(str(operator.name), NOTHING_KNOWN)

    def slot(self, operator: RecordedOperator, key: DispatchKey) -> Filled:
        """Return the content of a slot of an operator."""
        return self.fill(operator, key)


Check: TypeAlias = "Callable[[Subject, Iterable[RecordedOperator]], Iterator[Found]]"
"""The function of a rule: what is wrong with some operators of a registry."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding without its code; if it has no level, the level of its rule applies."""

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
        code: the code, which is never used again for another kind.
        name: a few words with dashes.
        level: the default level of its findings.
        what: a sentence about the mistake.
        why: why the mistake matters.
        fix: how to fix it.
        unknown: what the rule cannot know, so that a finding may be intended, or a defect is not found.
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
        """The documentation page, as Markdown."""
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
        bad: an example that it finds, as the registrations of a scenario.
        good: a similar example that it does not find.
        check: the function.
        needs: a clause that says why it may not run; empty if it can always run.
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
    """Make a rule of the function that checks; its page in `pages/` has the rest.

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
