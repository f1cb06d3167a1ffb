"""The check of a record as text and as JSON: what packages register now, beside what they did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from dispatchlab.analysis.check_record import RecordChange, RecordCheck
from dispatchlab.escape import printable
from dispatchlab.registry.compare import ChangeKind
from dispatchlab.render.as_json import json_text


def check_text(found: RecordCheck) -> str:
    """One line when nothing differs; else what differs, operator by operator, and how to accept it."""
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: RecordCheck) -> Iterator[str]:
    packages = " and ".join(found.packages)
    verb = "registers" if len(found.packages) == 1 else "register"
    if found.is_same:
        yield f"{found.file}: {packages} {verb} the same as when it was recorded: {_count(found.now)}"
        return
    counts = Counter(change.kind for change in found.changes)
    shown = ", ".join(f"{counts[kind]:,} {kind}" for kind in ChangeKind if counts[kind])
    yield f"{found.file}: {packages} {verb} something else: {shown} ({_count(found.then)} then, {found.now:,} now)"
    for operator, changes in groupby(found.changes, key=lambda change: change.operator):
        if operator is not None:
            yield operator
        indent = "" if operator is None else "  "
        yield from (f"{indent}{line}" for change in changes for line in _change(change))
    yield f"if this is right, record it again: dispatchlab record {' '.join(found.packages)} -o {found.file}"


def _change(change: RecordChange) -> Iterator[str]:
    where = f", {change.debug}" if change.debug else ""
    if change.kind is ChangeKind.CHANGED:
        yield printable(f"{change.kind}: {change.registration}{where}")
        yield printable(f"  - {change.before}")
        yield printable(f"  + {change.after}")
        return
    value = change.after or change.before
    yield printable(f"{change.kind}: {change.registration}{f': {value}' if value else ''}{where}")


def check_json(found: RecordCheck) -> str:
    """The check on one line."""
    return json_text(
        {
            "file": found.file,
            "packages": found.packages,
            "torch": found.torch,
            "same": found.is_same,
            "registrations": {"then": found.then, "now": found.now},
            "changes": found.changes,
            "unreadable": found.unreadable,
        }
    )


def _count(number: int) -> str:
    return f"{number:,} registration{'' if number == 1 else 's'}"
