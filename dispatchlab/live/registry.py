"""Read the registry of the installed PyTorch in a new process, before and after packages are imported.

The import of a package can only crash, block or end that process. Values come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import Recorded, Registry

if TYPE_CHECKING:
    from dispatchlab.live.introspection.registry_reader import RegistryMoments
    from dispatchlab.model.program_run import ProgramRun

_PYTHON_READER = "dispatchlab.live.introspection.python_registries"
_READER = "dispatchlab.live.introspection.registry_reader"
_STAND_IN = "dispatchlab.live.introspection.stand_in_device"


def live_registry(imports: Sequence[str] = (), *, python: bool = False) -> Registry:
    """Return all registrations of a new process.

    Args:
        imports: packages to import first.
        python: also read the registries of Python, which imports Inductor and DTensor.

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


def live_moments(imports: Sequence[str] = ()) -> RegistryMoments:
    """Return the registry of a new process before imports of packages, after them, and after garbage collection.

    Raises:
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine() as engine:
        found: RegistryMoments = engine.ask(f"{_READER}:record_moments", tuple(imports))
    return found


class NoStandInError(DispatchLabError):
    """Programs cannot run on a stand-in for a backend."""

    key: DispatchKey

    template = (
        "--program needs a backend at PrivateUse1, but {key} is another key: "
        "give --key PrivateUse1, or the name of the device"
    )


class Backend(NamedTuple):
    """A backend that a stand-in device can replace.

    Args:
        device: the name of the device in programs.
        kernels: the operators that it has kernels for.
        has_fallback: whether the backend has a fallback to the CPU.
    """

    device: str
    kernels: tuple[str, ...]
    has_fallback: bool


def backend_of(recorded: Recorded, key: DispatchKey, *, device: str = "") -> Backend:
    """Return the backend in a registry.

    Args:
        recorded: the registry.
        key: the key of the backend.
        device: the name of the device in programs; if empty, the name in the registry.

    Raises:
        NoStandInError: the key is not PrivateUse1.
    """
    if key is not DispatchKey.PrivateUse1:
        raise NoStandInError(key)
    fallback = any(one.key is key and not one.fallthrough for one in recorded.fallbacks)
    kernels = [str(one.name) for one in recorded if one.active_at(key) is not None]
    return Backend(device or recorded.privateuse1 or "privateuseone", tuple(kernels), fallback)


def live_program(program: str, backend: Backend) -> ProgramRun:
    """Run a Python file in a new process, on a stand-in device at PrivateUse1.

    Raises:
        StandInError: this PyTorch cannot provide a stand-in device.
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine() as engine:
        found: ProgramRun = engine.ask(f"{_STAND_IN}:run_on_stand_in", program, *backend)
    return found
