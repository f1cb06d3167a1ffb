"""Comparisons of import orders as blocks."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.questions.imports.import_orders import COMPARED, ImportComparison
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Block, Difference, Line
from dispatchlab.views.formatting import counted, first_of
from dispatchlab.views.view import View

_MOST = 12
"""How many differences are shown; JSON has them all."""


def import_orders_view(found: ImportComparison) -> View[ImportComparison]:
    """Return the view of a comparison of import orders."""
    return View(found, lines=_lines)


@as_json.register
def _(value: ImportComparison) -> dict[str, object]:
    return fields_of(value, text=value.text, compared=COMPARED)


def _lines(found: ImportComparison) -> Iterator[Block]:
    """Return the differences with their lines and diffs, and a list of what was compared."""
    yield Line(f"{', '.join(found.packages)}: {found.text}")
    for number, one in enumerate(found.differences[:_MOST]):
        yield from [Line(one.cause, label="cause: ", indent=2)] * bool(number)
        yield Line(one.fix, label="fix: ", indent=2)
        yield Line(f"one order (-): {', '.join(one.expected)}; the other order (+): {', '.join(one.actual)}", indent=2)
        yield Line(f"{one.what}:", indent=2)
        rows = [row for row in one.diff.splitlines()[2:] if not row.startswith("@@ ")]
        yield Difference("\n".join([*rows[:_MOST], *["..."] * (len(rows) > _MOST)]), indent=4)
    if len(found.differences) > _MOST:
        yield Line(f"and {len(found.differences) - _MOST:,} more; --format json has them all", indent=2)
    yield from (Line(text, label="note: ", indent=2) for text in found.fixed)
    if found.orders:
        yield Line(f"imported in these orders: {counted(len(found.modules), 'module')}, {', '.join(found.modules)}")
        yield Line(f"compared: {COMPARED}")
    if found.unstable:
        yield Line(f"not the same in two runs of one order, and not compared: {first_of(found.unstable, _MOST)}")
