"""The registry of the running PyTorch, read in a process of its own; what packages register there, before and after.

Whatever importing a package does, it does to that process: it can crash, hang, exit and print. Values come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.registry.model import Registry

if TYPE_CHECKING:
    from dispatchlab.live.introspection.readiness_reader import PackageOperators
    from dispatchlab.live.introspection.registry_reader import RegistryMoments
    from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory

_PYTHON_READER = "dispatchlab.live.introspection.python_registries"
_READER = "dispatchlab.live.introspection.registry_reader"
_READINESS_READER = "dispatchlab.live.introspection.readiness_reader"


def live_registry(imports: Sequence[str] = (), *, python: bool = False) -> Registry:
    """Everything that is registered in a new process.

    Args:
        imports: packages to import first.
        python: read what Python registers besides, too, which imports Inductor and DTensor.

    Raises:
        TorchMissingError: PyTorch cannot be imported.
        ImportFailedError: a package cannot be imported; also `ImportEndedError` and `ImportTimeoutError`.
        WorkerCrashed: the process died.
        DumpError: the fallbacks cannot be read.
    """
    with LiveEngine() as engine:
        found: Registry = engine.ask(
            f"{_READER}:{'record_with_python' if python else 'record_registry'}", tuple(imports)
        )
    return found


def live_python_layer(imports: Sequence[str] = ()) -> PythonLayerInMemory:
    """What Python registers beside the dispatch tables in a new process, in all parts of PyTorch that do.

    Args:
        imports: packages to import first.

    Raises:
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine(imports=tuple(imports)) as engine:
        found: PythonLayerInMemory = engine.ask(f"{_PYTHON_READER}:read_whole_layer")
    return found


def live_moments(imports: Sequence[str] = ()) -> RegistryMoments:
    """The registry of one new process before packages are imported, after that, and after garbage was collected.

    Args:
        imports: the packages.

    Raises:
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine() as engine:
        found: RegistryMoments = engine.ask(f"{_READER}:record_moments", tuple(imports))
    return found


def live_package_operators(imports: Sequence[str]) -> PackageOperators:
    """What packages bring to a new process, with what Python registers besides.

    Args:
        imports: the packages.

    Raises:
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine() as engine:
        found: PackageOperators = engine.ask(f"{_READINESS_READER}:record_package_operators", tuple(imports))
    return found
