"""Compare two registries word by word: operators, schemas, kernels, fallbacks and table rows, one change each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, zip_longest
from typing import TypeAlias

from dispatchlab.model.dump_format import Provenance, TableEntry, kernel_text, parse_entry, parse_table
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.short_repr import member_repr
from dispatchlab.registry.model import Recorded, RecordedKernel, RecordedOperator
from dispatchlab.registry.overlay import overlaid_names

TableOf: TypeAlias = Callable[[str], str]
"""The computed table of an operator of a registry, from whatever engine it was replayed on."""

TablesOf: TypeAlias = Callable[[Sequence[str]], tuple[TableOf, TableOf]]
"""The tables of some operators, in the first registry and in the second."""

Pair: TypeAlias = tuple[RecordedOperator | None, RecordedOperator | None]
"""An operator in the first registry and in the second; None where it is not."""


class Subject(StrEnum):
    """What a change is about."""

    OPERATOR = "operator"
    SCHEMA = "schema"
    DEF = "def"
    ALIAS_KIND = "alias kind"
    TAGS = "tags"
    KERNEL = "kernel"
    ROW = "row"
    FALLBACK = "fallback"

    __repr__ = member_repr


class ChangeKind(StrEnum):
    """What happened to it."""

    CAME = "came"
    WENT = "went"
    CHANGED = "changed"

    __repr__ = member_repr


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two registries.

    Args:
        subject: what it is about.
        kind: whether it is only in the second, only in the first, or in both and different.
        operator: the operator; None for a fallback.
        key: the dispatch key of a kernel, a row or a fallback.
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
        tables: how many computed tables were compared; None when tables were not.
        left_out: the operators of which differences were left out, as they were asked to be.
    """

    changes: tuple[Change, ...]
    compared: int
    tables: int | None
    left_out: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the registries are equal in all that was compared."""
        return not self.changes

    @property
    def exit_code(self) -> int:
        """0 when they are equal, else 1; for whoever asked for an exit code."""
        return 0 if self.is_empty else 1

    def count(self, subject: Subject, kind: ChangeKind) -> int:
        """How many changes there are of one sort."""
        return sum(change.subject is subject and change.kind is kind for change in self.changes)


def compare(
    before: Recorded,
    after: Recorded,
    *,
    tables: TablesOf | None = None,
    locations: bool = True,
    operators: Collection[str] | None = None,
    reduced: Callable[[Pair], Pair] | None = None,
) -> RegistryDiff:
    """In what do two registries differ?

    Args:
        before: the first.
        after: the second.
        tables: how to get the computed tables of some operators of each; left out, no rows are compared. An operator
            that came or went is one change, without its kernels and rows.
        locations: whether debug texts count. Between two versions of PyTorch nearly every line number differs; without
            them kernels are identified by their key, type and flags.
        operators: compare these operators alone, and no fallbacks; everything when left out.
        reduced: what to compare of an operator that differs, on either side.

    Raises:
        RegistryFileError: a registry is in a file that is damaged.
    """
    fallbacks = list(_fallbacks(before, after, locations=locations))
    names = sorted({*before.names, *after.names} if operators is None else operators)
    every = tables is not None and bool(fallbacks)  # a fallback is in every table
    pairs = _pairs(before, after, names, every=every)
    left_out = {} if reduced is None else _reduced(pairs, reduced)
    pairs |= left_out
    in_both = [name for name, (old, new) in pairs.items() if old is not None and new is not None]
    dumps = None
    if tables is not None:
        dumps = tables([name for name in in_both if every or _kernels_differ(*pairs[name])])
    changes = fallbacks if operators is None else []
    for name, (old, new) in pairs.items():
        if old is None or new is None:
            if old is not new:
                changes += _one_sided(name, old, new)
            continue
        if old != new:
            changes += _operator(name, old, new, locations=locations)
        if dumps is not None and (every or _kernels_differ(old, new)):
            changes += _rows(name, dumps[0](name), dumps[1](name), locations=locations)
    shared = len(names) - sum(None in pair for pair in pairs.values())
    return RegistryDiff(tuple(changes), len(names), None if tables is None else shared, tuple(left_out))


def _reduced(pairs: Mapping[str, Pair], reduced: Callable[[Pair], Pair]) -> dict[str, Pair]:
    """The pairs that differ and of which something is to be left out, without that."""
    found = {name: reduced(pair) for name, pair in pairs.items() if pair[0] != pair[1]}
    return {name: pair for name, pair in found.items() if pair != pairs[name]}


def _pairs(before: Recorded, after: Recorded, names: Sequence[str], *, every: bool) -> dict[str, Pair]:
    """The operators of both sides; unless all are asked for, without those of a registry that both sides stand on."""
    differing = None if every else overlaid_names(before, after)
    if differing is not None:
        return {name: (before.operator(name), after.operator(name)) for name in names if name in differing}
    if len(names) < len(before.names) // _FEW:
        return {name: (before.operator(name), after.operator(name)) for name in names}
    olds, news = {str(each.name): each for each in before}, {str(each.name): each for each in after}
    return {name: (olds.get(name), news.get(name)) for name in names}


_FEW = 20  # one part in so many is read one by one, and more as a whole


def _kernels_differ(old: RecordedOperator | None, new: RecordedOperator | None) -> bool:
    return old is None or new is None or old.kernels != new.kernels


def _change(
    subject: Subject, operator: str | None, key: DispatchKey | None, before: str | None, after: str | None
) -> Change:
    kind = ChangeKind.CAME if before is None else ChangeKind.WENT if after is None else ChangeKind.CHANGED
    return Change(subject, kind, operator, key, before, after)


def _fallbacks(before: Recorded, after: Recorded, *, locations: bool) -> Iterator[Change]:
    sides = [
        {
            one.key: (
                f"{'fallthrough ' if one.fallthrough else ''}{one.debug}",
                (one.fallthrough, one.debug * locations),
            )
            for one in side.fallbacks
        }
        for side in (before, after)
    ]
    for key in sorted({*sides[0], *sides[1]}):
        (old, old_value), (new, new_value) = (side.get(key, (None, None)) for side in sides)
        if old_value != new_value:
            yield _change(Subject.FALLBACK, None, key, old, new)


def _one_sided(name: str, old: RecordedOperator | None, new: RecordedOperator | None) -> Iterator[Change]:
    texts = [None if each is None else _sentence(each) for each in (old, new)]
    found = old or new
    assert found is not None
    debug = found.debug if found.schema is not None else found.kernels[0].debug if found.kernels else ""
    yield replace(_change(Subject.OPERATOR, name, None, *texts), debug=debug)


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
    sides = [{key: list(group) for key, group in groupby(side.kernels, lambda each: each.key)} for side in (old, new)]
    for key in sorted({*sides[0], *sides[1]}):
        yield from _kernels(name, key, sides[0].get(key, []), sides[1].get(key, []), locations=locations)


def _kernels(
    name: str, key: DispatchKey, old: Sequence[RecordedKernel], new: Sequence[RecordedKernel], *, locations: bool
) -> Iterator[Change]:
    """What both sides have is no change, be it active or not; of the rest, what stands in for what is."""
    old_ids, new_ids = ([_identity(kernel, locations=locations) for kernel in side] for side in (old, new))
    if old_ids == new_ids:
        return
    both = Counter(old_ids) & Counter(new_ids)
    gone, fresh = _without(old, old_ids, both), _without(new, new_ids, both)
    if not gone and not fresh:
        texts = (" over ".join(map(_kernel_text, side)) for side in (old, new))
        yield Change(Subject.KERNEL, ChangeKind.CHANGED, name, key, *texts)
    for one, other in zip_longest(gone, fresh):
        before = None if one is None else _kernel_text(one)
        after = None if other is None else _kernel_text(other)
        if one is None and other is new[0] and len(new) > 1:
            after = f"{after} over {new[1].debug}"
        yield _change(Subject.KERNEL, name, key, before, after)


_Identity: TypeAlias = tuple[str, str | None, str]


def _identity(kernel: RecordedKernel, *, locations: bool) -> _Identity:
    return kernel.debug if locations else "", kernel.inferred, kernel.flags


def _without(
    kernels: Sequence[RecordedKernel], ids: Sequence[_Identity], both: Counter[_Identity]
) -> list[RecordedKernel]:
    left = Counter(both)
    kept = []
    for kernel, identity in zip(kernels, ids, strict=True):
        if left[identity]:
            left[identity] -= 1
        else:
            kept.append(kernel)
    return kept


def _kernel_text(kernel: RecordedKernel) -> str:
    return f"{kernel_text(kernel.debug, kernel.inferred, kernel.flags)}{'' if kernel.active else ' (inactive)'}"


def _rows(name: str, old: str, new: str, *, locations: bool) -> Iterator[Change]:
    olds, news = parse_table(old), parse_table(new)
    for key in sorted({*olds, *news}, key=lambda key: key.slot):
        before, after = olds.get(key), news.get(key)
        if before == after:
            continue
        if locations or before is None or after is None or before._replace(debug=after.debug) != after:
            yield _change(Subject.ROW, name, key, _text(before), _text(after))


def _text(entry: TableEntry | None) -> str | None:
    return None if entry is None else str(entry)


_KEYS_SHOWN = 6


def by_namespace(diff: RegistryDiff) -> dict[str, RegistryDiff]:
    """The differences of each namespace that has some, by name; fallbacks are of none."""
    found: dict[str, list[Change]] = {}
    for change in diff.changes:
        if change.operator is not None:
            found.setdefault(change.operator.partition("::")[0], []).append(change)
    return {name: RegistryDiff(tuple(found[name]), 0, None) for name in sorted(found)}


def counts(diff: RegistryDiff) -> Mapping[str, int]:
    """How many differences there are of each sort that there is, such as `operator came`."""
    found = {f"{subject} {kind}": diff.count(subject, kind) for subject in Subject for kind in ChangeKind}
    return {what: number for what, number in found.items() if number}


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
            rows = [change for change in of_one if change.subject is Subject.ROW]
            yield from (f"  {_line(change)}" for change in of_one if change.subject is not Subject.ROW)
            yield from (f"  {line}" for line in _row_lines(rows))


def _line(change: Change) -> str:
    key = "" if change.key is None else f" {change.key}"
    return f"{change.subject}{key} {change.kind}: {_sides(change.before, change.after)}"


def _sides(before: str | None, after: str | None) -> str:
    if before is None:
        return str(after)
    return before if after is None else f"{before} -> {after}"


def _row_lines(rows: Sequence[Change]) -> Iterator[str]:
    """Rows that changed in the same way are one line; each key has its own fallback, and that is one way."""
    alike: dict[tuple[str | None, str | None], list[Change]] = {}
    for row in rows:
        alike.setdefault((_side(row.before), _side(row.after)), []).append(row)
    for sides, group in alike.items():
        before, after = sides if len(group) > 1 else (group[0].before, group[0].after)
        keys = " ".join(str(row.key) for row in group[:_KEYS_SHOWN])
        more = f" and {len(group) - _KEYS_SHOWN} more" if len(group) > _KEYS_SHOWN else ""
        noun = "row" if len(group) == 1 else f"{len(group)} rows"
        yield f"{noun} {group[0].kind} at {keys}{more}: {_sides(before, after)}"


def _side(row: str | None) -> str | None:
    is_fallback = row is not None and parse_entry(row).provenance is Provenance.FALLBACK
    return f"the {Provenance.FALLBACK}" if is_fallback else row
