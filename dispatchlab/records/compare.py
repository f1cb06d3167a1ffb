"""Compare two registries word by word: operators, schemas, kernels and fallbacks, one change each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.dump_format import kernel_text
from dispatchlab.model.keys import DispatchKey
from dispatchlab.records.model import Recorded, RecordedFallback, RecordedKernel, RecordedOperator
from dispatchlab.records.overlay import overlaid_names
from dispatchlab.records.side_by_side import Reduced, kernels_by_key, leave_out, operators_of, paired, side_by_side


class Subject(WordEnum):
    """What a change is about."""

    OPERATOR = "operator"
    SCHEMA = "schema"
    DEF = "def"
    ALIAS_KIND = "alias kind"
    TAGS = "tags"
    KERNEL = "kernel"
    FALLBACK = "fallback"


class ChangeKind(WordEnum):
    """What happened to it."""

    CAME = "came"
    WENT = "went"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two registries.

    Args:
        subject: what it is about.
        kind: whether it is only in the second, only in the first, or in both and different.
        operator: the operator; None for a fallback.
        key: the dispatch key of a kernel or a fallback.
        before: how the first registry has it, as dumps print it; None when it came.
        after: how the second has it; None when it went.
        debug: of an operator that came or went, where its def comes from, or its first kernel when it has no def.
    """

    subject: Subject
    kind: ChangeKind
    operator: str | None
    key: DispatchKey | None
    before: str | None
    after: str | None
    debug: str = ""


@dataclass(frozen=True, slots=True)
class RegistryDiff:
    """All differences between two registries.

    Args:
        changes: fallbacks first, then by operator; of one operator in the order of `Subject`.
        compared: how many operators were looked at: those of either registry.
        left_out: the operators of which differences were left out, as they were asked to be.
    """

    changes: tuple[Change, ...]
    compared: int
    left_out: tuple[str, ...] = ()

    def count(self, subject: Subject, kind: ChangeKind) -> int:
        """How many changes there are of one sort."""
        return sum(change.subject is subject and change.kind is kind for change in self.changes)


def compare(
    before: Recorded,
    after: Recorded,
    *,
    locations: bool = True,
    operators: Collection[str] | None = None,
    reduced: Reduced | None = None,
) -> RegistryDiff:
    """In what do two registries differ? An operator that came or went is one change, without its kernels.

    Args:
        before: the first.
        after: the second.
        locations: whether debug texts count. Between two versions of PyTorch nearly every line number differs; without
            them kernels are identified by their key, type and flags.
        operators: compare these operators alone, and no fallbacks; everything when left out.
        reduced: what to compare of an operator that differs, on either side.

    Raises:
        RegistryFileError: a registry is in a file that is damaged.
    """
    names: Collection[str] = {*before.names, *after.names} if operators is None else operators
    differing = overlaid_names(before, after)  # the rest stands in one registry beneath both
    looked_at = names if differing is None else differing.intersection(names)
    olds, news = (operators_of(side, looked_at) for side in (before, after))
    left_out = leave_out(olds, news, reduced)
    changes = list(_fallbacks(before, after, locations=locations)) if operators is None else []
    for name, old, new in side_by_side(olds, news):
        if old is None or new is None:
            changes += _one_sided(name, old, new)
        elif old != new:
            changes += _operator(name, old, new, locations=locations)
    return RegistryDiff(tuple(changes), len(names), left_out)


def _change(
    subject: Subject, operator: str | None, key: DispatchKey | None, before: str | None, after: str | None
) -> Change:
    kind = ChangeKind.CAME if before is None else ChangeKind.WENT if after is None else ChangeKind.CHANGED
    return Change(subject, kind, operator, key, before, after)


def _fallbacks(before: Recorded, after: Recorded, *, locations: bool) -> Iterator[Change]:
    olds, news = ({fallback.key: fallback for fallback in side.fallbacks} for side in (before, after))
    for key, old, new in side_by_side(olds, news):
        if old is None or new is None or old.fallthrough is not new.fallthrough or (locations and old != new):
            yield _change(Subject.FALLBACK, None, key, _fallback_text(old), _fallback_text(new))


def _fallback_text(fallback: RecordedFallback | None) -> str | None:
    return None if fallback is None else f"{'fallthrough ' if fallback.fallthrough else ''}{fallback.debug}"


def _one_sided(name: str, old: RecordedOperator | None, new: RecordedOperator | None) -> Iterator[Change]:
    texts = [None if side is None else _sentence(side) for side in (old, new)]
    operator = old or new
    assert operator is not None
    yield replace(_change(Subject.OPERATOR, name, None, *texts), debug=operator.origin)


def _sentence(operator: RecordedOperator) -> str:
    count = len(operator.kernels)
    return f"{operator.schema or f'{operator.name}, without a def,'} with {count} kernel{'' if count == 1 else 's'}"


def _operator(name: str, old: RecordedOperator, new: RecordedOperator, *, locations: bool) -> Iterator[Change]:
    if old.schema != new.schema:
        yield _change(Subject.SCHEMA, name, None, old.schema, new.schema)
    if locations and old.debug != new.debug and old.schema is not None and new.schema is not None:
        yield _change(Subject.DEF, name, None, old.debug, new.debug)
    if old.alias != new.alias:
        yield Change(Subject.ALIAS_KIND, ChangeKind.CHANGED, name, None, old.alias or "default", new.alias or "default")
    if old.tags != new.tags:
        texts = (" ".join(sorted(tags)) or "(none)" for tags in (old.tags, new.tags))
        yield Change(Subject.TAGS, ChangeKind.CHANGED, name, None, *texts)
    for key, olds, news in side_by_side(kernels_by_key(old), kernels_by_key(new)):
        yield from _kernels(name, key, olds or (), news or (), locations=locations)


def _kernels(
    name: str, key: DispatchKey, old: Sequence[RecordedKernel], new: Sequence[RecordedKernel], *, locations: bool
) -> Iterator[Change]:
    """What both sides have is no change, be it active or not; of the rest, what stands in for what is."""

    def identity(kernel: RecordedKernel) -> tuple[str, str | None, str]:
        return kernel.debug if locations else "", kernel.inferred, kernel.flags

    _, differing = paired(old, new, identity)
    if not differing and [*map(identity, old)] != [*map(identity, new)]:
        texts = (" over ".join(map(_kernel_text, side)) for side in (old, new))
        yield Change(Subject.KERNEL, ChangeKind.CHANGED, name, key, *texts)
    for gone, fresh in differing:
        before = None if gone is None else _kernel_text(gone)
        after = None if fresh is None else _kernel_text(fresh)
        if gone is None and fresh is new[0] and len(new) > 1:
            after = f"{after} over {new[1].debug}"
        yield _change(Subject.KERNEL, name, key, before, after)


def _kernel_text(kernel: RecordedKernel) -> str:
    return f"{kernel_text(kernel.debug, kernel.inferred, kernel.flags)}{'' if kernel.active else ' (inactive)'}"


def by_namespace(diff: RegistryDiff) -> dict[str, RegistryDiff]:
    """The differences of each namespace that has some, by name; fallbacks are of none."""
    changes: dict[str, list[Change]] = {}
    for change in diff.changes:
        if change.operator is not None:
            changes.setdefault(change.operator.partition("::")[0], []).append(change)
    return {name: RegistryDiff(tuple(changes[name]), 0) for name in sorted(changes)}


def counts(diff: RegistryDiff) -> Mapping[str, int]:
    """How many differences there are of each sort that there is, such as `operator came`."""
    numbers = {f"{subject} {kind}": diff.count(subject, kind) for subject in Subject for kind in ChangeKind}
    return {what: number for what, number in numbers.items() if number}


def change_lines(diff: RegistryDiff, *, located: bool = True) -> Iterator[str]:
    """The differences, operator by operator; `located` names the lines that registered operators that came or went."""
    for operator, group in groupby(diff.changes, key=lambda change: change.operator):
        of_one = list(group)
        if operator is None:
            yield from (_line(change) for change in of_one)
        elif of_one[0].subject is Subject.OPERATOR:
            (change,) = of_one
            where = f", {change.debug}" if located and change.debug else ""
            yield f"operator {change.kind}: {change.before or change.after}{where}"
        else:
            yield operator
            yield from (f"  {_line(change)}" for change in of_one)


def _line(change: Change) -> str:
    key = "" if change.key is None else f" {change.key}"
    sides = " -> ".join(side for side in (change.before, change.after) if side is not None)
    return f"{change.subject}{key} {change.kind}: {sides}"
