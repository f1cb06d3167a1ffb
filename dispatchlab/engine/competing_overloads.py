"""The defs that compete with a def for calls, and which of them a call tries before it."""

from __future__ import annotations

from dispatchlab.engine.operator_entry import Earlier
from dispatchlab.engine.state import Transaction
from dispatchlab.model.schema import FunctionSchema

# Note [The order of overloads]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `torch.ops.ns.name(...)` tries the overloads of the name in the order in which they were defined; one that is released
# and defined again comes last. Where two overloads have no call in common, no call shows which comes first. So an
# operator's entry does not have the list, it has the overloads that come before it and compete with it for a call:
# states are equal where all calls go to the same overloads. Nothing is lost by that, for what comes later comes after
# all others, and what leaves takes nothing along but its own place.
# Defs know their rivals beforehand, so that a def without any writes its own entry alone.


class Rivals:
    """The defs that compete with a def, by the variable of their operator."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[FunctionSchema, str]]] = {}

    def defined(self, state: Transaction) -> frozenset[Earlier]:
        """Those that are defined in a state."""
        found: set[Earlier] = set()
        for variable, schemas in self.calls.items():
            entry = state.operator(variable)
            if entry is not None and entry.stored is not None:
                stored = entry.stored.schema
                found.update(Earlier(variable, call) for schema, call in schemas if schema == stored)
        return frozenset(found)

    def forget(self, state: Transaction, gone: str) -> None:
        """Take an operator out of what comes before others."""
        for variable in self.calls:
            entry = state.operator(variable)
            if entry is not None and any(each.operator == gone for each in entry.earlier):
                left = frozenset(each for each in entry.earlier if each.operator != gone)
                state.put(variable, entry._replace(earlier=left))
