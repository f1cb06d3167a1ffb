"""The primitive registration of Python code that is kept beside the dispatch tables, by the rule of its registry.

What the rules are is in Note [Rules of registries] of `dispatchlab/model/python_layer.py`.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from dispatchlab.engine import refusals
from dispatchlab.engine.python_state import PythonEntry, PythonKey
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.state import Transaction
from dispatchlab.model.registration import PythonImpl


class _Member(NamedTuple):
    """What stands in a set, whichever registration added it first."""

    by_object: bool
    debug: str = "in the set"


class RegisterPython:
    """An entry of a registry of Python; nothing takes it back but the end of the operator that it belongs to."""

    __slots__ = (
        "beside",
        "by_object",
        "debug",
        "key",
        "name",
        "needs_def",
        "operator",
        "refusal",
        "removes",
        "second",
        "variable",
    )

    def __init__(self, registration: PythonImpl) -> None:
        from dispatchlab.model.python_layer import ASSIGNMENT  # costs start-up, and few scenarios have any

        code, rule = registration.code, registration.code.rule
        assert rule is not None, f"{code.registry} has no rule"
        self.name = registration.operator
        self.operator = str(self.name)
        self.variable = self.operator  # what Python keeps is a part of the operator
        self.key = PythonKey(code.registry, code.key)
        self.debug = registration.debug
        self.by_object = rule.by_object
        self.needs_def = rule.by_object and registration.needs_def
        self.second = rule.second
        self.refusal = rule.refusal
        self.removes = code.effect == "removed"
        self.beside = PythonKey(rule.beside if code.call != ASSIGNMENT and not self.removes else "")

    def __repr__(self) -> str:
        return f"RegisterPython({self.operator!r}, {str(self.key)!r}, {self.debug!r})"

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Refused before the def that it needs, and by another one where the registry has one for each slot."""
        from dispatchlab.model.python_layer import Second  # as above

        if self.needs_def:
            entry = state.operator(self.operator)
            if entry is None or not entry.defs:
                raise refusals.no_operator_for_python(self.name, self.key, self.debug)
        kept = state.python(self.operator)
        for other in kept.at(self.beside):
            raise refusals.python_beside(self.name, self.key, self.beside, other.debug, self.debug)
        there = kept.at(self.key)
        mine: PythonEntry = self
        if self.removes:
            state.put_python(self.operator, kept.put(self.key, ()))
            return
        match self.second:
            case Second.REFUSED:
                if there:
                    raise refusals.duplicate_python(self.name, self.key, there[0].debug, self.debug, self.refusal)
            case Second.SAME:
                mine = _Member(self.by_object)
            case Second.REPLACES:
                pass
            case _:
                assert_never(self.second)
        state.put_python(self.operator, kept.put(self.key, (mine,)))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """PyTorch has no way to take it back."""
