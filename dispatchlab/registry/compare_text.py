"""A comparison of two registries as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dispatchlab.registry.compare import Change, ChangeKind, RegistryDiff, Subject

_KEYS_SHOWN = 6


def diff_text(diff: RegistryDiff, before: str, after: str) -> str:
    """What differs, operator by operator, under one line that counts it.

    Args:
        diff: the comparison.
        before: what to call the first registry.
        after: what to call the second.
    """
    return "".join(f"{line}\n" for line in (f"{before} -> {after}: {summary(diff)}", *_lines(diff.changes)))


def summary(diff: RegistryDiff) -> str:
    """How many differences there are of each sort, or how much is equal."""
    compared = f"{diff.compared:,} operators compared"
    if diff.tables is not None:
        compared += f", {diff.tables:,} tables"
    parts = [
        f"{number:,} {_plural(subject, number)} {kind}"
        for subject in Subject
        for kind in ChangeKind
        if (number := diff.count(subject, kind))
    ]
    return f"{', '.join(parts) or 'no difference'} ({compared})"


def _plural(subject: Subject, number: int) -> str:
    return str(subject) if number == 1 or subject is Subject.TAGS else f"{subject}s"


def _lines(changes: Sequence[Change]) -> Iterator[str]:
    for operator, group in groupby(changes, key=lambda change: change.operator):
        of_one = list(group)
        if operator is None:
            yield from (_line(change) for change in of_one)
        elif of_one[0].subject is Subject.OPERATOR:
            yield f"operator {of_one[0].kind}: {of_one[0].before or of_one[0].after}"
        else:
            yield operator
            rows = [change for change in of_one if change.subject is Subject.ROW]
            yield from (f"  {_line(change)}" for change in of_one if change.subject is not Subject.ROW)
            yield from (f"  {line}" for line in _rows(rows))


def _line(change: Change) -> str:
    key = "" if change.key is None else f" {change.key}"
    return f"{change.subject}{key} {change.kind}: {_sides(change.before, change.after)}"


def _sides(before: str | None, after: str | None) -> str:
    if before is None:
        return str(after)
    return before if after is None else f"{before} -> {after}"


def _rows(rows: Sequence[Change]) -> Iterator[str]:
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
    return "the backend fallback" if row is not None and row.endswith("[backend fallback]") else row
