"""A Python layer as a value, of registrations in any order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dispatchlab.model.python_layer import PYTHON_REGISTRIES, PythonRegistration


@dataclass(frozen=True)
class PythonLayerInMemory:
    """A `PythonLayer` as a value; `python_layer` makes one of registrations in any order.

    Args:
        torch: the version of PyTorch.
        registrations: sorted by operator, and by registry and key within one.
        missing: see `PythonLayer`.
        not_imported: see `PythonLayer`.
        failed: what could not be read and is left out, a sentence each; files do not hold it.
    """

    torch: str
    registrations: tuple[PythonRegistration, ...] = ()
    missing: tuple[str, ...] = ()
    not_imported: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<PythonLayerInMemory: PyTorch {self.torch}, {len(self.registrations):,} registrations>"

    @cached_property
    def _operators(self) -> list[str]:
        return [registration.operator for registration in self.registrations]

    def of(self, operator: str) -> tuple[PythonRegistration, ...]:
        """What there is for one operator, in the order of the registries."""
        names = self._operators
        return self.registrations[bisect_left(names, operator) : bisect_right(names, operator)]

    def __iter__(self) -> Iterator[PythonRegistration]:
        return iter(self.registrations)

    def __len__(self) -> int:
        return len(self.registrations)


_PLACE = {registry.name: at for at, registry in enumerate(PYTHON_REGISTRIES)}


def python_layer(
    torch: str,
    registrations: Iterable[PythonRegistration],
    missing: Sequence[str] = (),
    not_imported: Sequence[str] = (),
    failed: Sequence[str] = (),
) -> PythonLayerInMemory:
    """The layer of these registrations; those of one slot stay in the order in which they come, the newest last."""
    ordered = sorted(registrations, key=lambda one: (one.operator, _PLACE[one.registry], one.key))
    return PythonLayerInMemory(torch, tuple(ordered), tuple(missing), tuple(not_imported), tuple(failed))
