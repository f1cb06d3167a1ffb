"""Record what importing packages registers as a scenario, each registration with its call site.

Python registrations are watched as they are made; those of C++, which make no call that could be watched, are found by
comparing dumps before and after. Run it in a process that has not imported the packages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.introspection.registry_reader import ImportFailedError, dumps, package_roots, without_root
from dispatchlab.live.recording.watch import Call, Site, Watch
from dispatchlab.model.cpp_signature import cpp_signature
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
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
)
from dispatchlab.model.schema import clone_with_name
from dispatchlab.model.schema_parser import parse_inferred, parse_schema
from dispatchlab.registry.model import RecordedKernel, RecordedOperator, read_dump
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.scenario.write import scenario_text

_PYTHON = re.compile(r"\.py:\d+$")


@dataclass(frozen=True, slots=True)
class PackageRecord:
    """What was recorded.

    Args:
        text: the scenario, as the text of a file.
        registrations: how many registrations it has.
        sites: the places in Python that made them, as `file:line`, sorted; parts and C++ not counted.
        operators: how many operators got a def.
        dangling: operators with kernels and no def, by name.
        kernels: how many kernels were registered, C++ included.
        shown: how many different places the dumps of PyTorch name for the same.
        native: how many defs and kernels C++ registered.
        others: how many registrations come from packages that were not asked for, by package.
        by_torch: how many calls PyTorch made for itself, which are left out.
        unread: what could not be read, a sentence each.
    """

    text: str
    registrations: int
    sites: tuple[str, ...]
    operators: int
    dangling: tuple[str, ...]
    kernels: int
    shown: int
    native: int
    others: Mapping[str, int]
    by_torch: int
    unread: tuple[str, ...]


def record_packages(packages: Sequence[str]) -> PackageRecord:
    """Import packages and record what they register.

    Args:
        packages: the modules, imported in this order.

    Raises:
        ImportFailedError: one cannot be imported.
        UnwritableError: what was registered cannot be written as a scenario.
        DumpError: this PyTorch prints something that this version cannot read.
    """
    torch()
    roots = package_roots()
    before = dumps()
    with Watch() as watch:
        for package in packages:
            try:
                import_module(package)
            except Exception as error:
                raise ImportFailedError(package, f"{type(error).__name__}: {error}") from error
    calls = [call for call in watch.calls if not call.site.by_torch and not call.released]
    torchs = [call for call in watch.calls if call.site.by_torch and not call.released]
    after = dumps()
    added = _added(before, after, Counter(_cells((*calls, *torchs))))
    native = [registration for operator in added for registration in _native(operator, roots)]
    python = [_registration(call, roots) for call in calls]
    needed = list(_foundations(python, native, before, roots))
    registrations = (*needed, *native, *python)
    touched = {_full(call, one) for call in calls for one in call.made if not isinstance(one, Fallback)}
    touched |= {operator.name for operator in added}
    read = {name: read_dump(after[name]) for name in map(str, touched) if name in after}
    scenario = Scenario(
        claim=f"What importing {' and then '.join(packages)} registers does not depend on its order.",
        registrations=registrations,
        operators=_named(registrations),
        namespace=_namespace(touched),
        semantics=None,
    )
    defined = sum(isinstance(one, Def) for call in calls for one in call.made)
    kernels = sum(isinstance(one, Impl) for call in calls for one in call.made)
    return PackageRecord(
        text=scenario_text(scenario),
        registrations=len(registrations),
        sites=tuple(sorted({_place(call.site, roots) for call in _with_parts(calls)})),
        operators=defined + sum(isinstance(one, Def) for one in native),
        dangling=tuple(sorted(name for name, dump in read.items() if dump.is_dangling)),
        kernels=kernels + sum(isinstance(one, Impl) for one in native),
        shown=len(_shown(before, after, touched)),
        native=len(native),
        others=_others(calls, packages),
        by_torch=len(torchs),
        unread=tuple(watch.unread),
    )


def _with_parts(calls: Sequence[Call]) -> Iterator[Call]:
    for call in calls:
        yield call
        yield from call.parts


def _full(call: Call, one: Def | Impl) -> OperatorName:
    name = one.operator
    return OperatorName(call.namespace, name.name, name.overload)


def _cells(calls: Sequence[Call]) -> Iterator[tuple[str, DispatchKey | None]]:
    """What the calls put where: a def has the key None."""
    for call in calls:
        for one in call.made:
            match one:
                case Def():
                    yield str(_full(call, one)), None
                case Impl():
                    yield str(_full(call, one)), one.key or DispatchKey.CompositeImplicitAutograd
                case Fallback():
                    pass


def _added(
    before: Mapping[str, str], after: Mapping[str, str], watched: Counter[tuple[str, DispatchKey | None]]
) -> list[RecordedOperator]:
    """Defs and kernels that are there now, were not before, and were not watched: those of C++, PyTorch's left out."""
    home = _home_of_torch(before)
    found = []
    for name, text in after.items():
        if before.get(name) == text:
            continue
        now = read_dump(text)
        old = read_dump(before[name]) if name in before else RecordedOperator(now.name)
        had = Counter((kernel.key, kernel.debug) for kernel in old.kernels)
        new: list[RecordedKernel] = []
        for kernel in now.kernels:
            if had[kernel.key, kernel.debug]:
                had[kernel.key, kernel.debug] -= 1
            elif watched[name, kernel.key]:
                watched[name, kernel.key] -= 1
            elif not _is_elsewhere(kernel.debug, home):
                new.append(kernel)
        is_new = now.schema is not None and old.schema is None and not watched[name, None]
        is_new = is_new and not _is_elsewhere(now.debug, home)
        if is_new or new:
            kernels = tuple(replace(kernel, active=True) for kernel in reversed(new))
            found.append(_Native(now, kernels, is_new=is_new).operator)
    return found


@dataclass(frozen=True, slots=True)
class _Native:
    now: RecordedOperator
    kernels: tuple[RecordedKernel, ...]
    is_new: bool

    @property
    def operator(self) -> RecordedOperator:
        """The operator with what is new of it alone; kernels of one key oldest first."""
        by_key: dict[DispatchKey, list[RecordedKernel]] = {}
        for kernel in self.kernels:
            by_key.setdefault(kernel.key, []).insert(0, kernel)
        kernels = tuple(
            replace(kernel, active=at == 0) for key in sorted(by_key) for at, kernel in enumerate(by_key[key])
        )
        if not self.is_new:
            return RecordedOperator(self.now.name, kernels=kernels)
        return replace(self.now, kernels=kernels)


def _is_elsewhere(debug: str, home: str) -> bool:
    """Whether it is from PyTorch's own C++, or from a Python library that is older than the watch."""
    return debug.startswith(home) or _PYTHON.search(debug) is not None


def _home_of_torch(before: Mapping[str, str]) -> str:
    """How the debug texts of PyTorch's own C++ start: the folder in which it was built."""
    debug = read_dump(before["aten::relu"]).debug
    return debug.partition("/aten/")[0].partition("/build/")[0] + "/"


def _native(operator: RecordedOperator, roots: tuple[str, ...]) -> Iterator[Registration]:
    if operator.schema is not None:
        yield Def(parse_schema(operator.schema), operator.alias, operator.tags, without_root(operator.debug, roots))
    for kernel in reversed(operator.kernels):
        yield Impl(operator.name, kernel.key, _kernel(kernel), without_root(kernel.debug, roots))


def _kernel(kernel: RecordedKernel) -> Kernel:
    if kernel.flags is KernelFlags.FALLTHROUGH:
        return Kernel(KernelForm.FALLTHROUGH)
    if kernel.inferred is None:
        return Kernel()
    inferred = parse_inferred(kernel.inferred)
    return Kernel(KernelForm.UNBOXED, inferred, cpp_signature(inferred))


def _foundations(
    python: Sequence[Registration], native: Sequence[Registration], before: Mapping[str, str], roots: tuple[str, ...]
) -> Iterator[Registration]:
    """The defs of operators that were there before, which kernels of the packages are for."""
    for name in _named((*native, *python)):
        text = before.get(str(name))
        if text is None:
            continue
        read = read_dump(text)
        if read.schema is not None:
            yield Def(parse_schema(read.schema), read.alias, frozenset(), without_root(read.debug, roots))


def _named(registrations: Sequence[Registration]) -> tuple[OperatorName, ...]:
    from dispatchlab.scenario.scenario import operators_named_by

    return operators_named_by(registrations)


def _namespace(touched: set[OperatorName]) -> str:
    """The namespace of most operators, which need not write it."""
    counts = Counter(name.namespace for name in sorted(touched, key=str))
    return counts.most_common(1)[0][0] if counts else "test"


def _registration(call: Call, roots: tuple[str, ...]) -> Registration:
    debug = _debug(call.site, roots)
    if call.claims:
        return Claim(call.namespace, debug)
    if call.function is None:
        return _plain(call, debug)
    name = call.operator.rpartition("::")[2]
    base, _, overload = name.partition(".")
    operator = OperatorName("", base, overload)
    parts = tuple(
        TorchLibraryCall(_function(part), operator, part.on, debug=_debug(part.site, roots)) for part in call.parts
    )
    made = tuple(replace(_bare(one), debug=debug) for one in call.made)
    made_by = TorchLibraryCall(call.function, operator, call.on, parts)
    return Block(call.namespace, BlockKind.FRAGMENT, made, None, debug, made_by)


def _function(part: Call) -> TorchLibraryFunction:
    assert part.function is not None
    return part.function


def _plain(call: Call, debug: str) -> Registration:
    (one,) = call.made
    match one:
        case Def(schema=schema):
            assert not isinstance(schema, OperatorName)
            return replace(one, schema=clone_with_name(schema, _full(call, one)), debug=debug)
        case Impl():
            return replace(one, operator=_full(call, one), debug=debug)
        case Fallback():
            return replace(one, debug=debug)


def _bare(one: Def | Impl | Fallback) -> Def | Impl | Fallback:
    """Inside its block a name needs no namespace."""
    if isinstance(one, Def) and not isinstance(one.schema, OperatorName):
        name = one.operator
        return replace(one, schema=clone_with_name(one.schema, OperatorName("", name.name, name.overload)))
    return one


def _debug(site: Site, roots: tuple[str, ...]) -> str:
    at = without_root(f"registered at {site}", roots)
    if not site.via:
        return at
    return f"{at} via {without_root(f'registered at {site.via}', roots).removeprefix('registered at ')}"


def _place(site: Site, roots: tuple[str, ...]) -> str:
    return without_root(f"registered at {site}", roots).removeprefix("registered at ")


def _shown(before: Mapping[str, str], after: Mapping[str, str], touched: set[OperatorName]) -> set[str]:
    """The places that PyTorch's dumps name for what is new."""
    places: set[str] = set()
    for name in map(str, touched):
        if name not in after:
            continue
        now = read_dump(after[name])
        old = read_dump(before[name]) if name in before else RecordedOperator(now.name)
        places |= {now.debug} - {old.debug, ""}
        places |= {kernel.debug for kernel in now.kernels} - {kernel.debug for kernel in old.kernels}
    return places


def _others(calls: Sequence[Call], packages: Sequence[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for call in calls:
        module = call.site.module
        if not any(module == package or module.startswith(f"{package}.") for package in packages):
            counts[module.partition(".")[0] or "<unknown>"] += 1
    return dict(sorted(counts.items()))
