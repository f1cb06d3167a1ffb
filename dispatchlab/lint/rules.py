"""The lint rules by code, and the choice among them by code or name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.lint.composite_rules import AMBIGUOUS, DISABLED, GIVEN_WITH_DEF, META, NOT_SUPPRESSED
from dispatchlab.lint.definition_rules import ALIAS_OF_NOTHING, DANGLING, FOREIGN, GONE, OTHER_NAMESPACE
from dispatchlab.lint.kernel_rules import META_ALONE, NO_FORMULA, NO_META
from dispatchlab.lint.order_rules import ORDER, SHADOWS
from dispatchlab.lint.python_rules import REPLACES_TORCH
from dispatchlab.lint.rule import Rule

RULES: tuple[Rule, ...] = (
    DANGLING,
    SHADOWS,
    AMBIGUOUS,
    DISABLED,
    META,
    NO_META,
    GONE,
    NOT_SUPPRESSED,
    ORDER,
    NO_FORMULA,
    META_ALONE,
    OTHER_NAMESPACE,
    FOREIGN,
    ALIAS_OF_NOTHING,
    GIVEN_WITH_DEF,
    REPLACES_TORCH,
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


class NoRuleLeftError(DispatchLabError):
    """The rules that were selected are all skipped, so that there is nothing to check."""

    def __init__(self, ignored: Sequence[str]) -> None:
        super().__init__(tuple(ignored))
        self.ignored = tuple(ignored)

    def __str__(self) -> str:
        return (
            f"--ignore {','.join(self.ignored)} skips every rule that is selected, so that nothing would be checked: "
            "select another rule, or ignore fewer"
        )


def rule_named(text: str) -> Rule:
    """The rule with a code or a name, whatever its case.

    Raises:
        UnknownRuleError: there is none.
    """
    for rule in RULES:
        if text.casefold() in (rule.code.casefold(), rule.name):
            return rule
    raise UnknownRuleError(text)


def selected(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules that are meant: those of `select`, or all, without those of `ignore`.

    Args:
        select: codes or names, or several with commas between them.
        ignore: likewise.

    Raises:
        UnknownRuleError: one of them is none.
        NoRuleLeftError: no rule is left.
    """
    wanted = {rule_named(text).code for text in _split(select)} if select else {rule.code for rule in RULES}
    unwanted = {rule_named(text).code for text in _split(ignore)}
    chosen = tuple(rule for rule in RULES if rule.code in wanted - unwanted)
    if not chosen:
        raise NoRuleLeftError(_split(ignore))
    return chosen


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in _without_last_comma(text).split(",")]


def _without_last_comma(text: str) -> str:
    return text.strip().removesuffix(",") or text
