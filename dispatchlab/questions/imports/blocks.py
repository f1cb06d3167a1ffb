"""Comparisons of import orders as blocks and as JSON.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial

from dispatchlab.questions.imports.import_orders import Difference, ImportComparison
from dispatchlab.views import blocks
from dispatchlab.views.as_json import as_json
from dispatchlab.views.blocks import Block, Frame, Inline, Line, Mood, Section, bad, quiet, source
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View

_FIELD = 11
_MOST = 12  # differences of one kind that are shown


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
        "certain": value.certain,
    }


def _facts(found: ImportComparison) -> Iterator[tuple[str, Inline]]:
    """What was tried, with what it is about."""
    yield "packages", ", ".join(found.packages)
    yield (
        "orders",
        f"{len(found.orders):,} of {factorial(len(found.packages)):,}, each in a process of its own",
    )
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
    yield from (("open", sentence) for sentence in found.open)


def _parts(found: ImportComparison) -> Iterator[tuple[str, list[Difference]]]:
    """The differences by what can tell them."""
    yield "differences between orders", [one for one in found.between_orders if one.certain]
    possible = [one for one in found.between_orders if not one.certain]
    if possible:
        yield "differences that only code which looks at the values of its own module can tell", possible
    if found.again:
        yield "differences when imported again", list(found.imported_again)


def _more(differences: Sequence[Difference]) -> Iterator[Block]:
    if len(differences) > _MOST:
        yield Line(f"and {len(differences) - _MOST:,} more; --format json has them all", indent=2)


def _lines(found: ImportComparison) -> Iterator[Block]:
    """The counts, then every difference with its owners and its diff."""
    for title, content in _facts(found):
        yield Line((f"{title}: " if title else "", content))
    for title, differences in _parts(found):
        yield Line(f"{title}: {len(differences) or 'none'}")
        for one in differences[:_MOST]:
            yield Line(f"{one.what}{', registered at ' if one.owners else ''}{', '.join(one.owners)}", indent=2)
            yield from (Line(row, indent=4) for row in one.diff.splitlines())
        yield from _more(differences)


def _screen(found: ImportComparison) -> Iterator[Block]:
    """Whether an order of imports matters, what was tried, and each difference with its owners."""
    number, possible = found.certain, len(found.between_orders) - found.certain
    verdict = f"{counted(number, 'difference') if number else 'no differences'} between orders of imports"
    facts = list(_facts(found))
    if possible:
        facts.append(("possible", f"{counted(possible, 'difference')} that only code which looks at values can tell"))
    if found.again:
        facts.append(("again", f"{len(found.imported_again) or 'no'} differences"))
    fields = (
        Line(content, label=bad(title) if title == "failed" else quiet(title), width=_FIELD) for title, content in facts
    )
    is_bad = bool(number or found.failed or found.ended)
    mood: Mood = "bad" if is_bad else "" if possible or found.open else "good"
    yield Frame((Line(verdict, "bad" if number else mood), *fields), mood)
    for title, differences in _parts(found):
        prefix = "" if title == "differences between orders" else f"{title.removeprefix('differences ')}: "
        for one in differences[:_MOST]:
            owners = (Line(source(owner), label=quiet("registered"), width=12, indent=2) for owner in one.owners)
            yield Section(f"{prefix}{one.what}", (*owners, blocks.Difference(one.diff)))
        yield from _more(differences)
