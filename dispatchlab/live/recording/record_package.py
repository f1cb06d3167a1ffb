"""Record the registrations of packages as a scenario, each registration with its call site.

Python registrations are watched. C++ registrations make no call that can be watched, so they are found by
comparing dumps before and after the import. Run this in a process that has not imported the packages.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from dispatchlab.errors import DispatchLabError, ParseError
from dispatchlab.live.bridge.torch import import_packages, semantics, torch
from dispatchlab.live.bridge.watch import Registered, RegistrationWatch, WatchedCall
from dispatchlab.live.introspection.package_paths import modules_by_path, package_roots, site_chain, without_roots
from dispatchlab.live.introspection.python_registries import read_now
from dispatchlab.live.introspection.registry_reader import all_dumps, fallback_rows, tags_of
from dispatchlab.live.introspection.site_log import running_ownership, site_text
from dispatchlab.live.recording.module_blocks import Blocks
from dispatchlab.live.recording.module_watch import PYTHON_LINE, ModuleWatch
from dispatchlab.live.recording.module_watch import native as native_event
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.printed_schema import parse_printed, parse_printed_inferred
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.model.registration import (
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelFlags,
    KernelForm,
    Registration,
    TorchLibraryCall,
    TorchLibraryFunction,
    inner_of,
)
from dispatchlab.model.schema import clone_with_name
from dispatchlab.prover.chains import normal
from dispatchlab.registries.builds import bundled_for
from dispatchlab.registries.model import RecordedFallback, RecordedKernel, RecordedOperator, read_dump, read_fallbacks
from dispatchlab.scenario.scenario import SEMANTICS, Scenario, operators_named_by, registration_names
from dispatchlab.scenario.write import UnwritableError, scenario_text


@dataclass(frozen=True, slots=True)
class PackageRecord:
    """The record of a package.

    Args:
        text: the scenario, as the text of a file.
        torch: the version of PyTorch.
        registry: the bundled registry of that version; None if there is none.
        registrations: the number of registrations of the packages.
        foundations: operators of other packages that these packages have kernels for, by name; their defs come first.
        sites: the Python lines that made the registrations, sorted, as `file:line`, or `file:line via file:line` if the
            line called a helper; without C++.
        operators: the number of operators that got a def.
        dangling: operators with kernels but no def, by name.
        kernels: how many kernels were registered, those of C++ and backend fallbacks included.
        native: how many defs and kernels C++ registered.
        origins: of each call that registers, the operators, and the package that made it.
        by_torch: how many calls PyTorch made for itself, which are left out.
        unreadable: what could not be read or written and is left out, a sentence each.
        in_python: the new entries of the registries of Python, without PyTorch's own entries.
        registering: the modules that register something.
    """

    text: str
    torch: str
    registry: str | None
    registrations: int
    foundations: tuple[str, ...]
    sites: tuple[str, ...]
    operators: int
    dangling: tuple[str, ...]
    kernels: int
    native: int
    origins: tuple[tuple[tuple[str, ...], str], ...]
    by_torch: int
    unreadable: tuple[str, ...]
    in_python: tuple[PythonRegistration, ...] = ()
    registering: tuple[str, ...] = ()

    def idle(self, packages: Sequence[str]) -> tuple[str, ...]:
        """Return the packages that register nothing in any module."""
        return tuple(one for one in packages if not any(f"{name}.".startswith(f"{one}.") for name in self.registering))

    def foreign(self, packages: Sequence[str]) -> dict[str, str]:
        """Return the operators that only other packages register, each with its package."""
        tops = {name.partition(".")[0] for name in packages}
        own = {"", *(each for operators, package in self.origins if package in tops for each in operators)}
        return {each: package for operators, package in self.origins for each in operators if each not in own}


class Witness(Protocol):
    """A reader of further facts in the recording process, for other questions."""

    def import_packages(self, packages: Sequence[str], /) -> None:
        """Import the packages."""

    def imported(self) -> None:
        """Note that the packages are imported, before garbage collection."""

    def collected(self) -> None:
        """Note that garbage was collected."""


def record_packages(packages: Sequence[str], witness: Witness | None = None) -> PackageRecord:
    """Import packages and record what they register.

    Args:
        packages: the modules, imported in this order.
        witness: a reader of further facts.

    Raises:
        ImportFailedError: one cannot be imported.
    """
    watched = _watch_imports(packages, witness)
    reader = _Reader(watched.roots)
    by_python = Counter(_registered_at(watched.kept))
    added = _added(watched.before, watched.after, by_python, reader)
    native: list[Registered] = list(_added_fallbacks(watched, by_python))
    native += [registration for operator in added for registration in reader.registrations(operator)]
    calls = [call for call in watched.kept if not call.site.by_torch]
    written = [(registration, call) for call in calls for registration in reader.call(call)]
    registrations = (*native, *(registration for registration, _ in written))
    needed = tuple(_foundations(registrations, {**watched.after, **watched.before}, reader))
    touched = {_qualified(call, made) for call in calls for made in call.made if not isinstance(made, Fallback)}
    touched |= {operator.name for operator in added}
    scenario = Scenario(
        claim=f"What importing {' and then '.join(packages)} registers does not depend on its order.",
        registrations=(),
        operators=(),
        namespace=_namespace(touched),
        semantics=model if (model := semantics()) in SEMANTICS else None,
        registry=bundled_for(watched.torch),
        packages=tuple(packages),
        python=watched.in_python,
    )
    events: dict[int, object] = {id(made): native_event(_operator(made), _key(made), made.debug) for made in native}
    events |= {id(registration): id(call) for registration, call in written}
    text, left_out = _written(scenario, (*needed, *registrations), partial(_modules_of, watched, events))
    dumps = (reader.dump(name, watched.after.get(name)) for name in map(str, touched))
    made = [*native, *(made for call in calls for made in call.made)]
    refused = (call for call in watched.calls.refused if not call.site.by_torch)
    return PackageRecord(
        text=text,
        torch=watched.torch,
        registry=scenario.registry,
        registrations=len(registrations),
        foundations=tuple(str(definition.operator) for definition in needed),
        sites=tuple(sorted({site_chain(call.site, watched.roots) for call in _with_parts(calls)})),
        operators=sum(isinstance(registration, Def) for registration in made),
        dangling=tuple(sorted(str(dump.name) for dump in dumps if dump is not None and dump.is_dangling)),
        kernels=sum(isinstance(registration, Impl | Fallback) for registration in made),
        native=len(native),
        origins=tuple(_origins(watched, calls, native, packages)),
        by_torch=len(watched.kept) - len(calls),
        unreadable=(
            *watched.calls.unreadable,
            *reader.unreadable,
            *left_out,
            *dict.fromkeys(
                f"{_call_text(call)} at {site_chain(call.site, watched.roots)} was refused" for call in refused
            ),
        ),
        in_python=watched.in_python,
        registering=tuple(_registering(watched, calls, native)),
    )


@dataclass(frozen=True, slots=True)
class _WatchedImports:
    """The registrations that were seen while packages were imported.

    Args:
        torch: the version of PyTorch.
        roots: the folders in which packages are found.
        before: the dumps of all operators, by name.
        after: the dumps after the imports.
        calls: the registering calls.
        modules: the registrations and imports of each module body, in program order.
        fallbacks: the backend fallbacks before the imports.
        in_python: the new entries of the registries of Python, without PyTorch's own entries.
    """

    torch: str
    roots: tuple[str, ...]
    before: Mapping[str, str]
    after: Mapping[str, str]
    calls: RegistrationWatch
    modules: ModuleWatch
    fallbacks: Collection[RecordedFallback]
    in_python: tuple[PythonRegistration, ...]

    @property
    def kept(self) -> list[WatchedCall]:
        """The calls whose registrations were not released."""
        return [call for call in self.calls.calls if not call.released]


def _watch_imports(packages: Sequence[str], witness: Witness | None) -> _WatchedImports:
    version = str(torch().__version__)
    roots = package_roots(packages)
    before, fallbacks, python = all_dumps(), read_fallbacks(fallback_rows()), frozenset(read_now())
    modules = ModuleWatch(packages, roots, before)
    with RegistrationWatch(modules.registered) as calls, modules:
        gc.freeze()  # nothing of PyTorch's is a library of theirs, and to look through it takes a quarter of a second
        (import_packages if witness is None else witness.import_packages)(packages)
        if witness is not None:
            witness.imported()
        gc.collect()  # a library without a reference releases what it registered, whenever garbage is collected
        gc.unfreeze()
    if witness is not None:
        witness.collected()
    entries = (one for one in read_now() if one not in python)
    in_python = tuple(
        one for one in entries if one.active and one.registry not in _OF_CALLS and not one.site.startswith("torch/")
    )
    return _WatchedImports(version, roots, before, all_dumps(), calls, modules, fallbacks, in_python)


_OF_CALLS = ("torch_library", "custom_ops")
"""The registries that calls of torch.library fill, which are registrations of the record."""


def _registering(watched: _WatchedImports, calls: Sequence[WatchedCall], native: Sequence[Registered]) -> Iterator[str]:
    """Return the modules that register something, sorted."""
    replaced = (each for each in watched.calls.calls if each.function is TorchLibraryFunction.CUSTOM_OP)
    events = {id(call) for call in (*calls, *replaced) if not call.site.by_torch}
    by_cpp = {native_event(_operator(made), _key(made), made.debug) for made in native}
    names = {name for event, name in watched.modules.owners().items() if event in events or event in by_cpp}
    paths = modules_by_path(watched.roots)
    names |= {paths[path] for one in watched.in_python if (path := one.site.rpartition(":")[0]) in paths}
    yield from sorted(names)


def _modules_of(
    watched: _WatchedImports, events: Mapping[int, object], registrations: Sequence[Registration]
) -> Blocks:
    """Return the modules with the numbers of their registrations, and the order that their imports need.

    Args:
        watched: the watched registrations.
        events: the number of each registration in the watch of the modules, by `id`.
        registrations: the registrations of the scenario.
    """
    numbers: dict[object, list[int]] = {}
    for number, registration in enumerate(registrations):
        if id(registration) in events:
            numbers.setdefault(events[id(registration)], []).append(number)
    return watched.modules.modules(numbers)


def _call_text(call: WatchedCall) -> str:
    name = f"{call.namespace}::{call.operator.rpartition('::')[2]}" if call.operator else call.namespace
    return f"{call.function or ('Library' if call.claims else 'a registration')} for {name}"


class _Reader:
    """A reader of PyTorch's output. An unreadable part is reported for its operator, and everything else is read."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots
        self._found: dict[str, None] = {}

    @property
    def unreadable(self) -> tuple[str, ...]:
        """A sentence for each unreadable part."""
        return tuple(self._found)

    def dump(self, name: str, text: str | None) -> RecordedOperator | None:
        """Return an operator from its dump; None without a dump."""
        try:
            return None if text is None else read_dump(text)
        except (DispatchLabError, ValueError) as error:
            self._note(name, "its dump", error)
            return None

    def registrations(self, operator: RecordedOperator, *, def_only: bool = False) -> Iterator[Def | Impl]:
        """Return the def and the kernels of an operator; the kernels of each key begin with the oldest."""
        name = str(operator.name)
        if operator.schema is not None:
            try:
                schema = parse_printed(operator.schema)
            except ParseError as error:
                self._note(name, f"its schema {_short(operator.schema)}", error)
            else:
                yield Def(schema, operator.alias, tags_of(operator), without_roots(operator.debug, self._roots))
        for kernel in () if def_only else reversed(operator.kernels):
            yield Impl(operator.name, kernel.key, self._kernel(name, kernel), without_roots(kernel.debug, self._roots))

    def call(self, call: WatchedCall) -> Iterator[Registration]:
        """Return the registration that a watched call made."""
        try:
            yield _registration(call, self._roots)
        except (DispatchLabError, ValueError) as error:
            self._note(f"{call.namespace}::{call.operator}", f"the call at {call.site}", error)

    def _kernel(self, name: str, kernel: RecordedKernel) -> Kernel:
        if kernel.flags is KernelFlags.FALLTHROUGH:
            return Kernel(KernelForm.FALLTHROUGH)
        if kernel.inferred is None:
            return Kernel()
        try:
            inferred = parse_printed_inferred(kernel.inferred)
        except ParseError as error:
            self._note(name, f"the type {_short(kernel.inferred)} of its kernel for {kernel.key}", error)
            return Kernel()
        symint = is_symint_schema(inferred)
        return Kernel(KernelForm.UNBOXED, inferred, cpp_signature(inferred), symint=symint)

    def _note(self, name: str, what: str, error: Exception) -> None:
        self._found[f"{name}: {what} cannot be read: {_short(str(error).splitlines()[0])}"] = None


_LONG = 120


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _operator(one: Registered) -> object:
    return "" if isinstance(one, Fallback) else one.operator


def _key(one: Registered) -> DispatchKey | None:
    return None if isinstance(one, Def) else one.key


def _written(
    scenario: Scenario,
    registrations: tuple[Registration, ...],
    modules_of: Callable[[Sequence[Registration]], Blocks],
) -> tuple[str, list[str]]:
    """Return a scenario as text, with all registrations that can be written, and a sentence for each other one."""

    def text(some: tuple[Registration, ...]) -> str:
        named = operators_named_by(some)
        modules, order = modules_of(some)
        return scenario_text(
            replace(scenario, registrations=some, operators=named, modules=modules, order=normal(order))
        )

    try:
        return text(registrations), []
    except UnwritableError:
        pass
    kept: list[Registration] = []
    left_out: list[str] = []
    for registration in registrations:
        try:
            text((registration,))
        except UnwritableError as error:
            (name,) = registration_names((registration,))
            left_out.append(f"{name} cannot be written as a part of a scenario: {_short(error.reason)}")
        else:
            kept.append(registration)
    return text(tuple(kept)), left_out


def _with_parts(calls: Sequence[WatchedCall]) -> Iterator[WatchedCall]:
    for call in calls:
        yield call
        yield from call.parts


def _qualified(call: WatchedCall, one: Def | Impl) -> OperatorName:
    return replace(one.operator, namespace=call.namespace)


def _registered_at(calls: Sequence[WatchedCall]) -> Iterator[tuple[str, DispatchKey | None]]:
    """Return the operator and key of each registration; a def has no key, a fallback no operator."""
    for call in calls:
        for one in call.made:
            match one:
                case Def():
                    yield str(_qualified(call, one)), None
                case Impl():
                    yield str(_qualified(call, one)), one.key or DispatchKey.CompositeImplicitAutograd
                case Fallback():
                    yield "", one.key


def _added_fallbacks(
    watched: _WatchedImports, by_python: Counter[tuple[str, DispatchKey | None]]
) -> Iterator[Fallback]:
    """Return the new backend fallbacks of C++, without PyTorch's own."""
    ownership, brought = running_ownership(), watched.modules.fallbacks
    others = [one for one in read_fallbacks(fallback_rows()) if one not in brought and not by_python["", one.key]]
    for one in (*brought, *others):
        is_known = one in watched.fallbacks or PYTHON_LINE.search(one.debug) is not None
        if not is_known and not ownership.is_own_fallback(one):
            kernel = Kernel(KernelForm.FALLTHROUGH) if one.fallthrough else Kernel()
            yield Fallback(one.key, kernel, without_roots(one.debug, watched.roots))


def _added(
    before: Mapping[str, str],
    after: Mapping[str, str],
    watched: Counter[tuple[str, DispatchKey | None]],
    reader: _Reader,
) -> list[RecordedOperator]:
    """Return the new defs and kernels of C++, which were not watched, without PyTorch's own.

    Registrations on Python libraries that are older than the watch are also left out.
    """
    ownership = running_ownership()
    found = []
    for name, text in after.items():
        if before.get(name) == text:
            continue
        now = reader.dump(name, text)
        if now is None:
            continue
        old = reader.dump(name, before.get(name)) or RecordedOperator(now.name)
        had = Counter((kernel.key, kernel.debug) for kernel in old.kernels)
        new: list[RecordedKernel] = []
        for kernel in now.kernels:
            if had[kernel.key, kernel.debug]:
                had[kernel.key, kernel.debug] -= 1
            elif watched[name, kernel.key]:
                watched[name, kernel.key] -= 1
            elif PYTHON_LINE.search(kernel.debug) is None and not ownership.is_own(name, kernel.key, kernel.debug):
                new.append(kernel)
        is_new = now.schema is not None and old.schema is None and not watched[name, None]
        is_new = is_new and PYTHON_LINE.search(now.debug) is None and not ownership.is_own(name, None, now.debug)
        if is_new or new:
            found.append(_only_new(now, new, is_new=is_new))
    return found


def _only_new(now: RecordedOperator, new: Sequence[RecordedKernel], *, is_new: bool) -> RecordedOperator:
    """Return the operator with only its new kernels, newest first, and its schema if the schema is new."""
    by_key: dict[DispatchKey, list[RecordedKernel]] = {}
    for kernel in new:
        by_key.setdefault(kernel.key, []).append(kernel)
    kernels = tuple(replace(kernel, active=at == 0) for key in sorted(by_key) for at, kernel in enumerate(by_key[key]))
    return replace(now, kernels=kernels) if is_new else RecordedOperator(now.name, kernels=kernels)


def _foundations(registrations: Sequence[Registration], dumps: Mapping[str, str], reader: _Reader) -> Iterator[Def]:
    """Return the defs of other packages' operators that these packages have kernels for."""
    homes = (((isinstance(each, Block) and each.namespace) or "", each) for each in registrations)
    inside = ((home, one) for home, each in homes for one in inner_of(each))
    defined = {str(one.operator.within(home)) for home, one in inside if isinstance(one, Def)}
    for name in operators_named_by(registrations):
        operator = None if str(name) in defined else reader.dump(str(name), dumps.get(str(name)))
        for definition in () if operator is None else reader.registrations(operator, def_only=True):
            assert isinstance(definition, Def)
            yield definition


def _namespace(touched: set[OperatorName]) -> str:
    """Return the namespace of most operators; the scenario omits it in their names."""
    counts = Counter(name.namespace for name in sorted(touched, key=str))
    return counts.most_common(1)[0][0] if counts else "test"


def _registration(call: WatchedCall, roots: tuple[str, ...]) -> Registration:
    debug = site_text(call.site, roots)
    if call.claims:
        return Claim(call.namespace, debug)
    if call.function is None:
        return _plain(call, debug)
    base, _, overload = call.operator.rpartition("::")[2].partition(".")
    operator = OperatorName("", base, overload)
    parts = tuple(
        TorchLibraryCall(_function(part), operator, part.on, debug=site_text(part.site, roots)) for part in call.parts
    )
    made = tuple(replace(_in_block(one), debug=debug) for one in call.made)
    made_by = TorchLibraryCall(call.function, operator, call.on, parts, allow_override=call.allow_override)
    return Block(call.namespace, BlockKind.FRAGMENT, made, None, debug, made_by)


def _function(part: WatchedCall) -> TorchLibraryFunction:
    assert part.function is not None
    return part.function


def _plain(call: WatchedCall, debug: str) -> Registration:
    (one,) = call.made
    match one:
        case Def(schema=schema):
            assert not isinstance(schema, OperatorName)
            return replace(one, schema=clone_with_name(schema, _qualified(call, one)), debug=debug)
        case Impl():
            return replace(one, operator=_qualified(call, one), debug=debug)
        case Fallback():
            return replace(one, debug=debug)


def _in_block(one: Registered) -> Registered:
    """Return the registration as its block writes it, where a def needs no namespace."""
    if isinstance(one, Def) and not isinstance(one.schema, OperatorName):
        return replace(one, schema=clone_with_name(one.schema, one.operator.without_namespace))
    return one


def _origins(
    watched: _WatchedImports, calls: Sequence[WatchedCall], native: Sequence[Registered], packages: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    owners = watched.modules.owners()
    for one in native:
        module = owners.get(native_event(_operator(one), _key(one), one.debug), packages[0])
        yield (str(_operator(one)),), module.partition(".")[0]
    for call in calls:
        operators = tuple(str(_qualified(call, one)) for one in call.made if not isinstance(one, Fallback))
        yield operators, (call.site.module or packages[0]).partition(".")[0]
