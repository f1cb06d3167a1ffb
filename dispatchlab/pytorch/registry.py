"""The registry of the running PyTorch, read in a process of its own; what packages register there, before and after.

Whatever importing a package does, it does to that process: it can crash, hang, exit and print. Values come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Timer
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_runs import GENERATED, InputsError, Outcome, Run
from dispatchlab.model.program_run import AUTOCAST
from dispatchlab.pytorch.worker.engine import LiveEngine
from dispatchlab.pytorch.worker.process import WorkerCrashed, WorkerProcess
from dispatchlab.records.model import Recorded, Registry

if TYPE_CHECKING:
    from dispatchlab.model.program_run import ProgramRun
    from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory
    from dispatchlab.pytorch.introspection.readiness_reader import PackageOperators
    from dispatchlab.pytorch.introspection.registry_reader import RegistryMoments

_PYTHON_READER = "dispatchlab.pytorch.introspection.python_registries"
_READER = "dispatchlab.pytorch.introspection.registry_reader"
_READINESS_READER = "dispatchlab.pytorch.introspection.readiness_reader"
_RUNS = "dispatchlab.pytorch.introspection.readiness_runs"
_INPUTS = "dispatchlab.pytorch.introspection.readiness_inputs"
_CAPTURES = "dispatchlab.pytorch.introspection.readiness_captures"
_STAND_IN = "dispatchlab.pytorch.introspection.stand_in_device"
_PLAIN = ("cpu", "cuda", "repeat")
"""The cells that are plain calls: when one does not come back, no other is run."""
_BY_INDUCTOR = ("inductor", "aot_package")
"""The cells for which Inductor is loaded, which takes long."""


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

    Raises:
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine() as engine:
        found: RegistryMoments = engine.ask(f"{_READER}:record_moments", tuple(imports))
    return found


def live_package_operators(imports: Sequence[str]) -> PackageOperators:
    """What packages bring to a new process, with what Python registers besides.

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
    skipped: Mapping[str, str] = MappingProxyType({}),
    jobs: int = 1,
    started: Callable[[str], None] = lambda _: None,
) -> OperatorRuns:
    """Run operators on the inputs that there are for them, in processes of their own, and new ones when these die.

    Args:
        imports: the packages that define them.
        source: `module:name` of what makes the inputs, or a file of captured ones; empty for none.
        operators: those that may be run.
        limit_s: how long one cell of an operator may take.
        generate: also make inputs from the schemas of operators that have none.
        skipped: the columns that are not run, with what to say of them.
        jobs: how many processes; where there are several, the first runs what Inductor compiles, and nothing else.
        started: called with each operator that is run.

    Raises:
        InputsError: there are no inputs under that name.
        DispatchLabError: as for `live_registry`.
    """
    with LiveEngine(imports=tuple(imports)) as engine:
        given: tuple[str, ...] = engine.ask(f"{_INPUTS}:operators_with_inputs", source) if source else ()
        names = [name for name in operators if generate or name in given]
        unknown = ", ".join(sorted(set(given) - set(operators)))
        notes = [f"inputs are given for operators that are not judged: {unknown}"] if unknown else []
        runs: dict[str, dict[str, Run]] = {}
        sources = [source if name in given else GENERATED for name in names]
        for name, result in zip(names, _in_order(engine, imports, names, sources, jobs, limit_s, skipped), strict=True):
            started(name)
            try:
                runs[name] = result()
            except InputsError as error:
                notes.append(error.why)
    return OperatorRuns(runs, tuple(notes))


def _in_order(
    engine: LiveEngine,
    imports: Sequence[str],
    names: Sequence[str],
    sources: Sequence[str],
    jobs: int,
    limit_s: float,
    skipped: Mapping[str, str],
) -> Iterator[Callable[[], dict[str, Run]]]:
    """What waits for the runs of each operator."""
    first = _Runner(engine, limit_s, skipped, Event())
    if jobs == 1 or not names:
        for name, source in zip(names, sources, strict=True):
            yield partial(first.runs, source, name, {}, compiled=None)
        return
    with ExitStack() as engines:
        free: SimpleQueue[_Runner] = SimpleQueue()
        for _ in range(min(jobs - 1, len(names))):
            free.put(first._replace(engine=engines.enter_context(LiveEngine(imports=tuple(imports)))))

        def others(source: str, name: str) -> dict[str, Run]:
            runner = free.get()
            try:
                return runner.runs(source, name, {}, compiled=False)
            finally:
                free.put(runner)

        def compiled(source: str, name: str, before: Future[dict[str, Run]]) -> dict[str, Run]:
            return first.runs(source, name, before.result(), compiled=True)

        with ThreadPoolExecutor(free.qsize()) as pool, ThreadPoolExecutor(1) as compiler:
            plain = [pool.submit(others, *one) for one in zip(sources, names, strict=True)]
            both = [compiler.submit(compiled, *one) for one in zip(sources, names, plain, strict=True)]
            try:
                for future in both:
                    yield future.result
            finally:  # where an interrupt ends it early
                first.stopped.set()
                for future in (*plain, *both):
                    future.cancel()
                if not both[-1].done():
                    engines.close()
                    engine.close()


class _Runner(NamedTuple):
    """Runs the cells of operators in a process, one after another."""

    engine: LiveEngine
    limit_s: float
    skipped: Mapping[str, str]
    stopped: Event

    def runs(self, source: str, name: str, before: dict[str, Run], *, compiled: bool | None) -> dict[str, Run]:
        """The cells of one operator. One that ends the process, or hangs, costs that cell; a plain call costs all.

        Args:
            source: where its inputs are from.
            name: the operator.
            before: the cells that were run already.
            compiled: only those that Inductor compiles, or only the others; None for both.

        Raises:
            InputsError: the inputs cannot be made.
        """
        runs = dict(before)
        try:
            columns: tuple[str, ...] = self._within("begin_runs", source, name)
        except _Ended as error:
            raise InputsError(source, f"the inputs of {name} cannot be made: {error.run.how}") from None
        for column in columns:
            if compiled is not None and (column in _BY_INDUCTOR) is not compiled:
                continue
            ended = next((run.how for at, run in runs.items() if at in _PLAIN and run.how.startswith(_NO_ANSWER)), "")
            if column in self.skipped:
                runs[column] = Run(Outcome.NOT_DECIDED, self.skipped[column])
            elif ended:
                runs[column] = Run(Outcome.NOT_DECIDED, f"a plain call does not come back: {ended}")
            else:
                try:
                    runs[column] = self._within("run_cell", source, name, column)
                except _Ended as error:
                    runs[column] = error.run
        return runs

    def _within(self, function: str, *arguments: str) -> Any:
        """Ask for a run that has so long.

        Raises:
            _Ended: it took longer, or the process died.
            InputsError: the inputs cannot be made.
        """
        if self.stopped.is_set():
            raise CancelledError
        limit = _TimeLimit(self.engine.worker, self.limit_s)
        try:
            return self.engine.ask(f"{_RUNS}:{function}", *arguments)
        except WorkerCrashed as error:
            if limit.passed:
                raise _Ended(Run(Outcome.NOT_DECIDED, f"{_NO_ANSWER[0]} {self.limit_s:g} s")) from None
            raise _Ended(Run(Outcome.FAILS, f"{_NO_ANSWER[1]} {error}")) from None
        finally:
            limit.cancel()
            if limit.passed:  # it may have answered before it was killed
                self.engine.close()


_NO_ANSWER = ("it took longer than", "it ends the process:")
"""How a run begins that shows that nothing came back."""


class _Ended(Exception):
    """The process ended before its answer; `run` says what that shows."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.how)
        self.run = run


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


class NoStandInError(DispatchLabError):
    """Programs cannot run on a stand-in for a backend."""

    key: DispatchKey

    template = (
        "--program is for a backend at PrivateUse1, for which a device can stand in, and {key} is another key: "
        "give --key PrivateUse1, or the name of the device"
    )


class Backend(NamedTuple):
    """A backend for which a device can stand in.

    Args:
        device: what programs call it.
        kernels: the operators that it has kernels for; `AutocastPrivateUse1` for a fallback there.
        has_fallback: whether it has a fallback to the CPU.
    """

    device: str
    kernels: tuple[str, ...]
    has_fallback: bool


def backend_of(recorded: Recorded, key: DispatchKey, *, device: str = "", fallback: bool | None = None) -> Backend:
    """The backend that a registry has.

    Args:
        recorded: the registry.
        key: its key.
        device: what programs call it; the name that the registry has for it when empty.
        fallback: whether to suppose a fallback to the CPU; None for what the registry has.

    Raises:
        NoStandInError: the key is not PrivateUse1.
    """
    if key is not DispatchKey.PrivateUse1:
        raise NoStandInError(key)
    if fallback is None:
        fallback = any(one.key is key and not one.fallthrough for one in recorded.fallbacks)
    kernels = [str(one.name) for one in recorded if one.active_at(key) is not None]
    kernels += [AUTOCAST for one in recorded.fallbacks if str(one.key) == AUTOCAST]
    return Backend(device or recorded.privateuse1 or "privateuseone", tuple(kernels), fallback)


def live_program(program: str, backend: Backend, *options: Literal["default", "above", "parts"]) -> ProgramRun:
    """Run a Python file on a device that stands in for one at PrivateUse1, in a process of its own.

    Args:
        program: the file.
        backend: what the device stands in for.
        options: `default` to make it the default device before, `above` to note the operators whose calls lead to
            those that reach the device, `parts` to note what decompositions call.

    Raises:
        StandInError: this PyTorch cannot.
        DispatchLabError: as for `live_registry`.
    """
    given = (*options, "fallback") if backend.has_fallback else options
    with LiveEngine() as engine:
        found: ProgramRun = engine.ask(f"{_STAND_IN}:run_on_stand_in", program, (), *backend[:2], given)
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
