"""An operator as blocks: what it is, what is stale, its kernels with the keys that run them, and who lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from dispatchlab.model.dump_format import AMBIGUOUS_DEBUG, Provenance
from dispatchlab.model.operator_view import NEWER, OUTRANKED, OperatorView, TableRow
from dispatchlab.model.packet import Packet
from dispatchlab.questions.dump.table_groups import GroupedTable, KernelGroup, Lost, group_by_kernel
from dispatchlab.views.blocks import (
    REASON_MOODS,
    Block,
    Cell,
    Folded,
    Inline,
    Line,
    Mood,
    Names,
    Row,
    Section,
    Span,
    Stack,
    Table,
    bad,
    between,
    code,
    key_mood,
    quiet,
    source,
    strong,
    warn,
)
from dispatchlab.views.formatting import counted, key_names
from dispatchlab.views.source_locations import held, is_pytorch, short_debug

_STALE = "stale slot"
_WIDEST_KEY = 24
_FIELD = 17
_FALLBACKS = 19
_OWN_KEY = (Provenance.KERNEL, Provenance.CATCH_ALL)


def operator_screen(
    view: OperatorView, *, keys: Collection[str] = (), everything: bool = False, hint: str = "(--all)"
) -> Iterator[Block]:
    """An operator for a terminal: what it is, then its table by kernel.

    Args:
        view: the operator.
        keys: the rows of the table that count; all of them when there are none.
        everything: also show each row of the table and each kernel's type.
        hint: stands where keys are left out, and names the option that shows them.
    """
    table = group_by_kernel(view, keys)
    yield from _head(view)
    yield from _stale(table, everything=everything)
    yield from _kernels(view, table, chosen=bool(keys), everything=everything)
    yield from _fallbacks(view, table, hint, chosen=bool(keys))
    if everything or keys:
        rows = [row for row in view.table if not keys or row.key in keys]
        yield Section(f"table, {counted(len(rows), 'row')}", tuple(_rows(rows)))
    others = [each for each in view.violations if not (table.stale and each.rule == _STALE)]
    if others:
        yield Line()
    for violation in others:
        yield Line(f"invariant broken: {violation}", "bad")


def schema_title(schema: str) -> tuple[Inline, ...]:
    """A schema, its name bold."""
    name, bracket, rest = schema.partition("(")
    return (strong(name), f"{bracket}{rest}")


def packet_lines(packet: Packet) -> Iterator[Block]:
    """What a call of the name tries, a schema each."""
    count = counted(len(packet.overloads), "overload")
    tries = warn(f": {packet.unknown}") if packet.unknown else "; a call tries them in this order:"
    yield Line((strong(packet.name), f" has {count}", tries))
    for overload in packet.overloads:
        mark = quiet(" (TorchScript alone)") if overload.torchscript else ""
        yield Line((*schema_title(overload.schema), mark), indent=2, hang=4)


def _head(view: OperatorView) -> Iterator[Line]:
    if view.schema is None:
        yield Line((strong(view.name), warn(" (no def)")), hang=0)
    else:
        yield Line(schema_title(view.schema), hang=4)
    if view.debug is not None:
        yield _field("defined", source(view.debug))
    if view.alias_kind is not None:
        yield _field("alias analysis", view.alias_kind)
    if view.tags:
        yield _field("tags", ", ".join(view.tags))
    types = {kernel.inferred for kernel in view.kernels if kernel.inferred is not None}
    if len(types) == 1:
        yield _field("inferred schema", types.pop())


def _field(title: str, content: Inline, width: int = _FIELD) -> Line:
    return Line(content, indent=2, label=quiet(title), width=width)


def _stale(table: GroupedTable, *, everything: bool) -> Iterator[Block]:
    if not table.stale:
        return
    by_actual: dict[str, dict[str, list[str]]] = {}
    for slots in table.stale:
        expected = "a backend fallback" if slots.expected.endswith(f"[{Provenance.FALLBACK}]") else slots.expected
        shown = slots.expected if everything else expected
        by_actual.setdefault(slots.actual, {}).setdefault(shown or "nothing", []).extend(slots.keys)
    lines: list[Line] = []
    for actual, groups in by_actual.items():
        lines.append(Line((bad("calls use "), source(actual, "bad")), indent=2, hang=0))
        for shown, keys in groups.items():
            lines.append(Line(("should be ", source(shown), f" at {_names(keys)}"), indent=4))
    count = sum(len(slots.keys) for slots in table.stale)
    title = f"{counted(count, 'stale slot')}: calls use another kernel than the table says"
    yield Section(title, tuple(lines), mood="bad")


def _names(keys: Sequence[str]) -> str:
    return ", ".join(key_names(keys))


# -- kernels


class _Shown(NamedTuple):
    """What need not be said of each kernel: the usual flags, one inferred schema, keys that were chosen."""

    usual: tuple[str, ...]
    one_type: bool
    chosen: bool
    everything: bool
    stale: Collection[str]


def _kernels(view: OperatorView, table: GroupedTable, *, chosen: bool, everything: bool) -> Iterator[Block]:
    groups = [each for each in table.kernels if not chosen or each.served or each.lost]
    if not groups:
        return
    shadowed = sum(each.is_overridden for each in groups)
    count = f"{len(groups)} of {len(view.kernels)} kernels" if chosen else counted(len(groups), "kernel")
    usual = Counter(kernel.flags for kernel in view.kernels).most_common(1)[0][0]
    title = ", ".join([count, " and ".join(usual), *([f"{shadowed} overridden"] if shadowed else [])])
    width = max((len(each.key) for each in groups if len(each.key) <= _WIDEST_KEY), default=0)
    one_type = len({kernel.inferred for kernel in view.kernels if kernel.inferred is not None}) <= 1
    shown = _Shown(usual, one_type, chosen, everything, {each.actual for each in table.stale})
    overridden = [each for each in groups if each.is_overridden]
    lines: list[Line] = []
    for group in groups:
        if group.is_overridden:
            continue
        lines += _kernel(group, width, shown)
        for other in [each for each in overridden if each.key == group.key]:
            overridden.remove(other)
            about = (warn("overrides "), _about(other, "quiet", shown))
            lines.append(Line(about, indent=2, label="", width=width + 2))
    for group in overridden:
        lines += _kernel(group, width, shown)
    if table.ambiguous:
        lines.append(Line((bad("ambiguous: "), f"a call is an error at {_names(table.ambiguous)}"), indent=2))
    yield Section(title, tuple(lines))


def _kernel(group: KernelGroup, width: int, shown: _Shown) -> Iterator[Line]:
    alias = quiet(" (alias)") if group.registered is not None and group.registered.is_alias else ""
    over = warn(" overridden") if group.is_overridden else ""
    label = (Span(group.key, _mood(group)), alias, over)
    yield Line(_about(group, "", shown), indent=2, label=label, width=width + 2)
    if group.registered is not None and not (group.served or group.is_overridden or shown.chosen):
        used = any(actual.startswith(f"{group.debug} [") for actual in shown.stale)
        what = "the table has it for no key, and stale slots use it" if used else "runs for no key"
        yield Line(what, "warn", indent=4)
    for served in group.served:
        if served.reason not in _OWN_KEY or served.keys != (group.key,):
            reason = Span(f"{served.reason} of ", REASON_MOODS[served.reason])
            yield Line((reason, _names(served.keys)), indent=4)
    reasons: dict[str, list[Lost]] = {}
    for lost in group.lost:
        if not (group.is_overridden and lost.why == NEWER):
            reasons.setdefault(_why(lost), []).append(lost)
    for why, alike in reasons.items():
        yield Line(f"{why} {_names([key for lost in alike for key in lost.keys])}", "quiet", indent=4)


def _mood(group: KernelGroup) -> Mood:
    if group.is_overridden:
        return "quiet"
    return next((REASON_MOODS[served.reason] for served in group.served), key_mood(group.key))


def _about(group: KernelGroup, mood: Mood, shown: _Shown) -> Inline:
    """Where a kernel comes from, and what is unusual about it."""
    about: list[Inline] = [source(group.debug, mood)]
    kernel = group.registered
    if kernel is None:
        return tuple(about)
    if group.fallthrough:
        about.append(warn("calls skip the key"))
    elif kernel.flags != shown.usual:
        about.append(quiet(f"[{' '.join(kernel.flags)}]"))
    if not shown.one_type or (shown.everything and kernel.inferred is None):
        about.append(quiet(kernel.inferred or "(no schema)"))
    return between(about, " ")


def _why(lost: Lost) -> str:
    """Why a kernel does not run at keys, before them."""
    return f"beaten by the {lost.winner} of" if lost.why == OUTRANKED else f"beaten, since {lost.why}, at"


# -- fallbacks


def _fallbacks(view: OperatorView, table: GroupedTable, hint: str, *, chosen: bool) -> Iterator[Line]:
    own = [group for group in table.fallbacks if group.served and not is_pytorch(group.debug)]
    builtin = [group for group in table.fallbacks if group.served and is_pytorch(group.debug)]
    skipped = [*(key for group in builtin if group.fallthrough for key in group.keys)]
    skipped += [key for key in view.skipped if key not in skipped and not chosen]
    serving = [key for group in builtin if not group.fallthrough for key in group.keys]
    if own or skipped or serving:
        yield Line()
    for group in own:
        what = "falls through" if group.fallthrough else "runs for"
        fallback = Span("backend fallback ", "fallback")
        yield Line((fallback, source(group.debug), f" {what} {_names(group.keys)}"), indent=2)
    if skipped:
        yield _field("calls skip", Names(tuple(key_names(skipped)), hint, "quiet"), _FALLBACKS)
    if serving:
        yield _field("builtin fallbacks", Names(tuple(key_names(serving)), hint, "quiet"), _FALLBACKS)


# -- rows


def _rows(rows: Sequence[TableRow]) -> Iterator[Line]:
    width = min(max((len(row.key) for row in rows), default=0), _WIDEST_KEY)
    for row in rows:
        mood = REASON_MOODS.get(row.reason, "quiet") if row.reason is not None else "quiet"
        yield Line(_row(row, mood), indent=2, label=Span(row.key, mood), width=width + 2)
        for line in _losers(row):
            yield Line(line, indent=width + 6)


def _row(row: TableRow, mood: Mood) -> Inline:
    if row.reason is None:
        return quiet("nothing")
    if row.debug == AMBIGUOUS_DEBUG:
        return Span(str(row.reason), mood)
    skip = warn(" calls skip the key") if row.fallthrough else ""
    if row.source in ("", row.key):
        return (Span(f"{row.reason}: ", mood), source(row.debug), skip)
    return (Span(str(row.reason), mood), f" of {row.source}", skip)


def _losers(row: TableRow) -> Iterator[Inline]:
    """What lost a row. A kernel that the list above names is named by its key alone."""
    if row.stale is not None:
        yield (bad("STALE, calls use "), source(row.stale, "bad"))
    for loser in row.beaten:
        if loser.why == NEWER:
            yield (warn("overrides "), source(loser.debug, "quiet"))
            continue
        line: Inline = quiet(f"instead of the {loser.reason} of {loser.source}")
        if loser.reason is Provenance.FALLBACK:
            line = (quiet(f"instead of the {loser.reason} "), source(loser.debug, "quiet"))
        yield line if loser.why == OUTRANKED else (line, quiet(f" ({loser.why})"))


# -- a page


def operator_page(view: OperatorView) -> Iterator[Block]:
    """The kernels of an operator with the keys that run them, what lost, what is stale, and the builtin fallbacks."""
    if not view.kernels and not view.table and view.schema is None:
        yield Line(f"Nothing is registered for {view.name}.")
        return
    grouped = group_by_kernel(view)
    yield Line(code(view.schema or f"{view.name}, without a def"))
    if grouped.stale:
        stale = tuple(
            (_names(group.keys), Cell(held(group.expected), "code"), Cell(held(group.actual), "code"))
            for group in grouped.stale
        )
        heads = ("keys", "should hold", "calls use")
        yield Table(f"Stale slots of {view.name}", heads, stale, frozenset(range(len(stale))))
    if grouped.kernels:
        yield _kernel_table(f"Kernels of {view.name}", grouped.kernels)
    if grouped.ambiguous:
        yield Line(f"Ambiguous, so that a call raises: {_names(grouped.ambiguous)}.", "bad")
    serving = [group for group in grouped.fallbacks if group.served or group.lost]
    if serving:
        keys = sum(len(group.keys) for group in serving)
        title = f"backend fallbacks of {view.name}: {len(serving)}, which serve {keys} keys"
        yield Folded(title, (_kernel_table(f"Backend fallbacks of {view.name}", serving),))
    for violation in view.violations:
        yield Line(f"Invariant broken: {violation}", "bad")


def _kernel_table(caption: str, kernels: Sequence[KernelGroup]) -> Table:
    """A row for each kernel; a table that a dispatcher printed does not say what lost."""
    heads = ("kernel", "registered at", "runs for", "lost")
    columns = len(heads) if any(kernel.lost for kernel in kernels) else len(heads) - 1
    return Table(caption, heads[:columns], tuple(_kernel_cells(kernel)[:columns] for kernel in kernels))


def _kernel_cells(kernel: KernelGroup) -> Row:
    served = tuple(
        f"{_names(each.keys)}{'' if kernel.registered is None else f' [{each.reason}]'}"
        f"{', calls fall through' if kernel.fallthrough else ''}"
        for each in kernel.served
    )
    lost = tuple(
        f"{_names(each.keys)} to the {each.winner}{'' if each.why == OUTRANKED else f': {each.why}'}"
        for each in kernel.lost
    )
    nothing = quiet("overridden" if kernel.is_overridden else "no key")
    name = f"{'fallthrough ' if kernel.fallthrough else ''}{short_debug(kernel.debug) or '(no debug text)'}"
    return (Cell(name, "code"), Cell(kernel.key, "name"), Cell(Stack(served or (nothing,))), Cell(Stack(lost)))
