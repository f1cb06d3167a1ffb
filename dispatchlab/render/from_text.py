"""Reads the texts of a snapshot back, for engines that can show an operator and not explain it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dispatchlab.model.explanation import KernelRow, OperatorView, TableRow
from dispatchlab.model.snapshot import Snapshot, Violation

_KERNEL = re.compile(r"(\w+)(\[alias\])?( \(inactive\))?: (.*) :: (.*) \[ (.*)\]")
_ROW = re.compile(r"(\w+): (fallthrough )?(.*) \[([^\[\]]*)\]")


def view_of(snapshot: Snapshot, violations: tuple[Violation, ...] = ()) -> OperatorView:
    """An operator without the reasons behind its rows: what beat what is not in the texts.

    Args:
        snapshot: the operator; nothing of it is read when it does not exist.
        violations: the invariants that do not hold.
    """
    head = dict(line.split(": ", 1) for line in snapshot.dump.splitlines()[:4] if ": " in line)
    return OperatorView(
        name=str(snapshot.operator),
        schema=snapshot.schema,
        debug=None if snapshot.schema is None else head.get("debug"),
        alias_kind=None if snapshot.schema is None else head.get("alias analysis kind"),
        tags=(),
        kernels=tuple(_kernels(snapshot)),
        table=tuple(_rows(snapshot)),
        violations=violations,
    )


def _kernels(snapshot: Snapshot) -> Iterator[KernelRow]:
    first = 4 if snapshot.schema is not None else 2
    for line in snapshot.dump.splitlines()[first:]:
        found = _KERNEL.fullmatch(line)
        if found is None:
            continue
        key, alias, inactive, debug, inferred, flags = found.groups()
        yield KernelRow(
            key=key,
            is_alias=alias is not None,
            active=inactive is None,
            debug=debug,
            inferred=None if inferred == "(none)" else inferred,
            flags=tuple(flags.split()),
        )


def _rows(snapshot: Snapshot) -> Iterator[TableRow]:
    computed = _by_key(snapshot.table)
    held = computed if snapshot.slots is None else _by_key(snapshot.slots)
    for key in dict.fromkeys([*computed, *held]):
        text = computed.get(key, "")
        found = _ROW.fullmatch(f"{key}: {text}")
        stale = held.get(key, "nothing")
        yield TableRow(
            key=key,
            text=text,
            debug=found.group(3) if found else "",
            reason=found.group(4) if found else "",
            fallthrough=found is not None and found.group(2) is not None,
            source="",
            stale=None if stale == text else stale,
        )


def _by_key(table: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in table.splitlines() if ": " in line)
