"""Registrations that something leaves behind: two moments compared, on lab dispatchers and on the running PyTorch.

The pytest plugin has a fixture of it, `dispatcher_leaks`. Nothing is imported that is not there already: neither torch
nor the lab engine is looked at unless somebody has imported it. What PyTorch registers for itself when a part of it is
first used is no leak; `dispatchlab.records.ownership` says what that is.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import unified_diff
from fnmatch import fnmatchcase
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import ref

from dispatchlab.errors import DispatchLabError, ParseError

if TYPE_CHECKING:
    from dispatchlab.engine.dispatcher import Dispatcher
    from dispatchlab.model.python_layer import PythonRegistration
    from dispatchlab.pytorch.introspection.python_journal import PythonJournal
    from dispatchlab.pytorch.introspection.registry_watch import RegistryChanges, RegistryWatch
    from dispatchlab.records.model import RecordedOperator

# Note [What counts as a leak]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A dispatcher that a test makes for itself may be left as it is: nobody else sees it. So of lab dispatchers only those
# count that were there before. When something differs, `leaks` collects garbage and compares again: this
# releases a library in a reference cycle. What differs after that is still held.
#
# What Python keeps beside the dispatch tables is compared as well: decompositions, fakes, lowerings, rules. Reading it
# all takes a third of a second, so the tables are compared by identity, which takes two milliseconds. What a call of
# torch.library leaves there beside a kernel is no second leak. An operator that goes takes its Python kernels with it,
# and what `custom_op` has remembered of it reaches nobody any more.
#
# PyTorch registers operators of its own when a part of it is first used, and keeps them. They are nobody's leak, so the
# call sites of all registrations are logged meanwhile. Whatever goes is reported. When torch is imported after the
# first moment, the moment after its import serves as well, and a hook waits for that; should the hook be passed by,
# everything counts that is not PyTorch's own.


@dataclass(frozen=True, slots=True)
class Moment:
    """What is registered on one lab dispatcher.

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
        imported: the modules whose import registered it.
    """

    dispatcher: str
    operator: str
    lines: tuple[str, ...]
    imported: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"  {self.dispatcher}: {line}" for line in self.lines)


class Watch:
    """Remembers what is registered now, until it is closed. Ask `leaks` later what differs."""

    def __init__(self) -> None:
        self._allowed: list[str] = []
        self._torch: RegistryWatch | None = None
        self._python: PythonJournal | None = None
        self._dispatchers = [(ref(one), _lab_moment(one)) for one in _dispatchers()]
        self._hook = None if self._watch_torch() else AfterImport("torch", self._watch_torch)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching; a second time is harmless."""
        with ExitStack() as closing:  # what one of them raises keeps no other on
            for each in (self._torch, self._python, self._hook):
                if each is not None:
                    closing.callback(each.close)

    def allow(self, *operators: str) -> None:
        """Let these operators stay: names, or globs such as `my_package::*`."""
        self._allowed += operators

    def leaks(self) -> tuple[Leak, ...]:
        """What came or went since and is still held. See Note [What counts as a leak]."""
        found = self._differences()
        if found:
            gc.collect()
            found = self._differences()
        return tuple(found)

    def _watch_torch(self, *, fresh: bool = False) -> bool:
        """Begin with torch, if it is imported."""
        if self._torch is None and "torch" in sys.modules:
            from dispatchlab.pytorch.bridge.torch import is_torch_imported
            from dispatchlab.pytorch.introspection.registry_watch import RegistryWatch

            if is_torch_imported():
                self._torch = RegistryWatch(fresh=fresh)
                if not fresh:
                    self._watch_python()
        return self._torch is not None

    def _watch_python(self) -> None:
        from dispatchlab.pytorch.introspection.python_journal import PythonJournal
        from dispatchlab.pytorch.introspection.python_tables import tables_now
        from dispatchlab.pytorch.introspection.registry_watch import shown_roots

        self._python = PythonJournal(shown_roots(), tables=tables_now(), every_module=False).__enter__()

    def _differences(self) -> list[Leak]:
        found: list[Leak] = []
        if self._watch_torch(fresh=True) and self._torch is not None:
            found += self._on_torch(self._torch.changes())
            if self._python is not None:
                found += self._in_python(self._python, frozenset(leak.operator for leak in found))
        for number, (reference, before) in enumerate(self._dispatchers, 1):
            dispatcher = reference()
            if dispatcher is not None:
                found += self._on_lab(f"dispatcher {number}", before, _lab_moment(dispatcher))
        return found

    def _on_torch(self, changes: RegistryChanges) -> Iterable[Leak]:
        for verb, fallbacks in (("went", changes.went), ("came", changes.came)):
            for fallback in fallbacks:
                skips = "fallthrough " if fallback.fallthrough else ""
                yield Leak("torch", "", (f"fallback {fallback.key} {verb}: {skips}{fallback.debug}",))
        for operator in changes.operators:
            if not self._is_allowed(operator.name):
                if operator.dumps is None:
                    lines = _difference(operator.name, operator.before, operator.after)
                else:
                    lines = _text_difference(*operator.dumps)
                yield Leak("torch", operator.name, tuple(lines), operator.imported)

    def _in_python(self, journal: PythonJournal, changed: Collection[str]) -> Iterable[Leak]:
        """What is kept by Python; `changed` are the operators of which the dispatcher has something else, too."""
        from dispatchlab.pytorch.bridge.torch import bindings

        known: Collection[str] | None = None
        for write, before, now in journal.left():
            one = now or before
            if (write.operator in changed and one is not None and _is_of_call(one)) or self._is_allowed(write.operator):
                continue
            if now is None or write.registry == "custom_ops":
                known = known or frozenset(bindings()._dispatch_get_all_op_names())
                if write.operator not in known and not write.operator.startswith(_OF_PYTHON):
                    continue
            where = f"{write.registry}{f' {write.key}' if write.key else ''}"
            texts = [None if one is None else _entry_text(one) for one in (before, now)]
            verb = "came" if before is None else "went" if now is None else "changed"
            line = f"{write.operator}: {where} {verb}: {' -> '.join(text for text in texts if text)}"
            imported = (write.site.module,) if write.site is not None and write.site.on_import else ()
            yield Leak("torch", write.operator, (line,), imported)

    def _on_lab(self, name: str, before: Moment, now: Moment) -> Iterable[Leak]:
        for row in [row for row in before.rest if row not in now.rest]:
            yield Leak(name, "", (f"{row} went",))
        for row in [row for row in now.rest if row not in before.rest]:
            yield Leak(name, "", (f"{row} came",))
        names = {*before.dumps, *now.dumps} if before.dumps != now.dumps else ()
        for operator in sorted(names):
            old, new = before.dumps.get(operator, ""), now.dumps.get(operator, "")
            if old != new and not self._is_allowed(operator):
                yield Leak(name, operator, tuple(_dump_difference(operator, old, new)))

    def _is_allowed(self, operator: str) -> bool:
        return any(fnmatchcase(operator, glob) for glob in self._allowed)


def _is_of_call(one: PythonRegistration) -> bool:
    """Whether a call of torch.library left this beside what the dispatcher has."""
    match one.registry:
        case "custom_ops":
            return True
        case "torch_library":
            return one.key == "fake"
        case _:
            return one.function.startswith(("torch.library:", "torch._library."))


_OF_PYTHON = ("higher_order::", "python::")
"""How the names of what no dispatcher knows begin."""


def _entry_text(one: PythonRegistration) -> str:
    return f"{one.function}{f', registered at {one.site}' if one.site else ''}"


def leaks_text(leaks: Sequence[Leak]) -> str:
    """What was left behind, and what to do."""
    count = f"{len(leaks)} registration{' was' if len(leaks) == 1 else 's were'}"
    lines = "\n".join(map(str, leaks))
    modules = sorted({module for leak in leaks for module in leak.imported})
    by_import = (
        f"\nimporting {', '.join(modules)} registers, and a module stays imported: import it before the test, at the "
        "head of its file say"
        if modules
        else ""
    )
    return (
        f"{count} not released, or removed:\n{lines}\n"
        "release what you register: use the handle or the library in a with block, or in a fixture that releases it"
        f"{by_import}"
    )


class AfterImport:
    """Calls a function right after a module is imported for the first time.

    Args:
        name: the module, not imported yet.
        then: the function.
    """

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name, self._then = name, then
        sys.meta_path.insert(0, self)

    def close(self) -> None:
        """Wait no longer; a second time is harmless."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """The spec that the other finders have for the module, with a loader that calls the function."""
        if name != self._name:
            return None
        finders = [finder for finder in sys.meta_path if not isinstance(finder, AfterImport)]
        spec = next((spec for each in finders if (spec := each.find_spec(name, path, target)) is not None), None)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                load(module)
                self.close()
                self._then()

            loader.exec_module = exec_module
        return spec


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


def _dump_difference(operator: str, old: str, new: str) -> list[str]:
    """What differs between two dumps, in the words of a comparison of registries where they can be read."""
    from dispatchlab.records.model import read_dump

    try:
        sides = [read_dump(text) if text else None for text in (old, new)]
    except (DispatchLabError, ParseError, ValueError):
        return _text_difference(old, new)
    return _difference(operator, *sides) or _text_difference(old, new)


def _difference(operator: str, old: RecordedOperator | None, new: RecordedOperator | None) -> list[str]:
    """What differs between two records of an operator, in the words of a comparison of registries."""
    from dispatchlab.records.compare import change_lines, compare
    from dispatchlab.records.model import registry_of

    sides = [registry_of(name, [] if one is None else [one]) for name, one in (("before", old), ("now", new))]
    lines = list(change_lines(compare(*sides), located=False))
    if lines and lines[0] == operator:
        return [f"{operator}: {line.strip()}" for line in lines[1:]]
    if lines and old is None and new is not None:
        origins = dict.fromkeys(text for text in (new.debug, *(kernel.debug for kernel in new.kernels)) if text)
        lines += [f"  {text}" for text in origins]
    return lines


def _text_difference(old: str, new: str) -> list[str]:
    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[2:]
