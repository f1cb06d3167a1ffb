"""Upgrades: the changes of each operator between two registries, as a pure function of the two.

Kernels are compared by their key, whether they are fallthroughs, and the package and language of their registration. A
moved line, a split file or a renamed folder is not a change. If a dispatcher is known, the caller computes the content
of slots and passes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import ParseError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import qualified
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_compatibility import backward_break
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.model import RecordedFallback, RecordedKernel, RecordedOperator
from dispatchlab.registries.ownership import Ownership
from dispatchlab.registries.replay import schema_of
from dispatchlab.registries.side_by_side import kernels_by_key, side_by_side


class Composite(WordEnum):
    """The kind of composition of an operator."""

    IMPLICIT = "implicit"  # its parts are differentiated: CompositeImplicitAutograd
    EXPLICIT = "explicit"  # it is differentiated as a whole: CompositeExplicitAutograd, ...NonFunctional
    BOTH = "implicit and explicit"
    NONE = "none"  # backends have kernels of their own


class Reason(WordEnum):
    """The reason why another kernel is at the same key."""

    FALLTHROUGH = "fallthrough"  # calls skip the key now, or no longer
    OWNER = "owner"  # another package registered it
    FILE = "file"  # another file of another package


class Cause(WordEnum):
    """The reason why a slot has other content."""

    KERNELS = "kernels"  # the operator has other kernels
    FALLBACKS = "fallbacks"  # a backend fallback came or went
    DISPATCHER = "dispatcher"  # the dispatcher fills slots by other rules


@dataclass(frozen=True, slots=True)
class Find:
    """The kernel that a call finds in a slot.

    Args:
        way: the way in which the slot gets it.
        source: the alias key at which the kernel is registered; None for the key's own kernel and for no kernel.
    """

    way: Way
    source: DispatchKey | None = None


@dataclass(frozen=True, slots=True)
class SlotChange:
    """Slots of an operator with other content."""

    cause: Cause
    keys: tuple[DispatchKey, ...]
    before: Find
    after: Find


SlotsOf: TypeAlias = Callable[[RecordedOperator, RecordedOperator], tuple[SlotChange, ...]]
"""The slots in which an operator of the first registry and the same of the second differ."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Another schema.

    Args:
        before: the schema; None when there was no def.
        after: the same for the second side.
        backward: why callers of the old schema break; None if they do not break.
        changes: a phrase for each difference.
    """

    before: str | None
    after: str | None
    backward: str | None
    changes: tuple[str, ...] = ()

    @property
    def is_compatible(self) -> bool:
        """True when callers of the old schema can use the new one."""
        return self.backward is None


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another kernel at the same key.

    Args:
        key: the key.
        reason: the kind of difference.
        before: the kernel in dumps.
        after: the same for the second side.
    """

    key: DispatchKey
    reason: Reason
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class OneSided:
    """An operator in only one of the two registries.

    Args:
        operator: its name.
        schema: its schema; None when it has no def.
        debug: its debug text.
        keys: the keys of its kernels.
        is_overload: whether both registries have other overloads of it.
        of_build: the backend of its kernels, if one registry has no kernels for this backend; else empty.
    """

    operator: str
    schema: str | None
    debug: str
    keys: tuple[DispatchKey, ...]
    is_overload: bool
    of_build: str = ""


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """The differences of an operator that both registries have.

    Args:
        operator: its name.
        schema: its schemas if they differ.
        alias: its alias kinds if they differ; `default` for none.
        tags_gained: its new tags.
        tags_lost: its lost tags.
        gained: the keys at which it gained a kernel.
        lost: the keys at which it lost a kernel.
        replaced: other kernels at the same keys.
        composite: the old and the new kind of composite, if they differ.
        slots: the slots with other content.
        foreign: the gained and lost kernels that are not PyTorch's own, with their debug texts.
    """

    operator: str
    schema: SchemaChange | None = None
    alias: tuple[str, str] | None = None
    tags_gained: tuple[str, ...] = ()
    tags_lost: tuple[str, ...] = ()
    gained: tuple[DispatchKey, ...] = ()
    lost: tuple[DispatchKey, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    composite: tuple[Composite, Composite] | None = None
    slots: tuple[SlotChange, ...] = ()
    foreign: Mapping[DispatchKey, str] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """True if the operator's own registrations differ."""
        parts = (self.schema, self.alias, self.tags_gained, self.tags_lost, self.gained, self.lost, self.replaced)
        return any((*parts, self.composite, self.own_slots))

    @property
    def own_slots(self) -> tuple[SlotChange, ...]:
        """The slots that differ because of the operator's kernels, not because of the dispatcher or fallbacks."""
        return tuple(change for change in self.slots if change.cause is Cause.KERNELS)


@dataclass(frozen=True, slots=True)
class FallbackChange:
    """A backend fallback that is new, gone or changed.

    Args:
        key: its key.
        before: `fallthrough` or `kernel`; None without a fallback.
        after: the same for the second side.
        debug: its debug text, of the new fallback if there is one.
    """

    key: DispatchKey
    before: str | None
    after: str | None
    debug: str


@dataclass(frozen=True, slots=True)
class SharedChange:
    """A change of many operators at once, with a common cause outside of them.

    Args:
        keys: the slots.
        cause: the dispatcher, or a backend fallback.
        before: the kernels that calls found there.
        after: the kernels that calls find now.
        operators: the operators.
    """

    keys: tuple[DispatchKey, ...]
    cause: Cause
    before: Find
    after: Find
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The effect of an upgrade from one registry to another.

    Args:
        removed: operators of only the first registry, by name.
        added: operators of only the second registry.
        changed: operators of both that differ in their own registrations, by name.
        fallbacks: backend fallbacks, by key.
        shared: differences of slots that many operators share.
        keys_gone: dispatch keys that the second dispatcher lacks, with the number of operators that had a kernel there.
        keys_new: dispatch keys that the first one lacks, with the number of operators that have a kernel there.
        builds: the backends without kernels in one of the two, with the number of kernels that are left out.
        new_tags: tags that no operator had in the first one, with the number of operators that have it now.
        gone_tags: tags that no operator has any more.
        compared: the number of operators in one or both registries.
        left_out: operators with registrations that PyTorch makes when a part of it is first used.
    """

    removed: tuple[OneSided, ...]
    added: tuple[OneSided, ...]
    changed: tuple[OperatorChange, ...]
    fallbacks: tuple[FallbackChange, ...]
    shared: tuple[SharedChange, ...]
    keys_gone: Mapping[DispatchKey, int]
    keys_new: Mapping[DispatchKey, int]
    builds: Mapping[str, int]
    new_tags: Mapping[str, int]
    gone_tags: Mapping[str, int]
    compared: int
    left_out: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is no difference to report."""
        parts = (self.removed, self.added, self.changed, self.fallbacks, self.shared, self.keys_gone, self.keys_new)
        return not any((*parts, self.builds, self.new_tags, self.gone_tags))

    @property
    def schemas(self) -> tuple[tuple[str, SchemaChange], ...]:
        """The operators with another schema, those that break callers first."""
        found = [(change.operator, change.schema) for change in self.changed if change.schema is not None]
        return tuple(sorted(found, key=lambda each: each[1].is_compatible))


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of a comparison of two registries.

    Args:
        slots: the slots in which an operator differs.
        keys_gone: dispatch keys that the second dispatcher lacks.
        keys_new: dispatch keys that the first one lacks.
        builds: the backends without kernels in one of the two builds.
        owners: PyTorch's own registrations, for the first and the second registry.
    """

    slots: SlotsOf
    keys_gone: frozenset[DispatchKey]
    keys_new: frozenset[DispatchKey]
    builds: frozenset[str]
    owners: tuple[Ownership, Ownership]
    backend_of: Callable[[DispatchKey], str | None]

    def of_build(self, key: DispatchKey) -> str:
        """Return the backend of a key if one build has no kernels for it; else empty."""
        backend = self.backend_of(key)
        return backend if backend is not None and backend in self.builds else ""


def upgrade(
    before: Mapping[str, RecordedOperator],
    after: Mapping[str, RecordedOperator],
    fallbacks: tuple[Sequence[RecordedFallback], Sequence[RecordedFallback]],
    terms: Terms,
    *,
    names: tuple[Collection[str], Collection[str]] | None = None,
    compared: int | None = None,
    left_out: Sequence[str] = (),
) -> Upgrade:
    """Return the changes from the operators and fallbacks of one registry to those of another.

    Args:
        before: the operators of the first registry, by name.
        after: the operators of the second registry.
        fallbacks: the backend fallbacks of each.
        terms: the settings of the comparison.
        names: all operators of each registry, if `before` and `after` have only some of them.
        compared: the number of compared operators; default: all given operators.
        left_out: see `Upgrade`.
    """
    both = sorted(before.keys() & after.keys())
    known = before.keys() & after.keys() if names is None else frozenset(names[0]) & frozenset(names[1])
    bases = frozenset(map(qualified, known))
    new_tags, gone_tags = ({}, {}) if names is not None else _tags_of_one(before, after)
    finder = _Finder(terms, frozenset((*new_tags, *gone_tags)))
    found = [finder.change(name, before[name], after[name]) for name in both]
    return Upgrade(
        removed=tuple(_one_sided(before[name], bases, terms) for name in sorted(before.keys() - after.keys())),
        added=tuple(_one_sided(after[name], bases, terms) for name in sorted(after.keys() - before.keys())),
        changed=tuple(change for change in found if change.is_own),
        fallbacks=tuple(_fallbacks(*fallbacks)),
        shared=tuple(_shared_changes(found)),
        keys_gone={key: finder.keys[key] for key in sorted(terms.keys_gone)},
        keys_new={key: finder.keys[key] for key in sorted(terms.keys_new)},
        builds=dict(sorted(finder.builds.items())),
        new_tags=new_tags,
        gone_tags=gone_tags,
        compared=len(before.keys() | after.keys()) if compared is None else compared,
        left_out=tuple(left_out),
    )


def _tags_of_one(
    before: Mapping[str, RecordedOperator], after: Mapping[str, RecordedOperator]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the tags of only the second registry, and of only the first; empty if one registry has no tags."""
    old, new = (Counter(tag for one in side.values() for tag in one.tags) for side in (before, after))
    if not old or not new:
        return {}, {}
    return {tag: new[tag] for tag in sorted(new.keys() - old)}, {tag: old[tag] for tag in sorted(old.keys() - new)}


def is_autograd(key: DispatchKey) -> bool:
    """Return whether kernels at a key record gradients."""
    return key.name.startswith("Autograd")


def _one_sided(operator: RecordedOperator, bases: Collection[str], terms: Terms) -> OneSided:
    name = str(operator.name)
    keys = tuple(dict.fromkeys(kernel.key for kernel in operator.kernels))
    backends = {terms.of_build(key) for key in keys}
    return OneSided(
        name,
        operator.schema,
        operator.origin,
        keys,
        qualified(name) in bases,
        backends.pop() if len(backends) == 1 else "",
    )


class _Finder:
    """Finds the differences of one operator after another, and counts differences that are not the operator's own."""

    def __init__(self, terms: Terms, shared_tags: frozenset[str]) -> None:
        self._terms, self._shared_tags = terms, shared_tags
        self.keys: Counter[DispatchKey] = Counter()
        self.builds: Counter[str] = Counter()

    def change(self, name: str, old: RecordedOperator, new: RecordedOperator) -> OperatorChange:
        """Return the differences of one operator."""
        if old == new:
            return OperatorChange(name, slots=self._slots(old, new))
        schema = None if old.schema == new.schema else schema_change(old.schema, new.schema)
        sides = kernels_by_key(old), kernels_by_key(new)
        gained: list[DispatchKey] = []
        lost: list[DispatchKey] = []
        replaced: list[Replaced] = []
        for key, olds, news in side_by_side(*sides):
            if olds is None or news is None:
                if self._is_own(key, self._terms.keys_new if olds is None else self._terms.keys_gone):
                    (gained if olds is None else lost).append(key)
            elif olds != news:
                reason = self._reason(name, olds[0], news[0])
                if reason is not None:
                    replaced.append(Replaced(key, reason, _kernel_text(olds[0]), _kernel_text(news[0])))
        composites = _composite(sides[0].keys()), _composite(sides[1].keys())
        return OperatorChange(
            name,
            schema,
            None if old.alias == new.alias else (old.alias or "default", new.alias or "default"),
            tuple(sorted(new.tags - old.tags - self._shared_tags)),
            tuple(sorted(old.tags - new.tags - self._shared_tags)),
            tuple(gained),
            tuple(lost),
            tuple(replaced),
            None if composites[0] is composites[1] else composites,
            self._slots(old, new),
            {
                key: side[key][0].debug
                for keys, side, owner in zip((lost, gained), sides, self._terms.owners, strict=True)
                for key in keys
                if _site(side[key][0].debug) is not None and not owner.is_own(name, key, side[key][0].debug)
            },
        )

    def _is_own(self, key: DispatchKey, unknown: frozenset[DispatchKey]) -> bool:
        """Return whether a new or lost kernel is the operator's own change; otherwise count it."""
        if key in unknown:
            self.keys[key] += 1
            return False
        if backend := self._terms.of_build(key):
            self.builds[backend] += 1
            return False
        return True

    def _slots(self, old: RecordedOperator, new: RecordedOperator) -> tuple[SlotChange, ...]:
        found = self._terms.slots(old, new)
        if not self._terms.builds:
            return found
        kept = (
            SlotChange(each.cause, keys, each.before, each.after)
            for each in found
            if (keys := tuple(key for key in each.keys if not self._terms.of_build(key)))
        )
        return tuple(kept)

    def _reason(self, name: str, old: RecordedKernel, new: RecordedKernel) -> Reason | None:
        """Return the difference of the active kernel; None if only the line of its registration differs."""
        if old.is_fallthrough is not new.is_fallthrough:
            return Reason.FALLTHROUGH
        sites = _site(old.debug), _site(new.debug)
        if sites[0] == sites[1] or None in sites:
            return None
        owns = [
            owner.is_own(name, kernel.key, kernel.debug)
            for owner, kernel in zip(self._terms.owners, (old, new), strict=True)
        ]
        if owns[0] is not owns[1]:
            return Reason.OWNER
        return None if owns[0] else Reason.FILE


def _kernel_text(kernel: RecordedKernel) -> str:
    return f"{'fallthrough ' if kernel.is_fallthrough else ''}{kernel.debug}"


_COMPOSITES = {
    DispatchKey.CompositeImplicitAutograd: Composite.IMPLICIT,
    DispatchKey.CompositeExplicitAutograd: Composite.EXPLICIT,
    DispatchKey.CompositeExplicitAutogradNonFunctional: Composite.EXPLICIT,
}


def _composite(keys: Collection[DispatchKey]) -> Composite:
    kinds = {_COMPOSITES[key] for key in keys if key in _COMPOSITES}
    if len(kinds) > 1:
        return Composite.BOTH
    return kinds.pop() if kinds else Composite.NONE


# Note [The site of a kernel]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch is built in another folder now and then (`/pytorch`, `/__w/pytorch/pytorch`), its generated files are split
# into more or fewer (`RegisterCPU_0.cpp`), and libraries of Python forgot their file before 2.9 (`/dev/null`). The site
# of a kernel is its file without all that, and nothing where the file is not known.

_LINE = re.compile(r"(?:^registered at | via )(.+?):\d+(?= via |$)")
_ROOT = re.compile(r"^.*?/(?=(?:build/)?(?:aten|torch|functorch|c10|caffe2|third_party)/)")
_SHARD = re.compile(r"_(?:\d+|Everything)(?=\.\w+$)")


@lru_cache(maxsize=1 << 14)
def _site(debug: str) -> str | None:
    """Return the file that registered a kernel; None if unknown. See Note [The site of a kernel]."""
    lines = _LINE.findall(debug)
    path = str(lines[-1]) if lines else debug
    if path in ("", "/dev/null"):
        return None
    return _SHARD.sub("", _ROOT.sub("", path))


def _fallbacks(before: Sequence[RecordedFallback], after: Sequence[RecordedFallback]) -> Iterator[FallbackChange]:
    olds, news = ({one.key: one for one in side} for side in (before, after))
    for key, old, new in side_by_side(olds, news):
        kinds = [None if one is None else "fallthrough" if one.fallthrough else "kernel" for one in (old, new)]
        if kinds[0] != kinds[1]:
            newest = new or old
            assert newest is not None
            yield FallbackChange(key, kinds[0], kinds[1], newest.debug)


def _shared_changes(changes: Iterable[OperatorChange]) -> Iterator[SharedChange]:
    """Return slots with the same change in several operators, most operators first; keys are grouped."""
    by_key: dict[tuple[Cause, Find, Find, DispatchKey], list[str]] = {}
    for change in changes:
        for each in change.slots:
            if each.cause is not Cause.KERNELS:
                for key in each.keys:
                    by_key.setdefault((each.cause, each.before, each.after, key), []).append(change.operator)
    alike: dict[tuple[Cause, Find, Find, tuple[str, ...]], list[DispatchKey]] = {}
    for (cause, old, new, key), names in by_key.items():
        alike.setdefault((cause, old, new, tuple(names)), []).append(key)
    found = [
        SharedChange(tuple(sorted(keys)), cause, old, new, names) for (cause, old, new, names), keys in alike.items()
    ]
    yield from sorted(found, key=lambda each: (-len(each.operators), each.keys))


def schema_change(before: str | None, after: str | None) -> SchemaChange:
    """Return the difference of two schemas, and whether it breaks callers."""
    if before is None or after is None:
        lost = "it has no def any more" if after is None else None
        return SchemaChange(before, after, lost)
    try:
        old, new = schema_of(before), schema_of(after)
    except ParseError:
        return SchemaChange(before, after, None, ("one of the schemas cannot be read",))
    return SchemaChange(before, after, backward_break(old, new), tuple(_phrases(old, new)))


def _phrases(old: FunctionSchema, new: FunctionSchema) -> Iterator[str]:
    """Return the differences of two schemas, argument by argument."""
    olds, news = ({argument.name: argument for argument in side.arguments} for side in (old, new))
    came, gone = ([name for name in side if name not in other] for side, other in ((news, olds), (olds, news)))
    places = [[argument.name for argument in side.arguments] for side in (old, new)]
    if len(came) == len(gone) and [places[0].index(name) for name in gone] == [places[1].index(name) for name in came]:
        for name, other in zip(gone, came, strict=True):
            yield f"`{olds[name]}` -> `{news[other]}`"
    else:
        yield from (f"without `{olds[name]}`" for name in gone)
        yield from (f"new `{news[name]}`" for name in came)
    for name in (name for name in olds if name in news):
        if olds[name] != news[name]:
            keyword = ("", " (keyword-only)")
            yield f"`{olds[name]}`{keyword[olds[name].kwarg_only]} -> `{news[name]}`{keyword[news[name].kwarg_only]}"
    kept = [[name for name in side if name in olds and name in news] for side in places]
    if kept[0] != kept[1]:
        yield "in another order"
    if old.returns != new.returns:
        texts = [", ".join(map(str, side.returns)) for side in (old, new)]
        yield f"returns `{texts[0] or '()'}` -> `{texts[1] or '()'}`"
