"""An operator as blocks: its properties, stale slots, kernels with the keys that run them, and kernels that lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.operator_view import OUTRANKED, OperatorView, TableRow
from dispatchlab.model.packet import Packet
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.questions.dump.operator_text import only_rows
from dispatchlab.questions.dump.table_groups import KernelGroup, group_by_kernel
from dispatchlab.views.as_json import fields_of
from dispatchlab.views.blocks import (
    REASON_MOODS,
    Block,
    Cell,
    Facts,
    Inline,
    Line,
    Mood,
    Row,
    Section,
    Span,
    Stack,
    key_mood,
    part,
    quiet,
    source,
    strong,
    warn,
)
from dispatchlab.views.formatting import counted, key_names
from dispatchlab.views.source_locations import held as shown_entry
from dispatchlab.views.source_locations import is_pytorch

_STALE = "stale slot"


def operator_blocks(view: OperatorView, *, keys: Collection[str] = (), everything: bool = False) -> Iterator[Block]:
    """Return an operator: its properties, then its table by kernel.

    Args:
        view: the operator.
        keys: show only these rows of the table; empty for the whole operator.
        everything: also show each row of the table.
    """
    if not view.kernels and not view.table and view.schema is None:
        yield Line(f"Nothing is registered for {view.name}.")
        return
    yield Line((strong(view.name), warn(" (no def)")) if view.schema is None else schema_title(view.schema), hang=4)
    if keys:
        chosen = [row for row in view.table if row.key in keys]
        yield from _table_part(chosen)
        if absent := [key for key in keys if key not in {row.key for row in chosen}]:
            yield Line(f"no kernel at {', '.join(absent)}")
        return
    table = group_by_kernel(view)
    types = {kernel.inferred for kernel in view.kernels if kernel.inferred is not None}
    facts: list[tuple[str, Inline]] = [("defined", source(view.debug))] if view.debug is not None else []
    facts += [("alias analysis", view.alias_kind)] if view.alias_kind is not None else []
    facts += [("tags", ", ".join(view.tags))] if view.tags else []
    facts += [("inferred schema", types.copy().pop())] if len(types) == 1 else []
    yield Facts(tuple(facts))
    stale: list[Row] = [
        (
            _names(slots.keys),
            Cell(
                Stack(
                    (
                        ("calls use ", source(shown_entry(slots.actual))),
                        ("should hold ", source(shown_entry(slots.expected))),
                    )
                )
            ),
        )
        for slots in table.stale
    ]
    yield from part("Stale slots", ("keys", "kernel"), stale, marked=range(len(stale)))
    own = [group for group in table.fallbacks if group.served and not is_pytorch(group.debug)]
    usual = Counter(kernel.flags for kernel in view.kernels).most_common(1)
    shown = _Usual(usual[0][0] if usual else (), len(types) <= 1)
    rows = [
        (_key(group), Cell(shown.about(group), "code"), Cell(Stack(tuple(_runs(group)))))
        for group in (*table.kernels, *own)
    ]
    yield from part(f"Kernels of {view.name}", ("key", "registered at", "runs for"), rows)
    if table.ambiguous:
        yield Line(f"ambiguous: a call is an error at {_names(table.ambiguous)}", "bad")
    builtin = [group for group in table.fallbacks if group.served and is_pytorch(group.debug)]
    skipped = [key for group in builtin if group.fallthrough for key in group.keys]
    skipped += [key for key in view.skipped if key not in skipped]
    serving = [key for group in builtin if not group.fallthrough for key in group.keys]
    fallbacks = tuple((title, _names(some)) for title, some in (("skip", skipped), ("serve", serving)) if some)
    if fallbacks:
        yield Section("Builtin fallbacks", (Facts(fallbacks),))
    if everything:
        yield from _table_part(view.table)
    others = [violation for violation in view.violations if not (table.stale and violation.rule == _STALE)]
    yield from (Line(f"invariant broken: {violation}", "bad") for violation in others)


def _table_part(chosen: Sequence[TableRow]) -> Iterator[Block]:
    rows = ((Cell(row.key, "name"), Cell(_holds(row), "code"), Cell(Stack(tuple(_lost(row))))) for row in chosen)
    yield from part("Table", ("key", "holds", "in place of"), rows)


def schema_title(schema: str) -> tuple[Inline, ...]:
    """Return a schema, its name bold."""
    name, bracket, rest = schema.partition("(")
    return (strong(name), f"{bracket}{rest}")


def packet_lines(packet: Packet) -> Iterator[Block]:
    """Return the overloads that a call of the name tries, one schema a line."""
    count = counted(len(packet.overloads), "overload")
    tries = warn(f": {packet.unknown}") if packet.unknown else "; a call tries them in this order:"
    yield Line((strong(packet.name), f" has {count}", tries))
    for overload in packet.overloads:
        mark = quiet(" (TorchScript alone)") if overload.torchscript else ""
        yield Line((*schema_title(overload.schema), mark), indent=2, hang=4)


def _names(keys: Sequence[str]) -> str:
    return ", ".join(key_names(keys))


# -- kernels


class _Usual:
    """The usual flags and the usual inferred schema, which are not shown for each kernel."""

    def __init__(self, flags: tuple[str, ...], one_type: bool) -> None:  # noqa: FBT001  one of two looks
        self._flags, self._one_type = flags, one_type

    def about(self, group: KernelGroup) -> Inline:
        """Return the source of a kernel, and its unusual properties."""
        kernel = group.registered
        unusual = "" if kernel is None or kernel.flags == self._flags else f" [{' '.join(kernel.flags)}]"
        inferred = "" if kernel is None or self._one_type else f" {kernel.inferred or '(no schema)'}"
        return (
            source(group.debug),
            quiet(f"{unusual}{inferred}"),
            warn(", calls skip the key" if group.fallthrough else ""),
        )


def _key(group: KernelGroup) -> Cell:
    mood: Mood = next((REASON_MOODS[served.reason] for served in group.served), key_mood(group.key))
    alias = " (alias)" if group.registered is not None and group.registered.is_alias else ""
    over = warn(" overridden") if group.is_overridden else ""
    return Cell((Span(group.key, "quiet" if group.is_overridden else mood), alias, over), "name")


def _runs(group: KernelGroup) -> Iterator[Inline]:
    """Return the keys that run a kernel, and the keys where another kernel runs."""
    for served in group.served:
        if served.reason is not Provenance.KERNEL or served.keys != (group.key,):
            yield (Span(f"{served.reason} ", REASON_MOODS[served.reason]), f"of {_names(served.keys)}")
    if group.stale:
        yield warn(f"stale: calls of {_names(group.stale)} still run it")
    elif not (group.served or group.is_overridden):
        yield warn("runs for no key")
    for lost in group.lost:
        why = f"{lost.winner} of" if lost.why == OUTRANKED else f"{lost.winner}, since {lost.why}, at"
        yield quiet(f"beaten by the {why} {_names(lost.keys)}")


# -- rows


def _holds(row: TableRow) -> Inline:
    mood: Mood = REASON_MOODS[row.reason] if row.reason is not None else "quiet"
    of = f" of {row.source}" if row.source not in ("", row.key) else ""
    skip = warn(", calls skip the key") if row.fallthrough else ""
    return (Span("nothing" if row.reason is None else f"{row.reason}{of} ", mood), source(row.debug), skip)


def _lost(row: TableRow) -> Iterator[Inline]:
    if row.stale is not None:
        yield (warn("STALE, calls use "), source(row.stale))
    for loser in row.beaten:
        why = "" if loser.why == OUTRANKED else f" ({loser.why})"
        yield (f"{loser.reason} of {loser.source} ", source(loser.debug, "quiet"), quiet(why))


# -- for programs


def operator_json(snapshot: Snapshot, view: OperatorView, keys: Collection[str]) -> dict[str, object]:
    """Return an operator for programs: its texts, and its rows with their reasons.

    Args:
        snapshot: the operator.
        view: the operator with its reasons.
        keys: the rows of the tables to show; empty for all.
    """
    return {
        **fields_of(view, table=[row for row in view.table if not keys or row.key in keys]),
        "exists": snapshot.exists,
        "dump": snapshot.dump,
        "table_text": only_rows(snapshot.table, keys),
        "slots_text": None if snapshot.slots is None else only_rows(snapshot.slots, keys),
    }
