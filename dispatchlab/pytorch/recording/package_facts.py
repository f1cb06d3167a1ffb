"""Everything that is asked about packages, read in one process that imports them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dispatchlab._gc_pause import collector_paused
from dispatchlab.model.python_layer import EVERY_OVERLOAD
from dispatchlab.model.registration import TorchLibraryFunction
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.introspection.python_registries import read_operators
from dispatchlab.pytorch.introspection.readiness_reader import PackageOperators, autograd_watched, package_operators
from dispatchlab.pytorch.introspection.registry_reader import RegistryMoments, RegistryReader, called_functions
from dispatchlab.pytorch.introspection.site_log import import_logged
from dispatchlab.pytorch.recording.record_package import OrderBudget, PackageRecord, record_packages

# Note [Parts of PyTorch that are not imported]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Inductor and DTensor keep registries that are empty until they are imported, which takes seconds. What a package
# registers there it registers by importing them, so where it has not, its operators have nothing there; and what they
# register themselves is for operators of PyTorch, of which nobody asks here.

_DTENSOR = "torch.distributed.tensor"


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """What one import of packages showed.

    Args:
        record: what they register.
        moments: the registry before it, after it, and after garbage was collected.
        operators: what their readiness is judged by.
    """

    record: PackageRecord
    moments: RegistryMoments
    operators: PackageOperators


def package_facts(packages: Sequence[str], orders: OrderBudget) -> PackageFacts:
    """Import packages, and read what all questions about them are asked of.

    Raises:
        ImportFailedError: one cannot be imported.
        DispatchLabError: as for `record_registry`.
    """
    with collector_paused():  # else what nobody keeps may go before it is read
        witness = _Witness()
        record = record_packages(packages, orders, witness)
        return PackageFacts(record, witness.moments, witness.operators())


class _Witness:
    """Reads the registry while a recording goes on."""

    def __init__(self) -> None:
        self._reader = RegistryReader()
        self._before = self._after = before = self._reader.read()
        self._packages: tuple[str, ...] = ()
        self._given: dict[str, object] = {}
        self._functions: Mapping[str, frozenset[TorchLibraryFunction]] = {}
        self.moments = RegistryMoments(before, before, before, {})

    def import_packages(self, packages: Sequence[str], /) -> None:
        self._packages = tuple(packages)
        with autograd_watched() as self._given:
            import_logged(packages)

    def imported(self) -> None:
        self._after = self._reader.read(self._packages)
        self._functions = called_functions()

    def collected(self) -> None:
        kept = self._reader.read(self._packages)
        self.moments = RegistryMoments(self._before, self._after, kept, called_functions())

    def operators(self) -> PackageOperators:
        """What readiness is judged by. See Note [Parts of PyTorch that are not imported]."""
        known = {one.name for one in self._before if not one.is_dangling}
        names = [str(one.name) for one in self._after if one.name not in known]
        layer = read_operators({*names, *(f"{name.partition('.')[0]}.{EVERY_OVERLOAD}" for name in names)})
        if torch().distributed.is_available():
            layer = replace(layer, not_imported=tuple(each for each in layer.not_imported if each != _DTENSOR))
        return package_operators(self._before, replace(self._after, python=layer), self._functions, self._given)
