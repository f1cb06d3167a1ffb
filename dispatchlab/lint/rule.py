"""A lint rule: a code, a page, and a function from a registry to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dispatchlab.analysis.certificate import OrderReason
from dispatchlab.model.keys import DispatchKey
from dispatchlab.registry.coverage import Filled, FillOf
from dispatchlab.registry.model import Recorded, RecordedOperator


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one operator.

    Args:
        code: the code of the rule, `DL001`.
        operator: the operator.
        key: the dispatch key that it is about; None when it is about the operator as a whole.
        message: what was found, whose it is and what to do, in a sentence.
        owners: the debug texts of the registrations that take part, the one to change first.
    """

    code: str
    operator: str
    key: DispatchKey | None
    message: str
    owners: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str]:
        """What stays the same when lines move: the code, the operator and the key."""
        return self.code, self.operator, "" if self.key is None else str(self.key)

    def __str__(self) -> str:
        return f"{self.operator}: {self.code}{'' if self.key is None else f' {self.key}'}: {self.message}"


@dataclass(frozen=True, slots=True)
class LintReport:
    """What was found in one source.

    Args:
        source: what was looked at, as it was named.
        operators: how many operators that is.
        checked: the codes of the rules that ran.
        findings: by operator, and of one operator by code.
        known: how many findings were left out because the registry that it is compared with has them, too.
        accepted: how many were left out because a baseline accepts them.
        outdated: accepted findings that are not found any more, as `DL002 aten::add.Tensor Meta`.
        not_checked: code of a rule that could not run here -> why, a clause.
    """

    source: str
    operators: int
    checked: tuple[str, ...]
    findings: tuple[Finding, ...]
    known: int = 0
    accepted: int = 0
    outdated: tuple[str, ...] = ()
    not_checked: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 when something was found, else 0."""
        return 1 if self.findings else 0

    def counts(self) -> dict[str, int]:
        """How many findings each rule that ran has."""
        counts = dict.fromkeys(self.checked, 0)
        for finding in self.findings:
            counts[finding.code] += 1
        return counts


class OrderOf(Protocol):
    """Finds out for which operators the order of registrations matters."""

    def __call__(self, operators: Sequence[RecordedOperator], /) -> Mapping[str, tuple[OrderReason, ...]]:
        """The reasons, by operator; an operator without any may be left out."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What rules look at.

    Args:
        recorded: the registry.
        fill: what a dispatcher puts into a slot of one of its operators.
        order_of: see `OrderOf`; None where no engine is at hand.
        earlier: the same registry at an earlier moment, or what it should still contain; None when there is none.
    """

    recorded: Recorded
    fill: FillOf
    order_of: OrderOf | None = None
    earlier: Recorded | None = None

    def slot(self, operator: RecordedOperator, key: DispatchKey) -> Filled:
        """What a slot of an operator holds."""
        return self.fill(operator, key)


class Check(Protocol):
    """The function of a rule."""

    def __call__(self, subject: Subject, operators: Iterable[RecordedOperator], /) -> Iterator[Found]:
        """What is wrong with some operators of a registry."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding without its code."""

    operator: str
    key: DispatchKey | None
    message: str
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Args:
        code: `DL001`; never used again for another rule.
        name: a few words with dashes, for people who select rules.
        what: what it finds.
        why: why that matters.
        mend: how to fix it.
        bad: registrations that it finds, as a scenario has them.
        good: registrations next to these that it does not.
        check: the function.
        needs: why it may not be able to run, a clause; empty when it always can.
        can_run: whether it can.
    """

    code: str
    name: str
    what: str
    why: str
    mend: str
    bad: str
    good: str
    check: Check
    needs: str = ""
    can_run: Callable[[Subject], bool] = lambda subject: True

    def page(self) -> str:
        """Its page of documentation, as Markdown."""
        return (
            f"# {self.code}: {self.name}\n\n{self.what}\n\n## Why it matters\n\n{self.why}\n\n## How to fix "
            f"it\n\n{self.mend}\n\n"
            f"## Found\n\n```yaml\n{self.bad}\n```\n\n## Not found\n\n```yaml\n{self.good}\n```\n"
        )


def example(*kernels: tuple[str, str], operator: str = "scale", defined: bool = True, head: str = "") -> str:
    """Registrations for a page, as a scenario has them.

    Args:
        kernels: the key and the debug text of each.
        operator: what the kernels are registered for.
        defined: whether there is the def of `scale`.
        head: lines before them.
    """
    lines = [*head.splitlines(), "registrations:"]
    lines += ["  - def: scale(Tensor x, float s) -> Tensor"] if defined else []
    for key, debug in kernels:
        lines += [f"  - impl: {operator}", f"    dispatch: {key}", f"    debug: {debug}"]
    return "\n".join(lines)


def owner(debug: str) -> str:
    """A debug text in a sentence."""
    return debug.removeprefix("registered at ") or "a registration without a debug text"


def kernel_at(operator: RecordedOperator, key: DispatchKey) -> str:
    """Whose kernel is active at a key, for a sentence."""
    found = operator.active_at(key)
    return owner("" if found is None else found.debug)
