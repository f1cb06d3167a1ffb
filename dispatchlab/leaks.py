"""Registrations that something leaves behind: two moments compared, on lab dispatchers and on the running PyTorch.

The pytest plugin has a fixture of it, `dispatcher_leaks`. Nothing is imported that is not there already: neither torch
nor the lab engine is looked at unless somebody has imported it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from weakref import ref

from dispatchlab.errors import DispatchLabError, ParseError

if TYPE_CHECKING:
    from dispatchlab.engine.dispatcher import Dispatcher

# Note [What counts as a leak]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A dispatcher that a test makes for itself may be left as it is: nobody else sees it. So of lab dispatchers only those
# count that were there before. When something differs, garbage is collected and it is looked again: a library in a
# reference cycle takes its registrations back then, at a moment that is as good as any other. What is left after that
# is held by somebody.


@dataclass(frozen=True, slots=True)
class Moment:
    """What is registered on one dispatcher.

    Args:
        dumps: the dump of every operator.
        rest: fallbacks, a row each, and claims of namespaces.
    """

    dumps: Mapping[str, str]
    rest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leak:
    """Something that came or went and should not have.

    Args:
        dispatcher: `torch`, or the number of a lab dispatcher.
        operator: the operator; empty for a fallback and a claim.
        lines: what differs, a line each.
    """

    dispatcher: str
    operator: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(f"  {self.dispatcher}: {line}" for line in self.lines)


class Watch:
    """Remembers what is registered now. Ask `leaks` later what differs."""

    def __init__(self) -> None:
        self._allowed: list[str] = []
        self._torch = _torch_moment()
        self._dispatchers = [(ref(one), _lab_moment(one)) for one in _dispatchers()]

    def allow(self, *operators: str) -> None:
        """Let these operators stay: names, or globs such as `my_package::*`."""
        self._allowed += operators

    def leaks(self) -> tuple[Leak, ...]:
        """What came or went since, as far as somebody still holds it. See Note [What counts as a leak]."""
        found = self._differences()
        if found:
            gc.collect()
            found = self._differences()
        return tuple(found)

    def _differences(self) -> list[Leak]:
        found: list[Leak] = []
        if self._torch is not None and (now := _torch_moment()) is not None:
            found += self._compared("torch", self._torch, now)
        for number, (reference, before) in enumerate(self._dispatchers, 1):
            dispatcher = reference()
            if dispatcher is not None:
                found += self._compared(f"dispatcher {number}", before, _lab_moment(dispatcher))
        return found

    def _compared(self, name: str, before: Moment, now: Moment) -> Iterable[Leak]:
        for row in [row for row in before.rest if row not in now.rest]:
            yield Leak(name, "", (f"{row} went",))
        for row in [row for row in now.rest if row not in before.rest]:
            yield Leak(name, "", (f"{row} came",))
        names = {*before.dumps, *now.dumps} if before.dumps != now.dumps else ()
        for operator in sorted(names):
            old, new = before.dumps.get(operator, ""), now.dumps.get(operator, "")
            if old != new and not any(fnmatchcase(operator, glob) for glob in self._allowed):
                yield Leak(name, operator, tuple(_difference(operator, old, new)))


def leaks_text(leaks: Sequence[Leak]) -> str:
    """What was left behind, and what to do."""
    count = f"{len(leaks)} registration{' was' if len(leaks) == 1 else 's were'}"
    lines = "\n".join(map(str, leaks))
    return (
        f"{count} not released, or removed:\n{lines}\n"
        "release what you register: use the handle or the library in a with block, or in a fixture that releases it"
    )


def _torch_moment() -> Moment | None:
    if "torch" not in sys.modules:
        return None
    from dispatchlab.live.bridge.torch import is_torch_imported
    from dispatchlab.live.introspection.registry_reader import all_dumps, fallback_rows

    if not is_torch_imported():
        return None
    return Moment(all_dumps(), tuple(f"fallback {row}" for row in fallback_rows().splitlines()))


def _dispatchers() -> list[Dispatcher]:
    """Every lab dispatcher that is alive."""
    module = sys.modules.get("dispatchlab.engine.dispatcher")
    if module is None:
        return []
    kind = module.Dispatcher
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]  # isinstance asks the object


def _lab_moment(dispatcher: Dispatcher) -> Moment:
    from dispatchlab.engine.introspection import fallbacks_in
    from dispatchlab.model.slot_set import keys_of

    fallbacks = fallbacks_in(dict(dispatcher.state))
    by_slot = fallbacks.by_slot
    rows = [f"fallback {key}: {by_slot[1 << key.slot].debug or '(no debug text)'}" for key in keys_of(fallbacks.slots)]
    claims = [f"claim of the namespace {namespace}" for namespace in dispatcher.namespaces()]
    return Moment({str(name): dispatcher.dump(name) for name in dispatcher.operators()}, (*rows, *claims))


def _difference(operator: str, old: str, new: str) -> list[str]:
    """What differs between two dumps, in the words of a comparison of registries where they can be read."""
    from dispatchlab.registry.compare import compare, diff_text
    from dispatchlab.registry.model import read_dump, registry_of

    try:
        sides = [registry_of(name, [read_dump(text)] if text else []) for name, text in (("before", old), ("now", new))]
        lines = diff_text(compare(*sides), "before", "now").splitlines()[1:]
    except (DispatchLabError, ParseError, ValueError):
        lines = []
    lines = lines or list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[2:]
    if lines[0] == operator:
        return [f"{operator}: {line.strip()}" for line in lines[1:]]
    return lines
