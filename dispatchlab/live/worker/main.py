"""The worker process, which imports torch: `WorkerProcess` starts `main` in a new process.

It reads requests from its standard input, and replies on its former standard output. Output of kernels and libraries
goes to standard error. The worker ends when its input ends.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.machinery
import importlib.util
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from pkgutil import resolve_name
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from dispatchlab.live.bridge.torch import bindings, report_imports
from dispatchlab.live.introspection.site_log import import_logged
from dispatchlab.live.sandbox.journal import Journal
from dispatchlab.live.worker.ipc import portable, receive_bytes, send
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.snapshot import Snapshot, Violation

if TYPE_CHECKING:
    from dispatchlab.live.sandbox.sandbox import LiveHandle, LiveSandbox, LocalEngine


class Worker:
    """The requests that a worker serves; each is a method.

    Args:
        report: sends progress to the other side.
    """

    def __init__(self, report: Callable[[object], None]) -> None:
        self._report = report
        self._options: dict[str, Any] = {}
        self._sandboxes: dict[int, tuple[AbstractContextManager[LiveSandbox], LiveSandbox]] = {}
        self._registrations: dict[tuple[int, int], Registration] = {}
        self._handles: dict[tuple[int, int], LiveHandle] = {}

    def start(self, journal: int | str, path: tuple[str, ...], imports: tuple[str, ...], native: str | None) -> str:
        """Import torch and the packages of the user; return the version of torch."""
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        gc.set_threshold(50_000, 20, 20)  # almost all of torch stays
        bindings()
        warnings.simplefilter("ignore")
        import_logged(imports)
        self._options = {"journal": Journal(journal)}
        if native is not None:
            self._options["native"] = load_extension(Path(native))
        gc.freeze()  # the heap of torch is large and stays, so no collection need look at it
        return str(sys.modules["torch"].__version__)

    @cached_property
    def _engine(self) -> LocalEngine:
        from dispatchlab.live.sandbox.sandbox import LocalEngine  # which a worker for a record has no use for

        return LocalEngine(**self._options)

    def open(self, number: int) -> None:
        """Open a fresh sandbox."""
        manager = self._engine.sandbox()
        self._sandboxes[number] = manager, manager.__enter__()

    def close(self, number: int) -> None:
        """Close a sandbox."""
        manager, _ = self._sandboxes.pop(number)
        for kept in (self._handles, self._registrations):
            for key in [key for key in kept if key[0] == number]:
                del kept[key]
        manager.__exit__(None, None, None)

    def know(self, number: int, index: int, registration: Registration) -> None:
        """Remember a registration of a sandbox by its number."""
        self._registrations[number, index] = registration

    def register(self, number: int, index: int, handle: int) -> None:
        """Make a registration, and store its handle under this number."""
        self._handles[number, handle] = self._sandboxes[number][1].register(self._registrations[number, index])

    def release(self, number: int, handle: int) -> None:
        """Release the handle with this number."""
        self._handles.pop((number, handle)).release()

    def snapshot(self, number: int, operator: OperatorName) -> Snapshot:
        """Return the present snapshot of an operator."""
        return self._sandboxes[number][1].snapshot(operator)

    def violations(self, number: int, operator: OperatorName) -> tuple[Violation, ...]:
        """Return the invariants that do not hold for an operator."""
        return self._sandboxes[number][1].violations(operator)

    def run(
        self,
        function: str,
        registrations: tuple[Registration, ...],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> object:
        """Call a function with an engine of this process, and pass its progress on."""
        from dispatchlab.live.sandbox.sandbox import LocalEngine

        return resolve_name(function)(
            LocalEngine(registrations, **self._options),
            *arguments,
            **options,
            progress=self._report,
        )

    def call(self, function: str, arguments: tuple[Any, ...]) -> object:
        """Call a function."""
        return resolve_name(function)(*arguments)


def load_extension(path: Path) -> Any:
    """Import an extension module from its file."""
    name = path.name.split(".", 1)[0]
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class _Interrupts:
    """Ctrl-C reaches the whole process group, but only an interrupt from the parent counts, so that it gets a reply."""

    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGINT, self._arrived)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which `timeout` sends to the whole group as well

    def request(self) -> None:
        self.wanted = True
        signal.raise_signal(signal.SIGINT)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            self.wanted = False
            raise KeyboardInterrupt


def _read(stream: IO[bytes], requests: SimpleQueue[bytes], interrupts: _Interrupts) -> None:
    while True:
        try:
            request = receive_bytes(stream)
        except (EOFError, OSError):
            os._exit(0)
        if request:
            requests.put(request)
        else:
            interrupts.request()


def main() -> None:
    """Serve until the input ends."""
    inward, outward = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    if hasattr(os, "register_at_fork"):  # what a kernel forks may live longer, and would keep the parent waiting
        os.register_at_fork(after_in_child=outward.raw.close)
    faulthandler.enable(2)
    interrupts = _Interrupts()
    requests: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_read, args=(inward, requests, interrupts), daemon=True).start()
    worker = Worker(lambda value: send(outward, ("progress", value)))
    report_imports(lambda package: send(outward, ("importing", package)))
    reply = partial(send, outward)
    while True:
        try:
            name, arguments = pickle.loads(requests.get())  # which imports what a kernel names, so it may fail
            result = getattr(worker, name)(*arguments)
        except BaseException as error:
            reply(("raised", portable(error)))
        else:
            reply(("done", result))


if __name__ == "__main__":
    main()
