"""Comparisons of import orders as text and as JSON.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial

from dispatchlab.analysis.import_orders import Difference, ImportComparison
from dispatchlab.render.as_json import as_json, json_text


def import_orders_text(found: ImportComparison) -> str:
    """The counts, then every difference with its owners and its diff."""
    lines = [
        f"packages: {', '.join(found.packages)}",
        f"orders: {len(found.orders):,} of {factorial(len(found.packages)):,}, each in a process of its own",
        *(["one package has one order: name those that are imported with it"] if len(found.packages) == 1 else ()),
        f"operators: {len(found.operators):,} new or changed, those of PyTorch's own modules included",
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


def _lines(found: Sequence[Difference]) -> Iterator[str]:
    for each in found:
        yield f"  {each.what}{', registered at ' if each.owners else ''}{', '.join(each.owners)}"
        yield from (f"    {line}" for line in each.diff.splitlines())
