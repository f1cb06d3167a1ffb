"""Reserved namespaces: the operators that sandboxes and probes register are the lab's own."""

from __future__ import annotations

import re

WORLD, FALLBACKS, ORDERS, MEMORY = "dlabworld", "dlabfallbacks", "dlaborders", "dlabcal"
"""The namespaces of probes, by what they find out."""

_OWN = re.compile(rf"(?:dlab[0-9]+_\w+|{WORLD}|{FALLBACKS}|{ORDERS}|{MEMORY})::")


def sandbox_prefix(number: int) -> str:
    """What stands before every namespace of a sandbox."""
    return f"dlab{number}_"


def is_own(name: str) -> bool:
    """Whether an operator, by its full name, is a sandbox's or a probe's."""
    return _OWN.match(name) is not None
