"""Reserved namespaces: sandboxes and probes register their operators there, and no output shows them."""

from __future__ import annotations

import re

BUILTIN_FALLBACKS = "dlabbuiltin"
FALLBACK_ROWS = "dlabfallbacks"
IMPORT_ORDERS = "dlaborders"
LIBRARY_FILE = "dlabfile"
PROFILE = "dlabp"
SLOT_MEMORY = "dlabmemory"
PROBES = BUILTIN_FALLBACKS, FALLBACK_ROWS, IMPORT_ORDERS, LIBRARY_FILE, PROFILE, SLOT_MEMORY
"""The namespaces of probes, by what they find out."""

_OWN = re.compile(rf"(?:dlab[0-9]+_\w+|{PROFILE}[0-9]+|{'|'.join(PROBES)})::")


def sandbox_prefix(number: int) -> str:
    """Return the prefix of every namespace of a sandbox."""
    return f"dlab{number}_"


def is_own(name: str) -> bool:
    """Return whether the operator with this full name belongs to a sandbox or a probe."""
    return _OWN.match(name) is not None
