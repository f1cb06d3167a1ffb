"""Record what importing packages registers as a scenario, each registration with its call site.

Python registrations are watched as they are made; those of C++, which make no call that could be watched, are found by
comparing dumps before and after. Run it in a process that has not imported the packages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.call_sites import CallSite
from dispatchlab.live.bridge.torch import import_packages, torch
from dispatchlab.live.introspection.package_paths import package_path, package_roots, without_root
from dispatchlab.live.introspection.registry_reader import all_dumps
from dispatchlab.live.introspection.site_log import running_ownership
from dispatchlab.live.recording.watch import Registered, RegistrationWatch, WatchedCall
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
from dispatchlab.scenario.scenario import Scenario, operators_named_by
from dispatchlab.scenario.write import scenario_text

_PYTHON = re.compile(r"\.py:\d+$")


class NothingRegisteredError(DispatchLabError):
    """Importing packages registers nothing."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        super().__init__(packages)
        self.packages = packages

    def __str__(self) -> str:
        return (
            f"{' and '.join(self.packages)} registers nothing when it is imported: name the module that registers, "
            "such as my_package.ops"
        )


@dataclass(frozen=True, slots=True)
class PackageRecord:
    """What was recorded.

    Args:
        text: the scenario, as the text of a file.
        registrations: how many registrations it has.
        sites: the lines of Python that made them, as `file:line`, sorted; parts and C++ not counted.
        operators: how many operators got a def.
        dangling: operators with kernels and no def, by name.
        kernels: how many kernels were registered, C++ included.
        shown: how many different source lines the dumps of PyTorch name for the same.
        native: how many defs and kernels C++ registered.
        others: how many registrations come from packages that were not asked for, by package.
        by_torch: how many calls PyTorch made for itself, which are left out.
        unreadable: what could not be read, a sentence each.
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
    unreadable: tuple[str, ...]


def record_packages(packages: Sequence[str]) -> PackageRecord:
    """Import packages and record what they register.

    Args:
        packages: the modules, imported in this order.

    Raises:
        ImportFailedError: one cannot be imported.
        NothingRegisteredError: they register nothing.
        UnwritableError: what was registered cannot be written as a scenario.
        DumpError: this PyTorch prints something that this version cannot read.
    """
    torch()
    roots = package_roots()
    before = all_dumps()
    with RegistrationWatch() as watch:
        import_packages(packages)
    kept = [call for call in watch.calls if not call.released]
    calls = [call for call in kept if not call.site.by_torch]
    by_torch = [call for call in kept if call.site.by_torch]
    after = all_dumps()
    added = _added(before, after, Counter(_registered_at(kept)))
    native = [registration for operator in added for registration in _native(operator, roots)]
    python = [_registration(call, roots) for call in calls]
    needed = list(_foundations(python, native, before, roots))
    registrations = (*needed, *native, *python)
    if not registrations:
        raise NothingRegisteredError(tuple(packages))
    touched = {_qualified(call, one) for call in calls for one in call.made if not isinstance(one, Fallback)}
    touched |= {operator.name for operator in added}
    read = {name: read_dump(after[name]) for name in map(str, touched) if name in after}
    scenario = Scenario(
        claim=f"What importing {' and then '.join(packages)} registers does not depend on its order.",
        registrations=registrations,
        operators=operators_named_by(registrations),
        namespace=_namespace(touched),
        semantics=None,
    )
    defined = sum(isinstance(one, Def) for call in calls for one in call.made)
    kernels = sum(isinstance(one, Impl) for call in calls for one in call.made)
    return PackageRecord(
        text=scenario_text(scenario),
        registrations=len(registrations),
        sites=tuple(sorted({package_path(str(call.site), roots) for call in _with_parts(calls)})),
        operators=defined + sum(isinstance(one, Def) for one in native),
        dangling=tuple(sorted(name for name, dump in read.items() if dump.is_dangling)),
        kernels=kernels + sum(isinstance(one, Impl) for one in native),
        shown=len(_shown(before, after, touched)),
        native=len(native),
        others=_others(calls, packages),
        by_torch=len(by_torch),
        unreadable=tuple(watch.unreadable),
    )


def _with_parts(calls: Sequence[WatchedCall]) -> Iterator[WatchedCall]:
    for call in calls:
        yield call
        yield from call.parts


def _qualified(call: WatchedCall, one: Def | Impl) -> OperatorName:
    return replace(one.operator, namespace=call.namespace)


def _registered_at(calls: Sequence[WatchedCall]) -> Iterator[tuple[str, DispatchKey | None]]:
    """The operator and the key of each registration; a def has the key None."""
    for call in calls:
        for one in call.made:
            match one:
                case Def():
                    yield str(_qualified(call, one)), None
                case Impl():
                    yield str(_qualified(call, one)), one.key or DispatchKey.CompositeImplicitAutograd
                case Fallback():
                    pass


def _added(
    before: Mapping[str, str], after: Mapping[str, str], watched: Counter[tuple[str, DispatchKey | None]]
) -> list[RecordedOperator]:
    """Defs and kernels that are there now, were not before, and were not watched: those of C++, PyTorch's left out.

    Python libraries that are older than the watch are left out, too.
    """
    ownership = running_ownership()
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
            elif _PYTHON.search(kernel.debug) is None and not ownership.is_own(name, kernel.key, kernel.debug):
                new.append(kernel)
        is_new = now.schema is not None and old.schema is None and not watched[name, None]
        is_new = is_new and _PYTHON.search(now.debug) is None and not ownership.is_own(name, None, now.debug)
        if is_new or new:
            found.append(_only_new(now, new, is_new=is_new))
    return found


def _only_new(now: RecordedOperator, new: Sequence[RecordedKernel], *, is_new: bool) -> RecordedOperator:
    """The operator with its new kernels alone, those of one key newest first, and its schema if that is new."""
    by_key: dict[DispatchKey, list[RecordedKernel]] = {}
    for kernel in new:
        by_key.setdefault(kernel.key, []).append(kernel)
    kernels = tuple(replace(kernel, active=at == 0) for key in sorted(by_key) for at, kernel in enumerate(by_key[key]))
    return replace(now, kernels=kernels) if is_new else RecordedOperator(now.name, kernels=kernels)


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
    for name in operators_named_by((*native, *python)):
        text = before.get(str(name))
        if text is None:
            continue
        read = read_dump(text)
        if read.schema is not None:
            yield Def(parse_schema(read.schema), read.alias, frozenset(), without_root(read.debug, roots))


def _namespace(touched: set[OperatorName]) -> str:
    """The namespace of most operators, which need not write it."""
    counts = Counter(name.namespace for name in sorted(touched, key=str))
    return counts.most_common(1)[0][0] if counts else "test"


def _registration(call: WatchedCall, roots: tuple[str, ...]) -> Registration:
    debug = _debug(call.site, roots)
    if call.claims:
        return Claim(call.namespace, debug)
    if call.function is None:
        return _plain(call, debug)
    base, _, overload = call.operator.rpartition("::")[2].partition(".")
    operator = OperatorName("", base, overload)
    parts = tuple(
        TorchLibraryCall(_function(part), operator, part.on, debug=_debug(part.site, roots)) for part in call.parts
    )
    made = tuple(replace(_in_block(one), debug=debug) for one in call.made)
    made_by = TorchLibraryCall(call.function, operator, call.on, parts)
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
    """The registration as it stands in its block, where a def needs no namespace."""
    if isinstance(one, Def) and not isinstance(one.schema, OperatorName):
        return replace(one, schema=clone_with_name(one.schema, one.operator.without_namespace))
    return one


def _debug(site: CallSite, roots: tuple[str, ...]) -> str:
    return "registered at " + " via ".join(package_path(line, roots) for line in (str(site), *site.via))


def _shown(before: Mapping[str, str], after: Mapping[str, str], touched: set[OperatorName]) -> set[str]:
    """The debug texts that PyTorch's dumps have for what is new."""
    texts: set[str] = set()
    for name in map(str, touched):
        if name not in after:
            continue
        now = read_dump(after[name])
        old = read_dump(before[name]) if name in before else RecordedOperator(now.name)
        texts |= {now.debug} - {old.debug, ""}
        texts |= {kernel.debug for kernel in now.kernels} - {kernel.debug for kernel in old.kernels}
    return texts


def _others(calls: Sequence[WatchedCall], packages: Sequence[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for call in calls:
        module = call.site.module
        if not any(module == package or module.startswith(f"{package}.") for package in packages):
            counts[module.partition(".")[0] or "<unknown>"] += 1
    return dict(sorted(counts.items()))
