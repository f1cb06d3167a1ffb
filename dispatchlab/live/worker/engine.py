"""The live engine: the installed PyTorch in a worker process, with sandboxes and whole explorations inside of it.

This process never imports torch. If a worker dies, it raises `EngineCrashed`; the next sandbox gets a new worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dispatchlab.live.bridge.torch import require_torch, semantics
from dispatchlab.live.worker.process import WorkerCrashed, WorkerProcess
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.snapshot import Snapshot, Violation
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.limits import DEFAULT_WALK, WalkOptions
from dispatchlab.prover.protocol import EngineCrashed

if TYPE_CHECKING:
    from dispatchlab.prover.chains import Module
    from dispatchlab.prover.limits import Progress
    from dispatchlab.prover.result import Exploration

# Note [The walk runs in the worker]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A request to the worker and its reply take 100 us, several times what an edge costs. So `LiveEngine.explore` sends
# the registrations over once and runs the explorer there, on a `LocalEngine`; only progress comes back. If the worker
# dies, its journal has the sequence, and the explorer's own shortening runs it again from here, in a worker for each
# crash. Whoever needs two engines side by side, as the lockstep does, drives `sandbox()` from here.


SLOTS_NOTE = "the slots of this PyTorch were not read: one that holds a wrong kernel is not found, only an empty one"
"""The note of every exploration on a PyTorch whose slots cannot be read. See Note [Reading the slots]."""


class LiveEngine:
    """The running PyTorch.

    Args:
        imports: modules to import after torch, such as packages that register operators.
        native: the file of an extension with C++ kernels, see `NativeKernels`.

    Raises:
        TorchMissingError: PyTorch is not installed.
    """

    name = "torch"

    def __init__(self, *, imports: Sequence[str] = (), native: Path | None = None) -> None:
        require_torch()
        self._imports, self._native = tuple(imports), native
        self._process: WorkerProcess | None = None
        self._opened = 0

    @property
    def semantics(self) -> str:
        """The name of the installed PyTorch's model, such as `torch-2.13`."""
        return semantics()

    def start(self) -> None:
        """Start the worker if none is running."""
        _ = self.worker

    @property
    def reads_slots(self) -> bool:
        """True if the content of slots is read, not only whether they are filled."""
        return bool(self.ask("dispatchlab.live.introspection.slot_memory:is_readable"))

    @property
    def worker(self) -> WorkerProcess:
        """The worker, started on first use. The start imports torch, which takes seconds."""
        if self._process is None or not self._process.is_alive:
            self.close()
            self._process = WorkerProcess(imports=self._imports, native=self._native)
        return self._process

    def close(self) -> None:
        """End the worker; the next sandbox starts a new one."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def __enter__(self) -> LiveEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def sandbox(self) -> Iterator[RemoteSandbox]:
        """Open new namespaces in the worker."""
        self._opened += 1
        sandbox = RemoteSandbox(self.worker, self._opened)
        try:
            yield sandbox
        finally:
            sandbox.close()

    def ask(self, function: str, *arguments: object) -> Any:
        """Call a function in the worker.

        Args:
            function: `package.module:function`.
            arguments: its arguments.

        Raises:
            WorkerCrashed: the worker died.
            DispatchLabError: the function raised it.
        """
        return self.worker.ask("call", function, arguments)

    def run(
        self,
        function: str,
        registrations: Sequence[Registration],
        *arguments: object,
        progress: Callable[[Any], None] | None = None,
        **options: object,
    ) -> Any:
        """Call a function in the worker; its first argument is a `LocalEngine`.

        Args:
            function: `package.module:function`; it also gets `progress`, a function that reports its progress.
            registrations: the registrations whose steps the journal keeps.
            arguments: further arguments; registrations among them stay the same objects.
            progress: called with each report of progress.
            options: its keyword arguments.

        Returns:
            What it returns.

        Raises:
            WorkerCrashed: the worker died; the error has the sequence.
        """
        request = (function, tuple(registrations), arguments, options)
        return self.worker.ask("run", *request, progress=progress)

    def explore(
        self,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        options: WalkOptions = DEFAULT_WALK,
        *,
        order: Chains = (),
        modules: Sequence[Module] = (),
        progress: Callable[[Progress], None] | None = None,
    ) -> Exploration:
        """Explore on the running PyTorch whether the order of registrations matters.

        The other arguments are those of the prover's `explore`.

        Args:
            options: which walk to take, and its bounds.
            modules: modules whose registrations run together; then nothing is released.

        Returns:
            The result of the explorer; `CRASHED` with the sequence if the worker died.

        Raises:
            NotExpressibleError: a registration cannot be made through the bindings of PyTorch.
            Interrupted: Ctrl-C; the error has the results so far.
        """
        about = registrations, operators
        if modules:
            function = "dispatchlab.prover.modules:explore_modules"
            return self.walk(function, *about, tuple(modules), options, order=order, progress=progress)
        return self.walk("dispatchlab.prover.explore:explore", *about, options, order=order, progress=progress)

    def walk(
        self,
        function: str,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        *arguments: object,
        order: Chains = (),
        progress: Callable[[Progress], None] | None = None,
    ) -> Exploration:
        """Run any walk over registrations in the worker.

        The other arguments are those of the prover's `explore`.

        Args:
            function: `package.module:function`, called like `explore`, with a `LocalEngine` as the first argument.
            arguments: further arguments.
            order: chains of registrations that are registered in this order only.

        Returns:
            The result of the function; `CRASHED` with the shortest sequence if the worker died.

        Raises:
            NotExpressibleError: a registration cannot be made through the bindings of PyTorch.
            Interrupted: Ctrl-C; the error has the results so far.
        """
        registrations, operators = distinguished(registrations), tuple(operators)
        given = registrations, operators, *arguments
        try:
            found: Exploration = self.run(function, registrations, *given, progress=progress, order=order)
        except WorkerCrashed as crash:
            return self._crashed(crash, registrations, operators, order)
        return found if self.reads_slots else replace(found, notes=(SLOTS_NOTE, *found.notes))

    def _crashed(
        self,
        crash: WorkerCrashed,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        order: Chains,
    ) -> Exploration:
        from dispatchlab.prover.chains import count_orders
        from dispatchlab.prover.driver import crashed
        from dispatchlab.prover.result import Exploration
        from dispatchlab.prover.run_sequence import on_sandboxes

        count = len(registrations)
        sessions = on_sandboxes(self, registrations, operators)
        sequence = crash.sequence or tuple(range(count))  # it may have died before the first step, over reading them
        verdict, found = crashed(sessions, count, sequence, crash, order=order)
        steps = len(crash.sequence)
        return Exploration(verdict, "covering", count, 0, 0, steps, count_orders(count, order), counterexample=found)


class RemoteHandle:
    """A registration that is in force in the worker."""

    __slots__ = ("_index", "_number", "_sandbox")

    def __init__(self, sandbox: RemoteSandbox, index: int, number: int) -> None:
        self._sandbox: RemoteSandbox | None = sandbox
        self._index, self._number = index, number

    def release(self) -> None:
        """Release the registration; a second release is harmless.

        Raises:
            EngineCrashed: the worker died during the call.
        """
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            sandbox._step(~self._index, "release", self._number)


class RemoteSandbox:
    """A sandbox in the worker; each call sends a request and waits for the reply.

    The sequence of an error numbers the registrations in the order in which the sandbox first got them.
    """

    def __init__(self, worker: WorkerProcess, number: int) -> None:
        self._worker, self._number = worker, number
        self._known: dict[int, tuple[int, Registration]] = {}
        self._handles = 0
        self._sequence: list[int] = []
        self._ask("open")

    def register(self, registration: Registration, /) -> RemoteHandle:
        """Register it.

        Raises:
            RegistrationError: PyTorch refused.
            NotExpressibleError: the bindings have no call for it.
            EngineCrashed: the worker died during the call.
        """
        known = self._known.get(id(registration))
        if known is None:
            known = len(self._known), registration
            try:
                self._ask("know", known[0], registration)
            except WorkerCrashed as crash:  # reading it took the worker down: a module that it names, for one
                raise WorkerCrashed(crash.text, (*self._sequence, known[0])) from None
            self._known[id(registration)] = known
        self._handles += 1
        self._step(known[0], "register", known[0], self._handles)
        return RemoteHandle(self, known[0], self._handles)

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """Return PyTorch's present output about the operator, and the content of its slots."""
        found = self._ask("snapshot", operator)
        assert isinstance(found, Snapshot)
        return found

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Return the slots that differ from the computed table, and the results of PyTorch's own check."""
        found = self._ask("violations", operator)
        assert isinstance(found, tuple)
        return found

    def close(self) -> None:
        """Release all active registrations; harmless if the worker is gone."""
        if self._worker.is_alive:
            with suppress(EngineCrashed):
                self._ask("close")

    def _step(self, step: int, name: str, *arguments: int) -> None:
        self._sequence.append(step)
        self._ask(name, *arguments)

    def _ask(self, name: str, *arguments: object) -> object:
        try:
            if not self._worker.is_alive:
                raise self._worker.crash()
            return self._worker.ask(name, self._number, *arguments)
        except WorkerCrashed as crash:
            raise WorkerCrashed(crash.text, tuple(self._sequence)) from None
