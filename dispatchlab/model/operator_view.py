"""An operator with its reasons: its kernels, and the reason for each row of its table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dispatchlab.model.dump_format import KernelLine, Provenance, alias_text, key_text, parse_dump, parse_table
from dispatchlab.model.keys import SLOT_OF_KEY
from dispatchlab.model.registration import SourceLocation
from dispatchlab.model.snapshot import Snapshot, Violation

OUTRANKED = "a candidate before it"
"""Why a kernel did not get a slot when there is nothing more to say: another one comes before it."""

NEWER = "a newer kernel of the key"
"""Why a kernel did not get a slot when it was overridden at its own key."""

NO_KERNEL = "nothing"
"""What a slot without a kernel holds."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A registered kernel; `active` is false if a newer kernel of its key shadows it."""

    key: str
    is_alias: bool
    active: bool
    debug: str
    inferred: str | None
    flags: tuple[str, ...]
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Beaten:
    """A kernel that lost a slot: its key, its debug text, its reason, and the winner."""

    source: str
    debug: str
    reason: Provenance
    why: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the computed table.

    Args:
        key: the runtime key.
        text: the row in the dump, without its key; empty if the slot should be empty.
        debug: the debug text of the kernel.
        reason: why it has the slot; None if the slot should be empty.
        fallthrough: calls skip the key.
        source: the key that the kernel is registered at; empty for the ambiguous kernel.
        beaten: the other candidates, best first.
        stale: the other content of the slot, perhaps `NO_KERNEL`; None if the slot is not stale.
    """

    key: str
    text: str
    debug: str
    reason: Provenance | None
    fallthrough: bool
    source: str
    beaten: tuple[Beaten, ...] = ()
    stale: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorView:
    """An operator with its reasons; `schema`, `debug` and `alias_kind` are None while there is no def.

    `skipped` has the keys that calls skip although no row shows this. `by_rule` has the keys whose kernels are
    known to redispatch as PyTorch's kernels at these keys.
    """

    name: str
    schema: str | None
    debug: str | None
    alias_kind: str | None
    tags: tuple[str, ...]
    kernels: tuple[KernelRow, ...]
    table: tuple[TableRow, ...]
    violations: tuple[Violation, ...] = ()
    skipped: tuple[str, ...] = ()
    by_rule: tuple[str, ...] = ()


def view_of(snapshot: Snapshot, violations: tuple[Violation, ...] = ()) -> OperatorView:
    """Return an operator without the reasons behind its rows, which the texts do not show.

    Args:
        snapshot: the operator.
        violations: the invariants that do not hold.

    Raises:
        DumpError: the texts are not those of an operator.
    """
    name = str(snapshot.operator)
    if not snapshot.exists:
        return OperatorView(name, None, None, None, (), (), (), violations)
    dump = parse_dump(snapshot.dump)
    has_def = snapshot.schema is not None
    return OperatorView(
        name=name,
        schema=snapshot.schema,
        debug=dump.debug if has_def else None,
        alias_kind=alias_text(dump.alias) if has_def else None,
        tags=(),
        kernels=tuple(map(_kernel_row, dump.kernels)),
        table=tuple(_table_rows(snapshot)),
        violations=violations,
    )


def with_slots(view: OperatorView, slots: str) -> OperatorView:
    """Return a view whose rows show the kernels that calls use.

    Args:
        view: the operator, as its kernels make it.
        slots: the content of its slots, in the form of a table.
    """
    held = {key.name: str(entry) for key, entry in parse_table(slots).items()}
    missing = sorted(held.keys() - {row.key for row in view.table}, key=[*held].index)
    rows = *view.table, *(TableRow(key, "", "", None, fallthrough=False, source="") for key in missing)
    shown = (
        replace(row, stale=None if held.get(row.key, "") == row.text else held.get(row.key, NO_KERNEL)) for row in rows
    )
    return replace(view, table=tuple(shown))


def _kernel_row(line: KernelLine) -> KernelRow:
    flags = tuple(line.flags.split())
    return KernelRow(key_text(line.key), line.is_alias, line.active, line.debug, line.inferred, flags)


def _table_rows(snapshot: Snapshot) -> Iterator[TableRow]:
    computed = parse_table(snapshot.table)
    held = computed if snapshot.slots is None else parse_table(snapshot.slots)
    for key in sorted({*computed, *held}, key=SLOT_OF_KEY.__getitem__):
        entry, actual = computed.get(key), held.get(key)
        yield TableRow(
            key=key.name,
            text="" if entry is None else str(entry),
            debug="" if entry is None else entry.debug,
            reason=None if entry is None else entry.provenance,
            fallthrough=entry is not None and entry.fallthrough,
            source="",
            stale=None if actual == entry else NO_KERNEL if actual is None else str(actual),
        )
