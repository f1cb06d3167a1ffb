"""What a rule found, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dispatchlab.model.keys import DispatchKey


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
