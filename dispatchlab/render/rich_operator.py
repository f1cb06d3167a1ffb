"""An operator for a terminal: what it is, what is stale, its kernels with the keys that run them, and who lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dispatchlab.analysis.table_groups import GroupedTable, KernelGroup, Lost, group_by_kernel
from dispatchlab.model.dump_format import AMBIGUOUS_DEBUG, Provenance
from dispatchlab.model.operator_view import NEWER, OUTRANKED, OperatorView, TableRow
from dispatchlab.render.key_names import key_names
from dispatchlab.render.page import Page, commas, schema_words, words
from dispatchlab.render.source_locations import is_pytorch
from dispatchlab.render.styles import BAD, FALLBACK, QUIET, REASON_STYLES, TITLE, WARNING, key_style

_STALE = "stale slot"
_WIDEST_KEY = 24
_FIELD = 17
_FALLBACKS = 19
_OWN_KEY = (Provenance.KERNEL, Provenance.CATCH_ALL)


def print_operator(
    console: Console,
    view: OperatorView,
    *,
    keys: Collection[str] = (),
    everything: bool = False,
    torch: str = "",
    hint: str = "(--all)",
) -> None:
    """Print an operator: what it is, then its table by kernel.

    Args:
        console: where to.
        view: the operator.
        keys: the rows of the table that count; all of them when there are none.
        everything: also print each row of the table, each kernel's type, and nothing shortened.
        torch: the version of the PyTorch that its source locations are of; empty when that is not known.
        hint: stands where keys are left out, and names the option that shows them.
    """
    page = Page(console, torch=torch, whole=everything)
    table = group_by_kernel(view, keys)
    _print_head(page, view)
    _print_stale(page, table)
    _print_kernels(page, view, table, chosen=bool(keys))
    _print_fallbacks(page, view, table, hint, chosen=bool(keys))
    if everything or keys:
        _print_rows(page, [row for row in view.table if not keys or row.key in keys])
    others = [each for each in view.violations if not (table.stale and each.rule == _STALE)]
    if others:
        page.blank()
    for violation in others:
        page.line(f"invariant broken: {violation}", BAD)


# -- the head


def _print_head(page: Page, view: OperatorView) -> None:
    if view.schema is None:
        page.flow([*words(view.name, TITLE), Text("(no", WARNING), Text("def)", WARNING)])
    else:
        page.flow(schema_words(view.schema), indent=4, first=Text())
    if view.debug is not None:
        page.field("defined", page.source(view.debug), width=_FIELD, indent=2)
    if view.alias_kind is not None:
        page.field("alias analysis", words(view.alias_kind), width=_FIELD, indent=2)
    if view.tags:
        page.field("tags", commas(view.tags), width=_FIELD, indent=2)
    types = {kernel.inferred for kernel in view.kernels if kernel.inferred is not None}
    if len(types) == 1:
        page.field("inferred schema", words(types.pop()), width=_FIELD, indent=2)


def _print_stale(page: Page, table: GroupedTable) -> None:
    if not table.stale:
        return
    count = sum(len(each.keys) for each in table.stale)
    page.title(f"{count} stale slot{'' if count == 1 else 's'}: calls use another kernel than the table says", BAD)
    by_actual: dict[str, dict[str, list[str]]] = {}
    for each in table.stale:
        expected = "a backend fallback" if each.expected.endswith(f"[{Provenance.FALLBACK}]") else each.expected
        shown = each.expected if page.whole else expected
        by_actual.setdefault(each.actual, {}).setdefault(shown or "nothing", []).extend(each.keys)
    for actual, groups in by_actual.items():
        page.flow([*words("calls use", BAD), *page.source(actual, BAD)], indent=2)
        for shown, keys in groups.items():
            page.flow(
                [*words("should be"), *page.source(shown), Text("at"), *commas(key_names(keys))],
                indent=6,
                first=Text("    "),
            )


# -- kernels


class _Shown(NamedTuple):
    """What need not be said of each kernel: the usual flags, one inferred schema, keys that were chosen."""

    usual: tuple[str, ...]
    one_type: bool
    chosen: bool
    stale: Collection[str]


def _print_kernels(page: Page, view: OperatorView, table: GroupedTable, *, chosen: bool) -> None:
    groups = [each for each in table.kernels if not chosen or each.served or each.lost]
    if not groups:
        return
    shadowed = sum(each.is_overridden for each in groups)
    count = f"{len(groups)} of {len(view.kernels)} kernels" if chosen else _counted(len(groups), "kernel")
    usual = Counter(kernel.flags for kernel in view.kernels).most_common(1)[0][0]
    page.title(", ".join([count, " and ".join(usual), *([f"{shadowed} overridden"] if shadowed else [])]))
    width = max((len(each.key) for each in groups if len(each.key) <= _WIDEST_KEY), default=0)
    width = min(width, page.width // 3)
    one_type = len({kernel.inferred for kernel in view.kernels if kernel.inferred is not None}) <= 1
    shown = _Shown(usual, one_type, chosen, {each.actual for each in table.stale})
    overridden = [each for each in groups if each.is_overridden]
    for group in groups:
        if group.is_overridden:
            continue
        _print_kernel(page, group, width, shown)
        for other in [each for each in overridden if each.key == group.key]:
            overridden.remove(other)
            page.flow(
                [Text("overrides", WARNING), *_about(page, other, QUIET, shown)],
                indent=width + 6,
                first=Text(" " * (width + 4)),
            )
    for group in overridden:
        _print_kernel(page, group, width, shown)
    if table.ambiguous:
        page.flow(
            [*words("ambiguous:", BAD), *words("a call is an error at"), *commas(key_names(table.ambiguous))],
            indent=4,
            first=Text("  "),
        )


def _print_kernel(page: Page, group: KernelGroup, width: int, shown: _Shown) -> None:
    style = _style_of(group)
    name = Text(group.key, style)
    if group.registered is not None and group.registered.is_alias:
        name.append(" (alias)", QUIET)
    if group.is_overridden:
        name.append(" overridden", WARNING)
    first = Text("  ").append_text(name)
    about = _about(page, group, "", shown)
    start = width + 4
    if cell_len(first.plain) + 2 <= start:
        first.append(" " * (start - cell_len(first.plain)))
        page.flow(about, indent=start, first=first)
    else:
        page.flow(about, indent=4, first=first.append(" "))
    if group.registered is not None and not (group.served or group.is_overridden or shown.chosen):
        used = any(actual.startswith(f"{group.debug} [") for actual in shown.stale)
        what = "the table has it for no key, and stale slots use it" if used else "runs for no key"
        page.flow(words(what, WARNING), indent=6, first=Text("    "))
    for served in group.served:
        if served.reason in _OWN_KEY and served.keys == (group.key,):
            continue
        keys = [*words(f"{served.reason} of", REASON_STYLES[served.reason]), *commas(key_names(served.keys))]
        page.flow(keys, indent=6, first=Text("    "))
    reasons: dict[str, list[Lost]] = {}
    for lost in group.lost:
        if not (group.is_overridden and lost.why == NEWER):
            reasons.setdefault(_why(lost), []).append(lost)
    for why, alike in reasons.items():
        keys = commas(key_names([key for lost in alike for key in lost.keys]), QUIET)
        page.flow([*words(why, QUIET), *keys], indent=6, first=Text("    "))


def _style_of(group: KernelGroup) -> str:
    if group.is_overridden:
        return QUIET
    return next((REASON_STYLES[served.reason] for served in group.served), key_style(group.key))


def _about(page: Page, group: KernelGroup, style: str, shown: _Shown) -> list[Text]:
    """Where a kernel comes from, and what is unusual about it."""
    about = page.source(group.debug, style)
    kernel = group.registered
    if kernel is None:
        return about
    if group.fallthrough:
        about += words("calls skip the key", WARNING)
    elif kernel.flags != shown.usual:
        about += words(f"[{' '.join(kernel.flags)}]", QUIET)
    if not shown.one_type or (page.whole and kernel.inferred is None):
        about += words(kernel.inferred or "(no schema)", QUIET)
    return about


def _why(lost: Lost) -> str:
    """Why a kernel does not run at keys, before them."""
    return f"beaten by the {lost.winner} of" if lost.why == OUTRANKED else f"beaten, since {lost.why}, at"


# -- fallbacks


def _print_fallbacks(page: Page, view: OperatorView, table: GroupedTable, hint: str, *, chosen: bool) -> None:
    own = [each for each in table.fallbacks if each.served and not is_pytorch(each.debug)]
    builtin = [each for each in table.fallbacks if each.served and is_pytorch(each.debug)]
    skipped = [*(key for each in builtin if each.fallthrough for key in each.keys)]
    skipped += [key for key in view.skipped if key not in skipped and not chosen]
    serving = [key for each in builtin if not each.fallthrough for key in each.keys]
    if own or skipped or serving:
        page.blank()
    for each in own:
        what = "falls through" if each.fallthrough else "runs for"
        fallback = words("backend fallback", FALLBACK)
        page.flow(
            [*fallback, *page.source(each.debug), *words(what), *commas(key_names(each.keys))],
            indent=4,
            first=Text("  "),
        )
    if skipped:
        page.field("calls skip", _in_a_line(page, key_names(skipped), hint), width=_FALLBACKS, indent=2)
    if serving:
        page.field("builtin fallbacks", _in_a_line(page, key_names(serving), hint), width=_FALLBACKS, indent=2)


def _in_a_line(page: Page, names: Sequence[str], hint: str) -> list[Text]:
    """As many names as a line has room for, and how many there are besides; all of them where nothing is left out."""
    room = page.width - _FALLBACKS - 2
    for count in range(len(names), 0, -1):
        more = f" and {len(names) - count} more {hint}".rstrip() if count < len(names) else ""
        if page.whole or count == 1 or len(", ".join(names[:count]) + more) <= room:
            return [*commas(names[:count], QUIET), *words(more, QUIET)]
    return []


# -- rows


def _print_rows(page: Page, rows: Sequence[TableRow]) -> None:
    page.title(f"table, {_counted(len(rows), 'row')}")
    width = min(max((len(row.key) for row in rows), default=0), _WIDEST_KEY)
    for row in rows:
        style = REASON_STYLES.get(row.reason, QUIET) if row.reason is not None else QUIET
        first = Text("  ").append(f"{row.key:<{width}}  ", style)
        page.flow(_row(page, row, style), indent=width + 4, first=first)
        for line in _losers(page, row):
            page.flow(line, indent=width + 8, first=Text(" " * (width + 6)))


def _row(page: Page, row: TableRow, style: str) -> list[Text]:
    if row.reason is None:
        return words("nothing", QUIET)
    if row.debug == AMBIGUOUS_DEBUG:
        return words(str(row.reason), style)
    skip = words("calls skip the key", WARNING) if row.fallthrough else []
    if row.source in ("", row.key):
        return [*words(f"{row.reason}:", style), *page.source(row.debug), *skip]
    return [*words(f"{row.reason}", style), *words(f"of {row.source}"), *skip]


def _losers(page: Page, row: TableRow) -> Iterator[list[Text]]:
    """What lost a row. A kernel that the list above names is named by its key alone."""
    if row.stale is not None:
        yield [*words("STALE, calls use", BAD), *page.source(row.stale, BAD)]
    for one in row.beaten:
        line = words(f"instead of the {one.reason} of {one.source}", QUIET)
        if one.why == NEWER:
            yield [Text("overrides", WARNING), *page.source(one.debug, QUIET)]
            continue
        if one.reason is Provenance.FALLBACK:
            line = [*words(f"instead of the {one.reason}", QUIET), *page.source(one.debug, QUIET)]
        yield line if one.why == OUTRANKED else [*line, *words(f"({one.why})", QUIET)]


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
