"""Operators of a registry as a listing.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import RecordedKernel, RecordedOperator
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Line
from dispatchlab.views.view import View


@dataclass(frozen=True, slots=True)
class Listing:
    """Operators of a registry, with the kernels of the listing.

    Args:
        source: the origin of the registry.
        torch: its version of PyTorch.
        operators: the operators.
        keys: the keys whose active kernels are shown.
    """

    source: str
    torch: str
    operators: tuple[RecordedOperator, ...]
    keys: tuple[DispatchKey, ...] = ()

    def kernels(self, operator: RecordedOperator) -> list[RecordedKernel]:
        """Return the kernels of an operator at the keys of the listing; all kernels if it has no keys."""
        return [kernel for kernel in operator.kernels if not self.keys or kernel.key in self.keys]


def listing_view(found: Listing) -> View[Listing]:
    """Return a line for each operator, with the kernels of the listing."""
    return View(found, lines=lambda _: (_line(found, operator) for operator in found.operators))


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
    kernels = [kernel for kernel in found.kernels(operator) if found.keys and kernel.active]
    shown = "; ".join(f"{kernel.key}: {kernel.debug}" for kernel in kernels)
    return Line(f"{operator.name}{f'  {shown}' if shown else ''}")
