"""Comparisons of import orders as text, for a terminal and as JSON.

As JSON, one object on one line; a field is never renamed or dropped within a version:

    version           see JSON_VERSION
    packages          as they were named
    orders            the orders that were tried, a list of packages each
    operators         the operators that are new or changed after any of them
    failed            {package: what its import raised}
    ended             {package: how its import ended the process}
    between_orders    [{what, expected_order, actual_order, owners, diff}]: differences between two orders
    again             whether the packages were imported once more after each order
    imported_again    the same between an order and the same order once more
    groups            [[package]]: groups that share nothing; empty where no package was imported by itself
    shared            [{packages, reason}]: what two packages of a group share
    whole             how many of the orders are of all packages
    skipped           how many orders of all packages were skipped, because groups share nothing
    not_skipped       why none was skipped although there are groups
    in_python         the operators for which an entry of a Python-side registry is new or changed after any of them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial
from typing import TYPE_CHECKING

from dispatchlab.analysis.import_orders import EVERY, Difference, ImportComparison
from dispatchlab.render.as_json import as_json, json_text

if TYPE_CHECKING:
    from rich.console import Console


def import_orders_text(found: ImportComparison) -> str:
    """The counts, then every difference with its owners and its diff."""
    lines = [
        f"packages: {', '.join(found.packages)}",
        f"orders: {_orders(found)}, each in a process of its own",
        *_groups(found),
        *(["one package has one order: name those that are imported with it"] if len(found.packages) == 1 else ()),
        f"operators: {len(found.operators):,} new or changed, those of PyTorch's own modules included",
        *([f"in Python: {_in_python(found)}"] if found.in_python else []),
        *(f"failed: {package}: {reason}" for package, reason in sorted(found.failed.items())),
        *(f"failed: {package}: it {how}" for package, how in sorted(found.ended.items())),
        f"differences between orders: {len(found.between_orders) or 'none'}",
        *_lines(found.between_orders),
    ]
    if found.again:
        lines.append(f"differences when imported again: {len(found.imported_again) or 'none'}")
        lines += _lines(found.imported_again)
    return "".join(f"{line}\n" for line in lines)


def import_orders_json(found: ImportComparison) -> str:
    """All of it, one line."""
    return json_text(found)


@as_json.register
def _(value: Difference) -> dict[str, object]:
    return {
        "what": value.what,
        "expected_order": value.expected,
        "actual_order": value.actual,
        "owners": list(value.owners),
        "diff": value.diff,
    }


def _in_python(found: ImportComparison) -> str:
    return f"{len(found.in_python):,} operators with registrations that are new or changed, PyTorch's own included"


def _orders(found: ImportComparison) -> str:
    """How many orders were tried, of how many."""
    whole = f"{found.whole:,} of {factorial(len(found.packages)):,}"
    if not found.skipped:
        return whole
    within = sum(1 < len(order) < len(found.packages) for order in found.orders)
    return f"{within:,} within groups, {whole} of all packages, and each package by itself"


def _groups(found: ImportComparison) -> Iterator[str]:
    """Which packages share something, which orders were skipped, and why that is sound."""
    if len(found.groups) < 2:
        return
    yield f"groups: {' | '.join(', '.join(group) for group in found.groups)}"
    for each in found.shared[:_MOST]:
        yield f"shared: {' and '.join(each.packages)}: {each.reason}"
    if len(found.shared) > _MOST:
        yield f"shared: and {len(found.shared) - _MOST:,} more; --format json has them all"
    largest = max(map(len, found.groups))
    sampled = f"; of a group of {largest}, orders are sampled" if largest > EVERY else ""
    if found.not_skipped:
        yield f"skipped: none, though groups share nothing: {found.not_skipped}"
    elif found.skipped:
        yield (
            f"skipped: {found.skipped:,} orders of all packages. Packages of two groups share no operator, library or "
            f"fallback, and none imports or names the other{sampled}"
        )
        yield (
            f"checked: {found.whole:,} orders of all packages, with every two groups both ways round; each registers "
            "what the groups predict. --all-orders takes every order"
        )


def _lines(found: Sequence[Difference]) -> Iterator[str]:
    for each in found:
        yield f"  {each.what}{', registered at ' if each.owners else ''}{', '.join(each.owners)}"
        yield from (f"    {line}" for line in each.diff.splitlines())


def print_import_orders(console: Console, found: ImportComparison) -> None:
    """Print whether an order of imports matters, what was tried, and each difference with its owners."""
    from rich.text import Text

    from dispatchlab.render.page import Page, commas, words
    from dispatchlab.render.styles import BAD, DIFF_STYLES, FIRST_STYLES, GOOD, QUIET

    page = Page(console)
    failed = {**found.failed, **{package: f"it {how}" for package, how in found.ended.items()}}
    differ = len(found.between_orders)
    with page.framed("red" if differ or failed else GOOD):
        if differ:
            page.line(f"{differ:,} difference{'' if differ == 1 else 's'} between orders of imports", BAD)
        else:
            page.line("no differences between orders of imports", f"bold {GOOD}")
        page.field("packages", commas(found.packages), width=_FIELD)
        page.field("orders", words(f"{_orders(found)}, each in a process of its own"), width=_FIELD)
        for line in _groups(found):
            name, _, text = line.strip().partition(": ")
            page.field(name, page.words(text), width=_FIELD)
        if len(found.packages) == 1:
            page.field("", words("one package has one order: name those that are imported with it"), width=_FIELD)
        new = f"{len(found.operators):,} new or changed, those of PyTorch's own modules included"
        page.field("operators", words(new), width=_FIELD)
        if found.in_python:
            page.field("in Python", words(_in_python(found)), width=_FIELD)
        for package, reason in sorted(failed.items()):
            page.field("failed", [*words(f"{package}:", BAD), *page.words(reason)], width=_FIELD, style=BAD)
        if found.again:
            again = f"{len(found.imported_again) or 'no'} differences"
            page.field("again", words(again), width=_FIELD)
    for title, differences in (("", found.between_orders), ("when imported again: ", found.imported_again)):
        for each in differences:
            page.title(f"{title}{each.what}")
            for owner in each.owners:
                page.field("registered", page.source(owner), width=12, indent=2)
            for line in each.diff.splitlines():
                style = DIFF_STYLES.get(line[:3], FIRST_STYLES.get(line[:1], QUIET))
                page.flow(page.words(line[1:], style), indent=6, first=Text(f"  {line[:1]} ", style))


_FIELD = 11
_MOST = 10  # pairs of packages that are shown
