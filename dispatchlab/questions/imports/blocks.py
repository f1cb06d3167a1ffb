"""Comparisons of import orders as blocks and as JSON.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

from dispatchlab.questions.imports.import_orders import EVERY, Difference, ImportComparison
from dispatchlab.views import blocks
from dispatchlab.views.as_json import as_json
from dispatchlab.views.blocks import Block, Frame, Inline, Line, Section, bad, quiet, source
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View

_FIELD = 11
_MOST = 10  # pairs of packages that are shown


def import_orders_view(found: ImportComparison) -> View[ImportComparison]:
    """How a comparison of import orders is shown."""
    return View(found, lines=_lines, screen=_screen)


@as_json.register
def _(value: Difference) -> dict[str, object]:
    return {
        "what": value.what,
        "expected_order": value.expected,
        "actual_order": value.actual,
        "owners": list(value.owners),
        "diff": value.diff,
    }


def _facts(found: ImportComparison) -> Iterator[tuple[str, Inline]]:
    """What was tried, with what it is about."""
    yield "packages", ", ".join(found.packages)
    yield "orders", f"{_orders(found)}, each in a process of its own"
    yield from _groups(found)
    if len(found.packages) == 1:
        yield "", "one package has one order: name those that are imported with it"
    if found.loaded and set(found.loaded) == set(found.packages):
        yield (
            "",
            "each of these loads all the others when it is imported first, so that no order is another than the rest",
        )
    elif found.loaded:
        yield "", f"loaded by others whenever their turn came later: {', '.join(found.loaded)}"
    yield "operators", f"{len(found.operators):,} new or changed, those of PyTorch's own modules included"
    if not (found.operators or found.in_python or found.failed or found.ended):
        yield "", f"nothing is registered by importing {', '.join(found.packages)}"
    if found.in_python:
        number = f"{len(found.in_python):,} operators with registrations that are new or changed"
        yield "in Python", f"{number}, PyTorch's own included"
    for package, reason in sorted(found.failed.items()):
        yield "failed", (bad(f"{package}: "), reason)
    for package, how in sorted(found.ended.items()):
        yield "failed", (bad(f"{package}: "), f"it {how}")


def _orders(found: ImportComparison) -> str:
    """How many orders were tried, of how many."""
    whole = f"{found.whole:,} of {factorial(len(found.packages)):,}"
    if not found.skipped:
        return whole
    within = sum(1 < len(order) < len(found.packages) for order in found.orders)
    return f"{within:,} within groups, {whole} of all packages, and each package by itself"


def _groups(found: ImportComparison) -> Iterator[tuple[str, str]]:
    """Which packages share something, which orders were skipped, and why that is sound."""
    if len(found.groups) < 2:
        return
    yield "groups", " | ".join(", ".join(group) for group in found.groups)
    for pair in found.shared[:_MOST]:
        yield "shared", f"{' and '.join(pair.packages)}: {pair.reason}"
    if len(found.shared) > _MOST:
        yield "shared", f"and {len(found.shared) - _MOST:,} more; --format json has them all"
    largest = max(map(len, found.groups))
    sampled = f"; of a group of {largest}, orders are sampled" if largest > EVERY else ""
    if found.not_skipped:
        yield "skipped", f"none, though groups share nothing: {found.not_skipped}"
    elif found.skipped:
        yield (
            "skipped",
            f"{found.skipped:,} orders of all packages. Packages of two groups share no operator, library or "
            f"fallback, and none imports or names the other{sampled}",
        )
        yield (
            "checked",
            f"{found.whole:,} orders of all packages, with every two groups both ways round; each registers "
            "what the groups predict. --all-orders takes every order",
        )


def _lines(found: ImportComparison) -> Iterator[Block]:
    """The counts, then every difference with its owners and its diff."""
    for title, content in _facts(found):
        yield Line((f"{title}: " if title else "", content))
    parts = [("differences between orders", found.between_orders)]
    parts += [("differences when imported again", found.imported_again)] * found.again
    for title, differences in parts:
        yield Line(f"{title}: {len(differences) or 'none'}")
        for one in differences:
            yield Line(f"{one.what}{', registered at ' if one.owners else ''}{', '.join(one.owners)}", indent=2)
            yield from (Line(row, indent=4) for row in one.diff.splitlines())


def _screen(found: ImportComparison) -> Iterator[Block]:
    """Whether an order of imports matters, what was tried, and each difference with its owners."""
    number = len(found.between_orders)
    verdict = f"{counted(number, 'difference') if number else 'no differences'} between orders of imports"
    facts = list(_facts(found))
    if found.again:
        facts.append(("again", f"{len(found.imported_again) or 'no'} differences"))
    fields = (
        Line(content, label=bad(title) if title == "failed" else quiet(title), width=_FIELD) for title, content in facts
    )
    is_bad = bool(number or found.failed or found.ended)
    yield Frame((Line(verdict, "bad" if number else "good"), *fields), "bad" if is_bad else "good")
    for title, differences in (("", found.between_orders), ("when imported again: ", found.imported_again)):
        for one in differences:
            owners = (Line(source(owner), label=quiet("registered"), width=12, indent=2) for owner in one.owners)
            yield Section(f"{title}{one.what}", (*owners, blocks.Difference(one.diff)))
