"""The registry of the running PyTorch, read in a process of its own; what packages register there, before and after.

Whatever importing a package does, it does to that process: it can crash, hang, exit and print. Values come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock, Timer
from typing import TYPE_CHECKING, NamedTuple

from dispatchlab.model.operator_runs import InputsError, Run
from dispatchlab.pytorch.worker.engine import LiveEngine
from dispatchlab.pytorch.worker.process import WorkerCrashed, WorkerProcess
from dispatchlab.records.model import Registry

if TYPE_CHECKING:
    from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory
    from dispatchlab.pytorch.introspection.readiness_reader import PackageOperators
    from dispatchlab.pytorch.introspection.registry_reader import RegistryMoments

_PYTHON_READER = "dispatchlab.pytorch.introspection.python_registries"
_READER = "dispatchlab.pytorch.introspection.registry_reader"
_READINESS_READER = "dispatchlab.pytorch.introspection.readiness_reader"
_RUNS = "dispatchlab.pytorch.introspection.readiness_runs"


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


class OperatorRuns(NamedTuple):
    """What runs of operators on inputs showed.

    Args:
        runs: operator -> column -> what a run shows.
        notes: what was not run, a sentence each.
    """

    runs: dict[str, dict[str, Run]]
    notes: tuple[str, ...]


def live_operator_runs(
    imports: Sequence[str],
    inputs: str,
    operators: Sequence[str],
    *,
    limit_s: float,
    started: Callable[[str], None] = lambda _: None,
) -> OperatorRuns:
    """Run operators on the inputs that there are for them, in a process of its own, and a new one when that dies.

    Args:
        imports: the packages that define them.
        inputs: `module:name` of what makes the inputs.
        operators: those that may be run.
        limit_s: how long the runs of one operator may take.
        started: called with each operator that is run.

    Raises:
        InputsError: there are no inputs under that name.
        DispatchLabError: as for `live_registry`.
    """
    runs: dict[str, dict[str, Run]] = {}
    notes: list[str] = []
    with LiveEngine(imports=tuple(imports)) as engine:
        given: tuple[str, ...] = engine.ask(f"{_RUNS}:operators_with_inputs", inputs)
        unknown = sorted(set(given) - set(operators))
        if unknown:
            notes.append(f"inputs are given for operators that are not judged: {', '.join(unknown)}")
        for name in operators:
            if name not in given:
                continue
            started(name)
            limit = _TimeLimit(engine.worker, limit_s)
            try:
                runs[name] = engine.ask(f"{_RUNS}:run_operator", inputs, name)
            except InputsError as error:
                notes.append(error.why)
            except WorkerCrashed as error:
                why = f"took longer than {limit_s:g} s" if limit.passed else f"cannot be taken to their end: {error}"
                notes.append(f"the runs of {name} {why}")
            finally:
                limit.cancel()
                if limit.passed:  # it may have answered before it was killed
                    engine.close()
    return OperatorRuns(runs, tuple(notes))


class _TimeLimit:
    """Kills a worker that takes too long, and notes that in `passed`."""

    def __init__(self, worker: WorkerProcess, limit_s: float) -> None:
        self.passed = False
        self._worker, self._is_over = worker, False
        self._lock = Lock()
        self._timer = Timer(limit_s, self._kill)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Let the worker live from now on; a second time is harmless."""
        with self._lock:
            self._is_over = True
        self._timer.cancel()

    def _kill(self) -> None:
        with self._lock:
            if not self._is_over:
                self.passed = True
                self._worker.kill()
