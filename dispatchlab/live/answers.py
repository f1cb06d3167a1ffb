"""What the bindings say of one operator beside its dump and its table: its schema, and what their own check finds."""

from __future__ import annotations

from dispatchlab.live.texts import without_backtrace
from dispatchlab.live.torch import bindings
from dispatchlab.model.names import OperatorName

UPSTREAM = "PyTorch's own check"


def schema_text(name: OperatorName) -> str | None:
    """The schema of an operator; None when it has none."""
    try:
        return str(bindings()._dispatch_find_schema_or_throw(name.qualified, name.overload).schema())
    except RuntimeError:
        return None


def upstream_check(name: str) -> str | None:
    """What PyTorch's check of its invariants says of an operator; None when they hold."""
    try:
        bindings()._dispatch_check_invariants(name)
    except RuntimeError as error:
        return without_backtrace(str(error)).split(", please report", 1)[0]
    return None
