"""The check of a record as blocks: the present registrations beside the recorded ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from dispatchlab.questions.record.check_record import ChangeKind, RecordChange, RecordCheck
from dispatchlab.views.as_json import as_json
from dispatchlab.views.blocks import Line
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View


def check_view(found: RecordCheck) -> View[RecordCheck]:
    """Return the view of a record's check."""
    return View(found, lines=_lines)


@as_json.register
def _(value: RecordCheck) -> object:
    return as_json(
        {
            "file": value.file,
            "packages": value.packages,
            "torch": value.torch,
            "same": value.is_same,
            "registrations": {"then": value.then, "now": value.now},
            "changes": value.changes,
            "unreadable": value.unreadable,
        }
    )


def _lines(found: RecordCheck) -> Iterator[Line]:
    """Return one line if nothing differs; else the differences by operator, and how to accept them."""
    packages = " and ".join(found.packages)
    verb = "registers" if len(found.packages) == 1 else "register"
    if found.is_same:
        same = f"{packages} {verb} the same as when it was recorded: {counted(found.now, 'registration')}"
        yield Line(f"{found.file}: {same}")
        return
    counts = Counter(change.kind for change in found.changes)
    shown = ", ".join(f"{counts[kind]:,} {kind}" for kind in ChangeKind if counts[kind])
    then = f"{counted(found.then, 'registration')} then, {found.now:,} now"
    yield Line(f"{found.file}: {packages} {verb} something else: {shown} ({then})")
    for operator, changes in groupby(found.changes, key=lambda change: change.operator):
        if operator is not None:
            yield Line(operator)
        for change in changes:
            yield from _change(change, 0 if operator is None else 2)
    yield Line(f"if this is right, record it again: dispatchlab record {' '.join(found.packages)} -o {found.file}")


def _change(change: RecordChange, indent: int) -> Iterator[Line]:
    where = f", {change.debug}" if change.debug else ""
    if change.kind is ChangeKind.CHANGED:
        yield Line(f"{change.kind}: {change.registration}{where}", indent=indent)
        yield Line(f"- {change.before}", indent=indent + 2)
        yield Line(f"+ {change.after}", indent=indent + 2)
        return
    value = change.after or change.before
    yield Line(f"{change.kind}: {change.registration}{f': {value}' if value else ''}{where}", indent=indent)
