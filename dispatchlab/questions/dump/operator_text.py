"""The plain text of operators: the dump with its table, registrations of Python, and refused steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from dispatchlab.escape import printable
from dispatchlab.model.dump_format import parse_table, row_text
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.python_layer import REGISTRY_NAMED, PythonRegistration, PythonRegistry
from dispatchlab.model.sequence import Step, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot
from dispatchlab.views.source_locations import short_debug

NO_LINE = "(no line known)"


def operator_text(snapshot: Snapshot, *, keys: Collection[str] = ()) -> str:
    """Return the dump of an operator, an empty line, and its table.

    Args:
        snapshot: the operator.
        keys: the rows of the table to show; empty for all.
    """
    return f"{snapshot.dump}\n{only_rows(snapshot.table, keys)}"


def rows_text(snapshot: Snapshot, keys: Collection[str]) -> str:
    """Return the name of an operator and some rows of its table; a stale row ends with the kernel that calls run."""
    table = parse_table(snapshot.table)
    slots = table if snapshot.slots is None else parse_table(snapshot.slots)
    rows = []
    for name in sorted({*keys}, key=[key.name for key in SLOT_KEYS].index):
        entry, held = (entries.get(DispatchKey[name]) for entries in (table, slots))
        stale = "" if held == entry else f"  (STALE: calls run {held.debug if held else 'no kernel'})"
        rows.append(row_text(DispatchKey[name], f"{entry or 'no kernel'}{stale}"))
    return f"name: {snapshot.operator}\n\n{''.join(rows)}"


def only_rows(table: str, keys: Collection[str]) -> str:
    """Return the rows of a table for `keys`; all rows if `keys` is empty."""
    if not keys:
        return table
    return "".join(row_text(key, str(entry)) for key, entry in parse_table(table).items() if key.name in keys)


def python_text(rows: Sequence[PythonRegistration]) -> str:
    """Return each Python registry and when PyTorch uses it, then a line for each registration."""
    lines = []
    for registry, title, some in by_registry(rows):
        lines.append(f"{title}, {registry.applies}")
        for one in some:
            key = f"{one.key}: " if one.key else ""
            marks = "".join(f" [{mark}]" for mark in python_marks(one))
            lines.append(f"  {key}{one.function} at {one.site or NO_LINE}{marks}")
    return "".join(f"{printable(line)}\n" for line in lines)


def by_registry(rows: Sequence[PythonRegistration]) -> Iterator[tuple[PythonRegistry, str, list[PythonRegistration]]]:
    """Return each registry with its title, which names the import that fills it, and with its rows."""
    for name, some in groupby(rows, key=lambda one: one.registry):
        registry = REGISTRY_NAMED[name]
        yield registry, f"{registry.title}{f' (import {registry.needs})' if registry.needs else ''}", list(some)


def python_marks(one: PythonRegistration) -> Iterator[str]:
    """Return the unusual properties of a registration."""
    if not one.active:
        yield "overridden"
    if one.needs != one.described.needs:
        yield f"import {one.needs}"


def stale_text(snapshot: Snapshot) -> str:
    """Return a sentence about the slots that hold another kernel than the table shows; empty without such slots.

    Args:
        snapshot: the operator.
    """
    if snapshot.slots is None:
        return f"the slots of {snapshot.operator} cannot be read here: calls may run another kernel than its table says"
    if snapshot.slots == snapshot.table:
        return ""
    table, slots = parse_table(snapshot.table), parse_table(snapshot.slots)
    stale = [key for key in {**table, **slots} if table.get(key) != slots.get(key)]
    runs, says = (short_debug(row.debug) if row else "no kernel" for row in (slots.get(stale[0]), table.get(stale[0])))
    count = f"{len(stale):,} stale slot{'s' if len(stale) > 1 else ''}"
    text = f"{snapshot.operator}: calls run {runs} at {stale[0]}, where the table says {says}"
    return f"{text}: {count}, a defect of the dispatcher"


def refused_step_text(step: Step, registration: str, refusal: Refusal) -> str:
    """Return a line about a step that the dispatcher refused.

    Args:
        step: the step.
        registration: its registration, in words.
        refusal: why it was refused.
    """
    verb = "could not be released" if step < 0 else "was refused"
    return f"{format_sequence((step,))} {registration} {verb}: {refusal.kind}: {refusal.message}"
