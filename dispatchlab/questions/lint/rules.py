"""The lint rules by code."""

from __future__ import annotations

from dispatchlab.questions.lint import backend_rules, composite_rules, definition_rules, kernel_rules, order_rules
from dispatchlab.questions.lint.rule import Rule

FAMILIES = backend_rules, composite_rules, definition_rules, kernel_rules, order_rules
"""The modules of rules, by what the rules are about."""


_BY_CODE = {value.code: value for module in FAMILIES for value in vars(module).values() if isinstance(value, Rule)}
RULES = tuple(_BY_CODE[code] for code in sorted(_BY_CODE))
"""Every rule, by code."""


def rule_named(code: str) -> Rule:
    """Return the rule with a code."""
    return next(rule for rule in RULES if rule.code == code)
