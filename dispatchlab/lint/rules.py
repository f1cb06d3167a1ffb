"""All rules by code, and the choice among them by code or name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.lint.backends import ALONE
from dispatchlab.lint.composites import AMBIGUOUS, DISABLED, META, NOT_SUPPRESSED
from dispatchlab.lint.dangling import DANGLING, GONE
from dispatchlab.lint.rule import Rule
from dispatchlab.lint.shadowing import ORDER, SHADOWS

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (DANGLING, SHADOWS, AMBIGUOUS, DISABLED, META, ALONE, GONE, NOT_SUPPRESSED, ORDER), key=lambda rule: rule.code
    )
)
"""Every rule, by code."""


class UnknownRuleError(DispatchLabError):
    """No rule has this code or name."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        codes = [rule.code for rule in RULES]
        hint = did_you_mean(self.text, [*codes, *(rule.name for rule in RULES)])
        return f"there is no rule {self.text!r}: expected {codes[0]} to {codes[-1]}, or a name{hint}"


def rule_named(text: str) -> Rule:
    """The rule with a code or a name, whatever its case.

    Raises:
        UnknownRuleError: there is none.
    """
    for rule in RULES:
        if text.casefold() in (rule.code.casefold(), rule.name):
            return rule
    raise UnknownRuleError(text)


def selected(select: Sequence[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules that are meant: those of `select`, or all, without those of `ignore`.

    Args:
        select: codes or names, or several with commas between them.
        ignore: likewise.

    Raises:
        UnknownRuleError: one of them is none.
    """
    wanted = {rule_named(text).code for text in _split(select)} or {rule.code for rule in RULES}
    unwanted = {rule_named(text).code for text in _split(ignore)}
    return tuple(rule for rule in RULES if rule.code in wanted - unwanted)


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]
