"""All that is registered in this process as texts, quickly: for whoever compares two moments."""

from __future__ import annotations

import sys

from dispatchlab.live.own_names import FALLBACKS, is_own
from dispatchlab.live.torch import bindings


def is_imported() -> bool:
    """Whether somebody has imported torch as a whole; asking does not import it."""
    module = sys.modules.get("torch")
    return module is not None and hasattr(module, "library") and hasattr(module, "_C")


def dumps() -> dict[str, str]:
    """The dump of every operator, without those that this package itself has made."""
    c = bindings()
    dump = c._dispatch_dump
    return {name: dump(name) for name in c._dispatch_get_all_op_names() if not is_own(name)}


def fallback_rows() -> str:
    """The rows that the backend fallbacks fill, as a table prints them.

    Read off an operator of our own, which has no kernel, so that its table shows nothing else.
    """
    library = bindings()._dispatch_library("FRAGMENT", FALLBACKS, "")
    library.define("untouched() -> ()", "")
    try:
        return str(bindings()._dispatch_dump_table(f"{FALLBACKS}::untouched"))
    finally:
        library.reset()
