"""The registry of the running PyTorch, read in a process of its own; what packages register there, before and after.

Whatever importing a package does, it does to that process: it can crash, hang, exit and print. Values come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, NamedTuple

from dispatchlab.model.operator_runs import GENERATED, InputsError, Outcome, Run
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
_INPUTS = "dispatchlab.pytorch.introspection.readiness_inputs"
_CAPTURES = "dispatchlab.pytorch.introspection.readiness_captures"
_PLAIN = ("cpu", "cuda", "repeat")
"""The cells that are plain calls: when one does not come back, no other is run."""


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
    source: str,
    operators: Sequence[str],
    *,
    limit_s: float,
    generate: bool = False,
    started: Callable[[str], None] = lambda _: None,
) -> OperatorRuns:
    """Run operators on the inputs that there are for them, in a process of its own, and a new one when that dies.

    Args:
        imports: the packages that define them.
        source: `module:name` of what makes the inputs, or a file of captured ones; empty for none.
        operators: those that may be run.
        limit_s: how long one cell of an operator may take.
        generate: also make inputs from the schemas of operators that have none.
        started: called with each operator that is run.

    Raises:
        InputsError: there are no inputs under that name.
        DispatchLabError: as for `live_registry`.
    """
    runs: dict[str, dict[str, Run]] = {}
    notes: list[str] = []
    with LiveEngine(imports=tuple(imports)) as engine:
        given: tuple[str, ...] = engine.ask(f"{_INPUTS}:operators_with_inputs", source) if source else ()
        unknown = sorted(set(given) - set(operators))
        if unknown:
            notes.append(f"inputs are given for operators that are not judged: {', '.join(unknown)}")
        for name in operators:
            if name not in given and not generate:
                continue
            started(name)
            try:
                runs[name] = _runs_of(engine, source if name in given else GENERATED, name, limit_s)
            except InputsError as error:
                notes.append(error.why)
    return OperatorRuns(runs, tuple(notes))


def _runs_of(engine: LiveEngine, source: str, name: str, limit_s: float) -> dict[str, Run]:
    """The cells of one operator. One that ends the process, or hangs, costs that cell; a plain call costs all.

    Raises:
        InputsError: the inputs cannot be made.
    """
    try:
        columns = _within(engine, limit_s, "begin_runs", source, name)
    except _Ended as error:
        raise InputsError(source, f"the inputs of {name} cannot be made: {error.run.how}") from None
    runs: dict[str, Run] = {}
    ended = ""
    for column in columns:
        if ended:
            runs[column] = Run(Outcome.NOT_DECIDED, ended)
            continue
        try:
            runs[column] = _within(engine, limit_s, "run_cell", source, name, column)
        except _Ended as error:
            runs[column] = error.run
            if column in _PLAIN:
                ended = f"a plain call does not come back: {error.run.how}"
    return runs


class _Ended(Exception):
    """The process ended before its answer; `run` says what that shows."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.how)
        self.run = run


def _within(engine: LiveEngine, limit_s: float, function: str, *arguments: str) -> Any:
    """Ask for a run that has so long.

    Raises:
        _Ended: it took longer, or the process died.
        InputsError: the inputs cannot be made.
    """
    limit = _TimeLimit(engine.worker, limit_s)
    try:
        return engine.ask(f"{_RUNS}:{function}", *arguments)
    except WorkerCrashed as error:
        if limit.passed:
            raise _Ended(Run(Outcome.NOT_DECIDED, f"it took longer than {limit_s:g} s")) from None
        raise _Ended(Run(Outcome.FAILS, f"it ends the process: {error}")) from None
    finally:
        limit.cancel()
        if limit.passed:  # it may have answered before it was killed
            engine.close()


def live_capture(imports: Sequence[str], program: str) -> bytes:
    """Run a Python file in a process of its own, and give the file of the operator calls that it made.

    Args:
        imports: packages to import first.
        program: the file.

    Raises:
        ProgramError: the program raises.
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine(imports=tuple(imports)) as engine:
        found: bytes = engine.ask(f"{_CAPTURES}:capture_program", program)
    return found


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
