"""All that is registered in this process as texts, quickly: for whoever compares two moments."""

from __future__ import annotations

import re
import sys

from dispatchlab.live.torch import bindings

_OWN = re.compile(r"dlab[a-z0-9]*::")
_PROBE = "dlableaks"


def is_imported() -> bool:
    """Whether somebody has imported torch as a whole; asking does not import it."""
    module = sys.modules.get("torch")
    return module is not None and hasattr(module, "library") and hasattr(module, "_C")


def dumps() -> dict[str, str]:
    """The dump of every operator, without those that this package itself has made."""
    c = bindings()
    dump = c._dispatch_dump
    return {name: dump(name) for name in c._dispatch_get_all_op_names() if not _OWN.match(name)}


def fallback_rows() -> str:
    """The rows that the backend fallbacks fill, as a table prints them."""
    library = bindings()._dispatch_library("FRAGMENT", _PROBE, "")
    library.define("untouched() -> ()", "")
    try:
        return str(bindings()._dispatch_dump_table(f"{_PROBE}::untouched"))
    finally:
        library.reset()
