"""Find scenarios, registries and operators: files, folders, bundled names, and globs."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.errors import DispatchLabError, RegistrationError, RequestError, UnknownOperatorError, did_you_mean
from dispatchlab.files import FileKind, OtherFileError, content_of, module_spec
from dispatchlab.model.names import find_names
from dispatchlab.model.slot_set import keys_of, slots_of_key
from dispatchlab.registries.file import bundled_name, is_registry_file, newest_bundled, open_named
from dispatchlab.registries.model import Recorded, RecordedOperator, Registry, find
from dispatchlab.views.formatting import first_of

if TYPE_CHECKING:
    from dispatchlab.live.recording.record_package import PackageRecord
    from dispatchlab.model.keys import DispatchKey
    from dispatchlab.scenario.scenario import Scenario


LIVE = "live"
"""The source that means the PyTorch of this environment."""


_SOURCES = (FileKind.SCENARIO, FileKind.REGISTRY)


class ImportOfRecordError(DispatchLabError):
    """Packages cannot be imported into a recording."""

    modules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.modules[0]} is imported into the installed PyTorch, and no source is `{LIVE}`: name `{LIVE}`"


def source_with_package(source: str, *, reach: Callable[[], None] | None = None) -> tuple[str, tuple[str, ...]]:
    """Return a source, and the package to import into it; for the name of a package, the source is `live`.

    Args:
        source: the source.
        reach: a function that is called before a package is searched.
    """
    parts = source.split(".")
    if (
        source == LIVE
        or not all(map(str.isidentifier, parts))
        or source.endswith((".yaml", ".yml", ".dlreg"))  # a file, if one that is not there
        or os.path.isfile(source)
    ):
        return source, ()
    if reach is not None:
        reach()
    spec = module_spec(parts[0])
    if spec is None or (spec.origin is None and len(parts) == 1):  # a folder without code is no package
        return source, ()
    return LIVE, (source,)


def is_scenario_source(text: str) -> bool:
    """Return whether a source is a scenario; the beginning of its text or the end of its name shows this."""
    found = content_of(text)
    if found is not None:
        return found.kind is FileKind.SCENARIO
    return os.path.splitext(text)[1] in (".yaml", ".yml")


def check_source(text: str) -> None:
    """Check that a file is a scenario, a registry, or unknown.

    Raises:
        OtherFileError: it is another file of dispatchlab, such as a replay.
    """
    found = content_of(text)
    if found is not None and found.kind not in _SOURCES:
        raise OtherFileError(text, found, _SOURCES)


def is_registry_source(text: str) -> bool:
    """Return whether a source is a registry: `live`, the name of a bundled registry, or a registry file."""
    return text == LIVE or bundled_name(text) is not None or is_registry_file(text)


def recorded_from(
    source: str,
    *,
    imports: Sequence[str] = (),
    python: bool = False,
    report: Callable[[str], None] | None = None,
) -> Recorded:
    """Return the registry of a source.

    Args:
        source: `live`, which is read in a new process, the name of a bundled registry, a registry file, or a
            scenario, which is run in the order of its file, without refused registrations.
        imports: modules to import first, only for `live`.
        python: also read registrations of Python in `live`, which imports Inductor and DTensor.
        report: a function that gets a sentence about each refused registration of a scenario, and about a renamed
            backend.

    Raises:
        UnknownRegistryError: no registry has this name, and there is no such file.
        RegistryFileError: a file cannot be read, or is damaged.
        ImportOfRecordError: `imports` for a source that is not `live`.
        DispatchLabError: PyTorch or a module cannot be imported, or a scenario cannot be used.
    """
    found: Recorded
    if source == LIVE:
        from dispatchlab.live.registry import live_registry

        found = registry = live_registry(imports, python=python)
        report_unreadable(registry, report)
    elif imports:
        raise ImportOfRecordError(tuple(imports))
    else:
        check_source(source)
        found = _of_scenario(source, report) if is_scenario_source(source) else open_named(source)
    report_renamed(found.privateuse1, report)
    return found


def check_sources(sources: Sequence[str]) -> None:
    """Check that several sources can be read, before work on the first source begins, which may take long.

    Raises:
        DispatchLabError: as `recorded_from` would raise it.
    """
    if len(sources) < 2:
        return
    for source in sources:
        if source == LIVE:
            continue
        check_source(source)
        if is_scenario_source(source):
            from dispatchlab.scenario.load import load_scenario

            load_scenario(source)
        else:
            open_named(source)


def recorded_packages(packages: Sequence[str]) -> PackageRecord:
    """Import packages in this order and record their registrations.

    Raises:
        ImportFailedError: one cannot be imported.
        ImportEndedError: one ends its process.
        ImportTimeoutError: one takes too long.
        TorchMissingError: there is no PyTorch.
    """
    from dispatchlab.live.worker.engine import LiveEngine

    with LiveEngine() as engine:
        found: PackageRecord = engine.ask("dispatchlab.live.recording.record_package:record_packages", tuple(packages))
    return found


def report_unreadable(registry: Registry, report: Callable[[str], None] | None) -> None:
    """Report the unreadable parts of a registry, which are left out."""
    if report is not None:
        for each in registry.unreadable:
            report(each)


def report_renamed(privateuse1: str, report: Callable[[str], None] | None) -> None:
    """Report the name that a package gave the PrivateUse1 backend, if there is one."""
    if privateuse1 and report is not None:
        from dispatchlab.registries.builds import renamed_text

        report(renamed_text(privateuse1))


# Note [A record stands on a registry]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What packages register is a part of what a dispatcher has: a kernel for `aten::mul.Tensor` joins those of PyTorch. A
# record of packages names the registry that they were imported into (`registry: torch-2.13`), and whoever asks for the
# operators of the record gets that registry with the registrations on top. Only what the record names is replayed; the
# other operators are read as they are. A record has the defs of foreign operators in it, so that it can be explored by
# itself; the registry has them already, and they are left out here.


def foundations_in(scenario: Scenario, beneath: Recorded) -> frozenset[int]:
    """Return the registrations of a scenario that the registry beneath already has: equal defs."""
    from dispatchlab.model.registration import Def

    def is_there(registration: object) -> bool:
        if not isinstance(registration, Def) or registration.kernel is not None:
            return False
        known = beneath.operator(registration.operator)
        return known is not None and known.schema == str(registration.schema)

    return frozenset(at for at, registration in enumerate(scenario.registrations) if is_there(registration))


def registry_of_scenario(scenario: Scenario) -> Recorded | None:
    """Return the registry that a scenario names; None without one. A file name is relative to the scenario.

    Raises:
        UnknownRegistryError: no registry has this name, and there is no such file.
        RegistryFileError: the file cannot be read, or is damaged.
    """
    if scenario.registry is None:
        return None
    beside = os.path.join(os.path.dirname(scenario.file), scenario.registry)
    return open_named(beside if bundled_name(scenario.registry) is None else scenario.registry)


def _of_scenario(source: str, report: Callable[[str], None] | None) -> Recorded:
    """See Note [A record stands on a registry]."""
    from dispatchlab.engine.dispatcher import Dispatcher
    from dispatchlab.engine.handle import RegistrationHandle
    from dispatchlab.model.installed_torch import model_for
    from dispatchlab.model.registration import Registration, describe
    from dispatchlab.questions.sources.replay_on_lab import bench, registry_on
    from dispatchlab.registries.overlay import Overlay
    from dispatchlab.registries.replay import run
    from dispatchlab.scenario.load import load_scenario
    from dispatchlab.scenario.scenario import operators_in

    scenario = load_scenario(source)
    beneath = registry_of_scenario(scenario)
    if beneath is None:
        dispatcher, held, known = Dispatcher.for_scenario(scenario.semantics), None, frozenset[int]()
        if report is not None:
            _report_missing_registry(scenario, source, report)
    else:
        held = bench(
            beneath,
            semantics=scenario.semantics or model_for(beneath.torch),
            operators=map(str, operators_in(scenario)),
            shipped=True,
        )
        dispatcher, known = held.dispatcher, foundations_in(scenario, beneath)

    def register(registration: Registration) -> RegistrationHandle | None:
        try:
            return dispatcher.register(registration)
        except RegistrationError as refusal:
            if report is not None:
                report(f"{source}: {describe(registration)} was refused: {refusal}")
            return None

    in_force = run((one for at, one in enumerate(scenario.registrations) if at not in known), register)
    made = registry_on(dispatcher, f"{dispatcher.semantics.name} ({source})", imports=scenario.packages)
    registry = replace(made, privateuse1=scenario.privateuse1)
    del in_force, held
    return registry if beneath is None else Overlay(beneath, registry, name=scenario.registry or "")


def _report_missing_registry(scenario: Scenario, source: str, report: Callable[[str], None]) -> None:
    from dispatchlab.scenario.scenario import operators_in

    foreign = next((name for name in operators_in(scenario) if name.namespace in ("aten", "prim")), None)
    if foreign is not None:
        report(
            f"{source} names no registry, so {foreign} has none of PyTorch's kernels here: add "
            f"`registry: {newest_bundled()}` to the file, or the name of a registry that was recorded with "
            "`dispatchlab record --all`"
        )


def in_either(first: Iterable[str], second: Iterable[str], asked: Sequence[str]) -> frozenset[str]:
    """Return the operators of two sources for names and globs.

    Raises:
        UnknownOperatorError: one of them fits no operator.
    """
    every = tuple(sorted({*first, *second}))
    found: set[str] = set()
    for each in asked:
        named = every if each == "*" else find_names(every, each)
        if not named:
            raise UnknownOperatorError(each, every, "either of them")
        found.update(named)
    return frozenset(found)


def chosen(recorded: Recorded, asked: Sequence[str]) -> Iterator[RecordedOperator]:
    """Return the operators for names and globs, each once; all operators if there are no names.

    Raises:
        UnknownOperatorError: one of them fits no operator.
        RegistryFileError: the registry is in a file that is damaged.
    """
    if not asked:
        yield from recorded
        return
    seen: set[str] = set()
    for each in asked:
        found = list(find(recorded, each))
        if not found:
            raise UnknownOperatorError(each, tuple(recorded.names), "this registry")
        for operator in found:
            if str(operator.name) not in seen:
                seen.add(str(operator.name))
                yield operator


def with_tags(operators: Iterable[RecordedOperator], tags: Sequence[str]) -> tuple[RecordedOperator, ...]:
    """Return the operators that have all these tags of PyTorch, such as `core`.

    Raises:
        RequestError: none of them has one of the tags.
    """
    found = tuple(operators)
    known = {tag for operator in found for tag in operator.tags}
    for tag in tags:
        if tag not in known:
            near = did_you_mean(tag, sorted(known)) or f"; the tags are {', '.join(sorted(known)) or 'none'}"
            raise RequestError(f"no operator here has the tag {tag}{near}")
    return tuple(operator for operator in found if operator.tags.issuperset(tags))


class Difference(NamedTuple):
    """The part of a recording that its base registry lacks.

    Args:
        operators: the new and different operators, by name; source locations are not compared.
        against: the name of the registry; if empty, there is none, and `operators` has all operators.
        left_out: the number of equal operators.
        base: the registry.
        lazy: the number of operators that differ only by registrations that PyTorch makes on the first use of a part.
    """

    operators: tuple[RecordedOperator, ...]
    against: str = ""
    left_out: int = 0
    base: Recorded | None = None
    lazy: int = 0


def own_operators(recorded: Recorded, source: str) -> Difference:
    """Return the operators of a recording that are not in the bundled registry of its PyTorch.

    For a record of packages, the bundled registry is the one beneath the record. All operators are returned if there is
    none, for a bundled registry itself, and if a backend fallback differs, which concerns every operator. Registrations
    that PyTorch makes when a part of it is first used are left out if no package changed the operator.
    """
    from dispatchlab.registries.builds import bundled_for, without_kernels_elsewhere
    from dispatchlab.registries.overlay import Overlay
    from dispatchlab.registries.ownership import ownership_of

    bundled = bundled_for(recorded.torch)
    if isinstance(recorded, Overlay):
        base, name = recorded.beneath, recorded.name
    elif bundled_name(source) is not None or bundled is None:
        return Difference(tuple(recorded))
    else:
        base, name = open_named(bundled), bundled
    if {(fallback.key, fallback.fallthrough) for fallback in recorded.fallbacks} != {
        (fallback.key, fallback.fallthrough) for fallback in base.fallbacks
    }:
        return Difference(tuple(recorded))
    known = recorded.over if isinstance(recorded, Overlay) else recorded
    beneath = base.operator if isinstance(recorded, Overlay) else {str(one.name): one for one in base}.get
    pairs = [(one, without_kernels_elsewhere(beneath(str(one.name)), one, recorded.torch)) for one in known]
    differing = [(one, before) for one, before in pairs if _shape(one) != _shape(before)]
    ownership = ownership_of(recorded)
    own = tuple(one for one, before in differing if _shape(ownership.without_lazy(one, before)) != _shape(before))
    lazy = len(differing) - len(own)
    return Difference(own, name, len(recorded.names) - len(own) - lazy, base, lazy)


def _shape(operator: RecordedOperator | None) -> object:
    """Return the facts of an operator that can decide whether the order matters."""
    if operator is None:
        return None
    kernels = tuple((kernel.key, kernel.inferred, kernel.flags, kernel.active) for kernel in operator.kernels)
    return operator.schema, operator.alias, kernels


class TableRowError(DispatchLabError):
    """A dispatch key has no row in any table."""

    key: str
    alias: str = ""

    template = "{key} has no row in a table: name a runtime key, such as CPU or AutogradCPU{alias}"


def find_listed(
    recorded: Recorded, asked: str, *, source: str, keys: Collection[DispatchKey] = ()
) -> tuple[RecordedOperator, ...]:
    """Return the operators for a text that have a kernel at one of the keys; the result may be empty.

    Args:
        recorded: the registry.
        asked: a text for `find_operators`, but a name means all its overloads, and `*` all operators.
        source: the name of the registry in the error.
        keys: the keys; empty for all operators.

    Raises:
        UnknownOperatorError: the registry has no such operator.
    """
    if asked != "*" and not find_names(recorded.names, asked):
        raise UnknownOperatorError(asked, tuple(recorded.names), source)
    return tuple(find(recorded, asked, keys=keys))


def table_rows(keys: Iterable[str], *, privateuse1: str = "") -> tuple[str, ...]:
    """Return the names of table rows.

    Args:
        keys: names of keys.
        privateuse1: the name that a package gave the PrivateUse1 backend, which also names the key.

    Raises:
        UnknownKeyError: a name is not a dispatch key; the error names the nearest key.
        TableRowError: a key has no row, for example an alias key.
    """
    from dispatchlab.model.keys import parse_key

    found = []
    for text in keys:
        key = parse_key(text, privateuse1)
        if not key.is_runtime:
            rows = first_of(keys_of(slots_of_key(key)), 20, " keys")
            raise TableRowError(text, f"; {text} is an alias key, which stands for {rows}" * key.is_alias)
        found.append(str(key))
    return tuple(found)
