"""The lint rules by code, and the choice among them by code or name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.questions.lint import backend_rules, composite_rules, definition_rules, kernel_rules, order_rules
from dispatchlab.questions.lint.rule import Rule

FAMILIES = backend_rules, composite_rules, definition_rules, kernel_rules, order_rules
"""The modules of rules, by what the rules are about."""


def every_rule() -> tuple[Rule, ...]:
    """The rules that the modules of the families have, by code."""
    rules = {value.code: value for module in FAMILIES for value in vars(module).values() if isinstance(value, Rule)}
    return tuple(rules[code] for code in sorted(rules))


RULES = every_rule()
"""Every rule, by code."""


class UnknownRuleError(DispatchLabError):
    """No rule has this code or name."""

    text: str

    def __str__(self) -> str:
        codes = [rule.code for rule in RULES]
        hint = did_you_mean(self.text, [*codes, *(rule.name for rule in RULES)])
        return f"there is no rule {self.text!r}: expected {codes[0]} to {codes[-1]}, or a name{hint}"


class NoRuleLeftError(DispatchLabError):
    """The rules that were selected are all skipped, so that there is nothing to check."""

    ignored: tuple[str, ...]

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
        raise NoRuleLeftError(tuple(_split(ignore)))
    return chosen


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in (text.strip().removesuffix(",") or text).split(",")]
