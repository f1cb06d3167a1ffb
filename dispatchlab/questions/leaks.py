"""Find registrations that a test leaves behind: compare the dumps before and after the test, line by line.

The fixture `dispatcher_leaks` of the pytest plugin shows them. It compares lab dispatchers, and a PyTorch that was
imported before. A registration that PyTorch makes when a part of it is first used is not a leak.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from dispatchlab.engine.dispatcher import Dispatcher


class Watch:
    """The present registrations, which `leaks` compares with later ones."""

    def __init__(self) -> None:
        self._allowed: list[str] = []
        kind = getattr(sys.modules.get("dispatchlab.engine.dispatcher"), "Dispatcher", None)
        self._lab = [
            (ref(each), _lab_dumps(each)) for each in gc.get_objects() if kind and issubclass(type(each), kind)
        ]
        self._torch = _torch_dumps() if "torch" in sys.modules else None

    def allow(self, *operators: str) -> None:
        """Allow these operators to stay: names, or globs such as `my_package::*`."""
        self._allowed += operators

    def leaks(self) -> tuple[str, ...]:
        """Return the lines that appeared or disappeared; first collect garbage, because a cycle may hold a library."""
        if self._differences():
            gc.collect()
        return tuple(self._differences())

    def _differences(self) -> list[str]:
        found = [] if self._torch is None else self._between("torch", self._torch, _torch_dumps())
        for number, (reference, before) in enumerate(self._lab, 1):
            dispatcher = reference()
            if dispatcher is not None:
                found += self._between(f"dispatcher {number}", before, _lab_dumps(dispatcher))
        return found

    def _between(self, where: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
        found: list[str] = []
        for name in sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
            old, new = before.get(name, "").splitlines(), now.get(name, "").splitlines()
            went = [f"- {line}" for line in old if line not in new]
            came = [line for line in new if line not in old]
            is_own = where == "torch" and not went and _are_of_torch(name, came)
            if not is_own and not any(fnmatchcase(name, glob) for glob in self._allowed):
                found += [f"{where}: {name}: {line}" for line in (*went, *(f"+ {line}" for line in came))]
        return found


def _lab_dumps(dispatcher: Dispatcher) -> dict[str, str]:
    from dispatchlab.engine.introspection import fallbacks_in

    by_slot = fallbacks_in(dict(dispatcher.state)).by_slot.items()
    rest = {"fallbacks": "\n".join(map(str, by_slot)), "namespaces": "\n".join(dispatcher.namespaces())}
    return {**rest, **{str(name): dispatcher.dump(name) for name in dispatcher.operators()}}


def _torch_dumps() -> dict[str, str]:
    from dispatchlab.live.introspection.registry_reader import all_dumps, fallback_rows

    return {"fallbacks": fallback_rows(), **all_dumps()}


def _are_of_torch(name: str, lines: Sequence[str]) -> bool:
    """Return whether PyTorch itself made the registrations in these lines of a dump."""
    from dispatchlab.live.introspection.site_log import running_ownership
    from dispatchlab.model.keys import DispatchKey

    ownership = running_ownership()
    for line in lines:
        key, _, rest = line.removesuffix(" [backend fallback]").partition(": ")
        debug = rest.partition(" :: ")[0].removeprefix("fallthrough ")
        slot = DispatchKey.__members__.get(key.removesuffix("[alias]"))
        if debug.startswith("registered") and not ownership.is_own(name.removeprefix("fallbacks"), slot, debug):
            return False
    return True


def leaks_text(leaks: Sequence[str]) -> str:
    """Return the leftover registrations, and what to do."""
    lines = "".join(f"  {line}\n" for line in leaks)
    return (
        f"registrations were not released, or removed:\n{lines}"
        "release what you register: use the handle or the library in a with block, or in a fixture that releases it"
    )
