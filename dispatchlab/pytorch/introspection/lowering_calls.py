"""The lines on which Inductor registers lowerings that a factory made, seen while its modules are imported."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import NamedTuple

from dispatchlab.pytorch.introspection.python_sites import FunctionSites

# Note [The line of a lowering that a factory made]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The lowering of an elementwise operator is `make_pointwise.<locals>.inner`, and a fallback is
# `fallback_handler.<locals>.handler`: one line for hundreds of operators. The line that says something is that of the
# call in the module, `register_pointwise(aten.exp, ...)`, and nothing keeps it. So the interpreter's profiler watches
# the calls of `_register_lowering` while a module is imported, which costs 0.8 s of CPU time once, and only for a
# recording of everything. What was imported before keeps the line of its factory.

_REGISTERS = "_register_lowering"
"""The function of Inductor that every registration of a lowering goes through."""

_DEEP = 6
"""How many calls there may be between the line of a module and the function that registers."""


class _Call(NamedTuple):
    lowering: object
    function: object
    code: CodeType | None
    file: str
    line: int


class LoweringCalls:
    """The calls that registered lowerings.

    Args:
        sites: finds the function behind a lowering.
    """

    def __init__(self, sites: FunctionSites) -> None:
        self._sites = sites
        self._calls: dict[int, _Call] = {}
        self._functions: Counter[CodeType | None] = Counter()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the calls that are made inside, unless a profiler is on that is somebody else's."""
        if sys.getprofile() is not None:
            yield
            return
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(None)
            each = {id(call.function): call.code for call in self._calls.values()}
            self._functions = Counter(each.values())

    def site(self, lowering: object) -> str:
        """The line of the call that registered a lowering; empty where its function has a line of its own."""
        call = self._calls.get(id(lowering))
        if call is None or call.code is None or self._functions[call.code] < 2:
            return ""
        return self._sites.line(call.file, call.line)

    def _seen(self, frame: FrameType, event: str, result: object) -> None:
        if event != "return" or frame.f_code.co_name != _REGISTERS or result is None:
            return
        caller = frame.f_back
        for _ in range(_DEEP):
            if caller is None:
                return
            if caller.f_code.co_name == "<module>":
                function = self._sites.unwrapped(result)
                code = getattr(function, "__code__", None)
                self._calls[id(result)] = _Call(result, function, code, caller.f_code.co_filename, caller.f_lineno)
                return
            caller = caller.f_back
