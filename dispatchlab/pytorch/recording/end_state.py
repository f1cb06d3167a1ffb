"""What imports leave behind: all that a later call can find, as texts that two processes compare.

`StateBefore` is made before the imports, and its `end_state` says what is not as it was.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from operator import itemgetter
from types import ModuleType, NoneType, SimpleNamespace
from typing import Any, Final

from dispatchlab._gc_pause import collector_paused
from dispatchlab.model.registration import Def, Fallback
from dispatchlab.pytorch.bridge.reserved_namespaces import IMPORT_ORDERS
from dispatchlab.pytorch.bridge.torch import bindings, torch
from dispatchlab.pytorch.introspection.function_content import ORDER_OF_KEYS, Contents, attributes_added, digest
from dispatchlab.pytorch.introspection.package_paths import package_roots, site_chain, without_roots
from dispatchlab.pytorch.introspection.python_journal import PYTORCH_FOLDERS
from dispatchlab.pytorch.introspection.python_sites import FunctionSites
from dispatchlab.pytorch.introspection.python_tables import TableChange, tables_now
from dispatchlab.pytorch.introspection.queries import fresh_overload_order, kept_packet, overload_order
from dispatchlab.pytorch.introspection.registry_reader import DumpsBefore
from dispatchlab.pytorch.introspection.shared_state import Known, SharedState
from dispatchlab.pytorch.recording.outside_writes import OutsideWrites
from dispatchlab.pytorch.recording.process_settings import ASKED_BY_NAME, name_of, settings, thread_state
from dispatchlab.pytorch.recording.state_kind import Kind
from dispatchlab.pytorch.recording.watch import RegistrationWatch, WatchedCall

# Note [What imports leave behind]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Two orders of imports are alike if the modules do the same in both, and all that a later call can find is the same:
#
# - what dumps and tables show of each operator that was touched, and the table of one that nobody touched, which shows
#   the fallbacks;
# - the functions behind these, and the entries of Python's registries, with all values that they reach
#   (Note [What a function can reach]);
# - for each name, the overloads that a call of `torch.ops.ns.name` tries, in their order: those of the packet that
#   Python keeps, where somebody looked it up, and what it keeps of a def that is gone;
# - the calls that were refused, caught or not: what is accepted in one order and refused in another was done otherwise;
# - settings of the process that PyTorch's own kernels read, the environment, and what was replaced or written in
#   modules that were there before (Note [State that packages share]).
#
# A dump of every operator is only read where a shared library was loaded, since C++ registers without a call.

Texts = dict[str, str]


_PYTHON_LINE: Final = re.compile(r"registered at [^ \n]+\.py:\d+")
"""What a dump says of a def or a kernel of Python; its function is compared by itself."""

_UNTOUCHED: Final = f"{IMPORT_ORDERS}::untouched"


@dataclass(frozen=True, slots=True)
class EndState:
    """What imports left behind.

    Args:
        failures: what the import of a package raised, by package.
        texts: what is found, by what it is of.
        sites: the lines that registered, by operator.
        written: files that were written, and programs that were started.
        in_python: the operators of which a registry of Python is not as it was.
        hidden: what may hold something that it does not show, a sentence each.
        is_cut: there are more values than were read.
    """

    failures: Mapping[str, str]
    texts: Mapping[str, str]
    sites: Mapping[str, tuple[str, ...]]
    written: tuple[str, ...] = ()
    in_python: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    is_cut: bool = False


class StateBefore:
    """What there is before the imports.

    Args:
        dumps: what dumps show then.

    >>> before = StateBefore(DumpsBefore())
    >>> with RegistrationWatch() as watch:
    ...     import_packages(["my_package"])
    >>> before.end_state({}, watch, outside)
    """

    def __init__(self, dumps: DumpsBefore) -> None:
        self._roots = package_roots()
        self._dumps = dumps
        self._tables = tables_now()
        self._library = bindings()._dispatch_library("FRAGMENT", IMPORT_ORDERS, "")
        self._library.define("untouched() -> ()", "")
        self._untouched = self._table(_UNTOUCHED)
        self._modules = frozenset(sys.modules)
        self._namespaces = {name: dict(own) for name, own in _namespaces()}
        self._changed: list[TableChange] = []
        self.searched: list[tuple[str, object]] = []
        """Functions of which Python shows no list, each with what it is for."""
        self.exits: list[object] = []
        """What was registered for the end of the process."""
        self._settings = dict(settings())
        self._fetched: dict[int, tuple[object, str]] = {}
        self._context = copy_context()
        self._state = SharedState()
        self._others = _not_of_user()

    def end_state(
        self,
        failures: Mapping[str, str],
        watch: RegistrationWatch,
        outside: OutsideWrites,
        packages: Iterable[str] = (),
    ) -> EndState:
        """What is not as it was.

        Args:
            failures: what the import of a package raised, by package.
            watch: saw the calls that registered.
            outside: what they left outside of the process.
            packages: what was imported.
        """
        self._others = _not_of_user() - {package.partition(".")[0] for package in packages}
        with collector_paused():
            found = self._end_state(failures, watch)
        foreign = [f"{name} is called through ctypes, and what C keeps is not compared" for name in outside.foreign]
        opened = [f"{what} is open, and what is in it is not compared" for what in outside.opened()]
        return replace(found, written=tuple(outside.lasting()), hidden=(*found.hidden, *foreign, *opened))

    def fetched(self, original: Callable[..., Any], operator: Any, key: Any) -> object:
        """Stands in for the function that hands out kernels, so that it is known later which one an object is."""
        kernel = original(operator, key)
        dump = bindings()._dispatch_dump(str(operator))
        row = next((row for row in self._table(str(operator)).splitlines() if row.startswith(f"{key.name}: ")), "none")
        others = f", {digest(without_roots(dump, self._roots))}" if "Python" in row else ""  # which function, it shows
        text = f"the kernel of {operator} at {row}{others}"
        self._fetched[id(kernel)] = kernel, text
        return kernel

    def ends(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> object:
        """Stands in for the function that registers another one for the end of the process."""
        self.exits.append((*arguments, *named.items()))
        return original(*arguments, **named)

    def virtual(self, original: Callable[..., type], of: type, subclass: type) -> type:
        """Stands in for the function that makes a class a subclass of an abstract one, which only C notes."""
        self.searched.append((f"virtual subclass {name_of(subclass)} of {name_of(of)}", subclass))
        return original(of, subclass)

    def hidden(self, what: str, original: Callable[..., Any], *arguments: Any, **named: Any) -> object:
        """Stands in for a function that registers another one in a list that Python does not show."""
        self.searched.append((what, (*arguments, *named.items())))
        return original(*arguments, **named)

    def _end_state(self, failures: Mapping[str, str], watch: RegistrationWatch) -> EndState:
        texts: Texts = {}
        names = self._dumps.suspects({subject_of(call) for call in watch.calls})
        for name in names:
            dump = bindings()._dispatch_dump(name)
            if dump != self._dumps.texts.get(name, ""):
                texts[f"{Kind.DUMP}{name}"] = _PYTHON_LINE.sub("Python", without_roots(dump, self._roots))
                texts[f"{Kind.TABLE}{name}"] = self._table(name)
                texts |= _unprinted(name)
        table = self._table(_UNTOUCHED)
        if table != self._untouched:
            texts["backend fallbacks"] = table
        texts |= _overloads(names)
        texts |= {name: text for name, text in settings() if self._settings.get(name) != text}
        contents = Contents(
            [
                name
                for name, module in list(sys.modules.items())
                if name not in self._modules and (isinstance(module, SimpleNamespace) or self._is_of_user(module))
            ],
            {key: text for key, (_, text) in self._fetched.items()},
        )
        contents.read(sorted(self._roots_of_calls(watch), key=itemgetter(0)))
        contents.read(thread_state())
        count = -1
        while count != len(contents.names):  # what is read now may name what was taken for noise before
            count, known = len(contents.names), Known(contents.names, contents.address)
            contents.read(sorted(self._roots_of_state(known), key=itemgetter(0)))
        contents.read_modules()
        for name, shown in ASKED_BY_NAME.items():
            if name in contents.names:
                contents.read([(f"{Kind.PROCESS}{name}", shown())])
        if "_run_exitfuncs" in contents.names:
            contents.read((f"{Kind.PROCESS}end {number}", function) for number, function in enumerate(self.exits))
        if "threading" in contents.names:
            texts[f"{Kind.PROCESS}threads"] = str([thread.name for thread in threading.enumerate()])
        if contents.is_reflective:
            texts[f"{Kind.MODULE}tables"] = str([f"{one.registry} {one.operator}" for one in self._changed])
            spaces = (vars(torch().ops).get(name) for name in sorted({name.partition("::")[0] for name in names}))
            packets = [list(vars(each).items()) for each in spaces if each is not None]
            texts[f"{Kind.MODULE}operators"] = str([[(key, *_touched(one)) for key, one in own] for own in packets])
        sites: dict[str, dict[str, None]] = {}
        refused: dict[str, list[str]] = {}
        winners: dict[str, dict[str, None]] = {}  # the lines of the defs that are there
        for call in watch.calls:
            if not call.site.by_torch:
                subject, line = subject_of(call), site_chain(call.site, self._roots)
                sites.setdefault(subject, {})[line] = None
                if call.refused:
                    refused.setdefault(subject, []).append(line)
                elif any(isinstance(one, Def) for one in (*call.made, *call.content)):
                    winners.setdefault(subject, {})[line] = None
        for subject, lines in refused.items():
            there = f" where the def is that of {', '.join(winners[subject])}" if subject in winners else ""
            texts[f"{Kind.REFUSED}{subject}"] = f"{', '.join(sorted(lines))}{there}"
        places = FunctionSites(self._roots)
        for change in self._changed:
            site = "" if change.after is None else places.of(change.after.value).site
            if site and not site.startswith(PYTORCH_FOLDERS):
                sites.setdefault(change.operator, {})[site] = None
        found = {operator: tuple(lines) for operator, lines in sites.items()}
        read = {path: text for path, text in contents.texts.items() if not _is_order_of_state(path)}
        in_python = tuple(sorted({change.operator for change in self._changed}))
        hidden = [f"{what} is reached, which does not show what it holds" for what in contents.opaque]
        hidden += [
            f"{name} is read, which is taken for a cache and not compared"
            for name in contents.names & self._state.caches
        ]
        return EndState(
            failures, texts | read, found, in_python=in_python, hidden=tuple(sorted(hidden)), is_cut=contents.is_cut
        )

    def _table(self, name: str) -> str:
        text: str = bindings()._dispatch_dump_table(name)
        return _PYTHON_LINE.sub("Python", without_roots(text, self._roots))

    def _roots_of_calls(self, watch: RegistrationWatch) -> Iterator[tuple[str, object]]:
        """The functions that are registered, each with what it is of."""
        counts: dict[str, int] = {}
        for kernel in watch.kernels:
            key = kernel.registered.key or "CompositeImplicitAutograd"
            if isinstance(kernel.registered, Fallback):
                path = f"{Kind.FALLBACK}{key}"
            else:
                operator = kernel.registered.operator
                overload = f".{operator.overload}" if operator.overload else ""
                path = f"{Kind.KERNEL}{kernel.namespace}::{operator.name}{overload} at {key}"
            counts[path] = number = counts.get(path, 0) + 1
            yield f"{path}{f' ({number})' if number > 1 else ''}", kernel.function
        numbers = Counter[str]()
        for what, function in self.searched:
            numbers[what] += not what.startswith("virtual")
            yield f"{what} {numbers[what]}", function
        self._changed = self._tables.changes()
        for change in self._changed:
            where = f"{change.registry}{f' {change.key}' if change.key else ''} of {change.operator}"
            yield where, "taken out" if change.after is None else change.after.value
        for name, own in _namespaces():
            before = self._namespaces.get(name, {})
            for attribute, value in own.items():
                if before.get(attribute, _NOTHING) is not value:
                    yield f"{Kind.REPLACED}{name}.{attribute}", value

    def _is_of_user(self, module: object) -> bool:
        """Whether a module is neither of PyTorch, nor of what that needs, nor of the standard library."""
        name = getattr(module, "__name__", None)
        return isinstance(module, ModuleType) and isinstance(name, str) and name.partition(".")[0] not in self._others

    def _is_shown(self, value: object, path: str) -> bool:
        """Whether a value is compared that was set: of modules those of the packages, and no namespace of operators."""
        if isinstance(value, ModuleType | SimpleNamespace):
            is_of_user = isinstance(value, SimpleNamespace) or self._is_of_user(value)
            return is_of_user and not path.rpartition(".")[2].startswith("_")
        return not isinstance(value, sys.modules["torch._ops"]._OpNamespace)

    def _roots_of_state(self, known: Known) -> Iterator[tuple[str, object]]:
        """What is not as it was in modules that are not of the packages."""
        paths = Counter[str]()
        new: dict[str, object] = {
            name: module for name, module in list(sys.modules.items()) if name not in self._modules
        }
        others = [
            name for name, module in new.items() if isinstance(module, ModuleType) and not self._is_of_user(module)
        ]
        for variable, value in copy_context().items():
            if self._context.get(variable, _NOTHING) is not value:
                paths[shown := f"{Kind.STATE}context variable {variable.name}"] += 1
                yield f"{shown}{f' ({paths[shown]})' if paths[shown] > 1 else ''}", value
        later = self._state.new_state(others, (new.keys() - others).__contains__, known)
        for path, value, is_attribute in (*self._state.changes(known), *later):
            if self._is_shown(value, path):
                shown = f"{Kind.REPLACED if is_attribute else Kind.STATE}{path}"
                paths[shown] += 1
                yield f"{shown}{f' ({paths[shown]})' if paths[shown] > 1 else ''}", value


_NOTHING: Final = object()


def subject_of(call: WatchedCall) -> str:
    """The operator that a call is about, without its overload; the namespace of a claim; of a fallback the key."""
    if call.operator:
        return f"{call.namespace}::{call.operator.rpartition('::')[2].partition('.')[0]}"
    made = (*call.made, *call.content)
    return f"fallback at {made[0].key}" if made and isinstance(made[0], Fallback) else call.namespace


@cache
def _not_of_user() -> frozenset[str]:
    """The modules, without what is below them, of PyTorch, of what that needs, and of the standard library."""
    found = {"torch", "dispatchlab", "numpy", "__main__"}
    needed = {"torch"}
    while needed:
        name = needed.pop()
        with suppress(PackageNotFoundError):
            for requirement in requires(name) or ():
                other = re.split(r"[^\w-]", requirement)[0].lower().replace("-", "_")
                if "extra ==" not in requirement and other not in found:
                    found.add(other)
                    needed.add(other)
    return frozenset(found | sys.stdlib_module_names)


def _overloads(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The overloads that a call of each name tries, in their order, and what Python keeps of a def that is gone."""
    ops = sys.modules["torch._ops"]
    for base in sorted({name.partition(".")[0] for name in names}):
        tried, fresh = overload_order(base), fresh_overload_order(base)
        if set(tried) != set(fresh):
            yield f"{Kind.OVERLOADS}of {base}", f"{_listed(tried)}; registered are {_listed(fresh)}"
        packet = kept_packet(base)
        for attribute, overload in list(vars(packet).items()) if packet is not None else ():
            if isinstance(overload, ops.OpOverload):
                name = "" if attribute == "default" else attribute
                for what, kept, now in (
                    ("schema", str(overload._schema), _schema(base, name)),
                    ("tags", _tags(overload.tags), _tags_now(base, name)),
                ):
                    if kept != now:
                        yield f"{what} that torch.ops keeps of {base}.{attribute}", kept


def _touched(value: object) -> list[str]:
    """What a packet of `torch.ops` has by now, of which its overloads come where they are asked for."""
    return list(vars(value)) if isinstance(value, sys.modules["torch._ops"].OpOverloadPacket) else []


def _unprinted(name: str) -> Iterator[tuple[str, str]]:
    """What no dump shows of an operator."""
    base, _, overload = name.partition(".")
    if (tags := _tags_now(base, overload)) is not None:
        yield f"tags of {name}", tags
    with suppress(RuntimeError, AttributeError):
        yield f"stub of {name}", str(bindings()._dispatch_pystub(base, overload))


def _tags_now(base: str, overload: str) -> str | None:
    """The tags of an operator; empty where there is none, and None where PyTorch refuses to say."""
    try:
        found = bindings()._get_operation_overload(base, overload)
    except RuntimeError:
        return None
    return "" if found is None else _tags(found[2])


def _tags(tags: Iterable[Any]) -> str:
    return ", ".join(sorted(tag.name for tag in tags)) or "none"


def _listed(overloads: Sequence[str]) -> str:
    return ", ".join(each or "default" for each in overloads) or "none"


def _schema(base: str, overload: str) -> str:
    try:
        return str(bindings()._get_schema(base, overload))
    except RuntimeError:
        return ""


def _is_order_of_state(path: str) -> bool:
    """Whether a path is to the order of keys of what only modules reach that are not of the packages."""
    return path.startswith(Kind.STATE) and (path.endswith(ORDER_OF_KEYS) or _KEY_BY_PLACE.search(path) is not None)


_KEY_BY_PLACE: Final = re.compile(r"key \[\d+\]$")


def _namespaces() -> Iterator[tuple[str, Mapping[str, object]]]:
    """What `torch.ops`, its namespaces and its operators have that is no operator."""
    ops, all_ops = sys.modules["torch._ops"], torch().ops
    yield "torch.ops", {name: each for name, each in vars(all_ops).items() if not isinstance(each, ops._OpNamespace)}
    for name, space in list(vars(all_ops).items()):
        if isinstance(space, ops._OpNamespace):
            packets = {key: each for key, each in vars(space).items() if isinstance(each, ops.OpOverloadPacket)}
            own = {key: each for key, each in vars(space).items() if key not in packets and key not in _OF_NAMESPACE}
            yield (
                f"torch.ops.{name}",
                {key: each for key, each in own.items() if not isinstance(each, ops._OpNamespace)},
            )
            for key, packet in packets.items():
                for one, value in (("", packet), *vars(packet).items()):
                    if type(value) not in _PLAIN and (added := dict(attributes_added(value))):
                        yield f"torch.ops.{name}.{key}{one and f'.{one}'}", added


_PLAIN: Final = (str, list, tuple, NoneType)
_OF_NAMESPACE: Final = ("name", "__name__", "_dir", "__doc__", "__package__", "__loader__", "__spec__", "__file__")
