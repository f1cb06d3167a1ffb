"""The effect of an upgrade on a package: its registrations are replayed on both registries, under the model of each."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.errors import RegistrationError
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.profile import version_of
from dispatchlab.model.registration import Block, Def, Registration, describe
from dispatchlab.questions.sources.find_sources import foundations_in, registry_of_scenario
from dispatchlab.questions.sources.replay_on_lab import bench, registry_on
from dispatchlab.questions.upgrade.operator_changes import Find, SchemaChange, schema_change
from dispatchlab.questions.upgrade.slot_models import MISSING, Model, Slots, kernel_bits
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.model import Recorded, RecordedOperator, Registry
from dispatchlab.registries.replay import run
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario, operators_in


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourChange:
    """A change of behaviour.

    Args:
        since: the first PyTorch that has it, such as `2.8`.
        area: the part of PyTorch.
        what: the new behaviour.
        source: the report, the change or the file with this fact.
        program: a program that prints `prints` on a PyTorch with the change; empty without one.
        prints: the line.
    """

    since: str
    area: str
    what: str
    source: str
    program: str = ""
    prints: str = ""


@cache
def behaviour_changes() -> tuple[BehaviourChange, ...]:
    """Return all known changes of behaviour, the oldest first."""
    text = files(__package__).joinpath("behaviour_changes.toml").read_text(encoding="utf-8")
    return tuple(BehaviourChange(**row) for row in tomllib.loads(text)["change"])


def behaviour_between(before: str, after: str) -> tuple[BehaviourChange, ...]:
    """Return the changes of an upgrade.

    Args:
        before: a version, such as `2.12.0+cpu`.
        after: a later version. The facts do not cover an earlier one.
    """
    first, last = version_of(before), version_of(after)
    if first is None or last is None:
        return ()
    return tuple(one for one in behaviour_changes() if first < (version_of(one.since) or first) <= last)


@dataclass(frozen=True, slots=True)
class Refused:
    """A registration that one or both dispatchers refuse.

    Args:
        registration: the registration, as one line.
        before: why the first one refuses it; None if it is accepted.
        after: why the second one refuses it; None if it is accepted.
    """

    registration: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Held:
    """The kernel that runs in a slot.

    Args:
        find: the way in which the slot gets it.
        is_packages: whether the package registered it.
        debug: its debug text; empty without a kernel.
    """

    find: Find
    is_packages: bool
    debug: str


@dataclass(frozen=True, slots=True)
class OtherKernel:
    """Calls of an operator that run another kernel; equal changes of several keys are combined.

    Args:
        operator: the operator.
        keys: the dispatch keys of the calls.
        before: the kernel that ran before.
        after: the kernel that runs now.
    """

    operator: str
    keys: tuple[DispatchKey, ...]
    before: Held
    after: Held


@dataclass(frozen=True, slots=True)
class PackageUpgrade:
    """The effect of an upgrade on a package.

    Args:
        source: the file of its registrations.
        registrations: the number of registrations, without defs of PyTorch's operators.
        operators: the number of operators that they name.
        refused: the registrations that one of the dispatchers refuses.
        dangling: operators without a def for which the package has kernels.
        schemas: operators of PyTorch for which it has kernels, and whose schema differs.
        kernels: calls that run the package's kernel on only one side.
        behaviour: changes of PyTorch's behaviour that no registration shows.
    """

    source: str
    registrations: int
    operators: int
    refused: tuple[Refused, ...]
    dangling: tuple[str, ...]
    schemas: tuple[tuple[str, SchemaChange], ...]
    kernels: tuple[OtherKernel, ...]
    behaviour: tuple[BehaviourChange, ...] = ()

    @property
    def newly_refused(self) -> tuple[Refused, ...]:
        """The registrations that only the second dispatcher refuses."""
        return tuple(each for each in self.refused if each.before is None)

    @property
    def is_affected(self) -> bool:
        """True if the upgrade changes something for the package."""
        now = any(each.before != each.after for each in self.refused)
        return bool(now or self.dangling or self.schemas or self.kernels)


def package_upgrade(
    before: Recorded, after: Recorded, models: tuple[Model, Model], source: str | Scenario
) -> PackageUpgrade:
    """Replay the registrations of a package on both registries.

    Args:
        before: the first registry.
        after: the second one.
        models: their dispatchers.
        source: the scenario or recording, or its file.

    Raises:
        DispatchLabError: the scenario cannot be used.
    """
    scenario = load_scenario(source) if isinstance(source, str) else source
    # A recording holds the defs of PyTorch's operators that it names, so that it can be explored by itself.
    foundations = foundations_in(scenario, registry_of_scenario(scenario) or before)
    registrations = [one for at, one in enumerate(scenario.registrations) if at not in foundations]
    first, second = sides = [
        _Replayed(recorded, model, scenario, registrations)
        for recorded, model in zip((before, after), models, strict=True)
    ]
    names = sorted(map(str, operators_in(scenario)))
    common = frozenset(models[0].semantics.precedence.plain.slots) & {*models[1].semantics.precedence.plain.slots}
    dangling = tuple(name for name in names if second.dangles(name) and not first.dangles(name))
    used = frozenset().union(*map(_tags, registrations))
    gone = [frozenset(tag for tag in used if not _has_tag(side, tag)) for side in (before, after)]
    reasons_of = [
        [
            each or _without_tags(_tags(one) & (side - (gone[0] & gone[1])), model.name)
            for one, each in zip(registrations, refusals, strict=True)
        ]
        for side, model, refusals in zip(gone, models, (first.refusals, second.refusals), strict=True)
    ]
    changes = [
        change for name in names if name not in dangling for change in _other_kernels(name, first, second, common)
    ]
    return PackageUpgrade(
        scenario.file,
        len(registrations),
        len(names),
        tuple(
            Refused(describe(registration), *reasons)
            for registration, *reasons in zip(registrations, *reasons_of, strict=True)
            if any(reason is not None for reason in reasons)
        ),
        dangling,
        tuple(_schemas(names, before, after, sides)),
        tuple(change for change in changes if change.before.is_packages or change.after.is_packages),
        behaviour_between(before.torch, after.torch),
    )


def _tags(registration: Registration) -> frozenset[str]:
    """Return the tags of the defs of a registration."""
    if isinstance(registration, Block):
        return frozenset().union(*map(_tags, registration.registrations))
    return registration.tags if isinstance(registration, Def) else frozenset()


def _has_tag(recorded: Recorded, tag: str) -> bool:
    operators = map(recorded.operator, recorded.names)
    return any(tag in operator.tags for operator in operators if operator is not None)


def _without_tags(tags: frozenset[str], version: str) -> str | None:
    """Return why a version does not accept a def with tags that only the other version has; None without tags."""
    names = " and ".join(f"torch.Tag.{tag}" for tag in sorted(tags))
    return f"no operator of {version} has {names}, which the other version has" if tags else None


class _Replayed:
    """A registry with those registrations of a package that its dispatcher accepts."""

    def __init__(self, recorded: Recorded, model: Model, scenario: Scenario, registrations: list[Registration]) -> None:
        names = tuple(map(str, operators_in(scenario)))
        held = bench(recorded, semantics=model.semantics, operators=names)
        self.refusals: list[str | None] = []

        def register(registration: Registration) -> RegistrationHandle | None:
            try:
                handle = held.dispatcher.register(registration)
            except RegistrationError as refusal:
                self.refusals.append(str(refusal))
                return None
            self.refusals.append(None)
            return handle

        in_force = run(registrations, register)
        self._registry: Registry = registry_on(held.dispatcher, model.name)
        del in_force
        self._beneath = {name: recorded.operator(name) for name in names}
        self._slots = Slots(model.semantics, self._registry.fallbacks)
        beneath = {fallback.key for fallback in recorded.fallbacks}
        self._own_fallbacks = {fallback.key for fallback in self._registry.fallbacks} - beneath
        self._fallbacks = {fallback.key: fallback.debug for fallback in self._registry.fallbacks}

    def dangles(self, name: str) -> bool:
        """Return whether the package has kernels for an operator that has no def."""
        found = self._registry.operator(name)
        return found is not None and found.is_dangling and bool(self.own_keys(name))

    def own_keys(self, name: str) -> frozenset[DispatchKey]:
        """Return the keys at which the newest kernel belongs to the package."""
        operator, beneath = self._registry.operator(name), self._beneath[name]
        if operator is None:
            return frozenset()
        return frozenset(
            kernel.key
            for kernel in operator.kernels
            if beneath is None or len(operator.kernels_at(kernel.key)) > len(beneath.kernels_at(kernel.key))
        )

    def held(self, name: str) -> dict[DispatchKey, Held]:
        """Return the kernel that runs in each slot of an operator; empty for a missing operator."""
        operator = self._registry.operator(name)
        if operator is None:
            return {}
        own = self.own_keys(name)
        return {
            SLOT_KEYS[slot]: self._one(operator, own, SLOT_KEYS[slot], find)
            for slot, find in self._slots.all(kernel_bits(operator)).items()
        }

    def _one(self, operator: RecordedOperator, own: frozenset[DispatchKey], key: DispatchKey, find: Find) -> Held:
        if find.way is Way.FALLBACK:
            return Held(find, key in self._own_fallbacks, self._fallbacks.get(key, ""))
        source = key if find.way is Way.DIRECT else find.source
        kernel = None if source is None else operator.active_at(source)
        return Held(find, source in own, "" if kernel is None else kernel.debug)


_NOTHING = Held(MISSING, is_packages=False, debug="")


def _other_kernels(
    name: str, before: _Replayed, after: _Replayed, common: frozenset[DispatchKey]
) -> Iterator[OtherKernel]:
    olds, news = before.held(name), after.held(name)
    if not olds or not news:
        return  # that it is gone or new is reported as such
    groups: dict[tuple[Find, bool, Find, bool], list[DispatchKey]] = {}
    for key in sorted((olds.keys() | news.keys()) & common - {DispatchKey.Undefined}):
        old, new = olds.get(key, _NOTHING), news.get(key, _NOTHING)
        if (old.find, old.is_packages) != (new.find, new.is_packages):
            groups.setdefault((old.find, old.is_packages, new.find, new.is_packages), []).append(key)
    for keys in groups.values():
        yield OtherKernel(name, tuple(keys), olds.get(keys[0], _NOTHING), news.get(keys[0], _NOTHING))


def _schemas(
    names: list[str], before: Recorded, after: Recorded, sides: list[_Replayed]
) -> Iterator[tuple[str, SchemaChange]]:
    for name in names:
        old, new = before.operator(name), after.operator(name)
        if old is None or new is None or old.schema == new.schema or not any(side.own_keys(name) for side in sides):
            continue
        yield name, schema_change(old.schema, new.schema)
