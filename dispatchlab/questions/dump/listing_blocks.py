"""Registries as blocks and as JSON: listings and counts.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dispatchlab.model.keys import DispatchKey
from dispatchlab.records.find import KeyCount
from dispatchlab.records.model import RecordedKernel, RecordedOperator
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Line
from dispatchlab.views.view import View


@dataclass(frozen=True, slots=True)
class Listing:
    """Operators of a registry, with the kernels that the listing is about.

    Args:
        source: where the registry comes from.
        torch: the PyTorch that it is of.
        operators: the operators.
        keys: show the active kernels at these.
        overridden: show the kernels that override another instead.
    """

    source: str
    torch: str
    operators: tuple[RecordedOperator, ...]
    keys: tuple[DispatchKey, ...] = ()
    overridden: bool = False

    def kernels(self, operator: RecordedOperator) -> list[RecordedKernel]:
        """The kernels of an operator at the keys that were asked for; all of them when none were."""
        return [kernel for kernel in operator.kernels if not self.keys or kernel.key in self.keys]


def listing_view(found: Listing) -> View[Listing]:
    """A line for each operator, with the kernels that the listing is about."""
    return View(found, lines=lambda _: (_line(found, operator) for operator in found.operators))


def counts_view(counts: Sequence[KeyCount], *, torch: str, source: str) -> View[object]:
    """A line for each key.

    Args:
        counts: how many kernels there are at each key.
        torch: the PyTorch that the registry is of.
        source: where the registry comes from.
    """
    value = {"source": source, "torch": torch, "counts": counts}
    return View(value, lines=lambda _: _count_lines(counts))


@as_json.register
def _(value: Listing) -> object:
    operators = [
        {
            "name": operator.name,
            "schema": operator.schema,
            "dangling": operator.is_dangling,
            "kernels": value.kernels(operator),
        }
        for operator in value.operators
    ]
    return as_json({"source": value.source, "torch": value.torch, "operators": operators})


@as_json.register
def _(value: RecordedKernel) -> dict[str, object]:
    return fields_of(value, flags=value.flags.split())


def _line(found: Listing, operator: RecordedOperator) -> Line:
    kernels = found.kernels(operator)
    if found.overridden:
        shown = "; ".join(_overrides(kernels))
    else:
        shown = "; ".join(f"{kernel.key}: {kernel.debug}" for kernel in kernels if found.keys and kernel.active)
    return Line(f"{operator.name}{f'  {shown}' if shown else ''}")


def _overrides(kernels: Sequence[RecordedKernel]) -> Iterator[str]:
    """Each kernel that overrides another, with both."""
    for newer, older in pairwise(kernels):
        if not older.active:
            yield f"{newer.key}: {newer.debug or '(no debug text)'} over {older.debug or '(no debug text)'}"


def _count_lines(counts: Sequence[KeyCount]) -> Iterator[Line]:
    width = max((len(str(count.key)) for count in counts), default=0) + 2
    for count in counts:
        label = f"{count.key!s:<{width}}{count.operators:>5} "
        parts = [f"operator{'' if count.operators == 1 else 's'}"]
        parts += [f"{count.inactive} overridden"] * bool(count.inactive)
        parts += [f"{count.fallthrough} fallthrough"] * bool(count.fallthrough)
        parts += ["a backend fallback"] * count.fallback
        yield Line(", ".join(parts), label=label, width=len(label))
