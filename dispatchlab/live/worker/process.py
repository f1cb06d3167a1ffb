"""A worker process as its parent sees it: started, queried, and always ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import IO, Any

from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.live.sandbox.journal import Journal
from dispatchlab.live.worker.ipc import interrupt, receive, send
from dispatchlab.model.sequence import StepSequence

_GRACE_S = 5.0
_LAST_LINES = 3


class WorkerCrashed(EngineCrashed):
    """The worker process died.

    Args:
        text: how, a sentence.
        sequence: the steps of the sandbox that it was in, oldest first.
    """

    def __init__(self, text: str, sequence: StepSequence = ()) -> None:
        super().__init__(text)
        self.sequence = sequence

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text, self.sequence)


class WorkerProcess:
    """One worker, alive from the first request until `end`.

    Args:
        imports: modules to import after torch.
        native: the file of an extension with C++ kernels.
        options: of the worker's `LocalEngine`.
    """

    def __init__(self, *, imports: tuple[str, ...], native: Path | None, options: Mapping[str, object]) -> None:
        self._journal = Journal.create()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `_end`
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dispatchlab.live.worker.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(),
        )
        self._finalizer = weakref.finalize(self, _end, self._process, self._journal, self._errors)
        self._crash: WorkerCrashed | None = None
        path = tuple(entry or os.getcwd() for entry in sys.path)
        start = (str(self._journal.path), path, imports, None if native is None else str(native), dict(options))
        try:
            self.version = str(self.ask("start", *start))
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can answer queries."""
        return self._finalizer.alive and self._process.poll() is None

    def ask(self, name: str, *arguments: object, progress: Callable[[Any], None] | None = None) -> object:
        """Ask and wait for the answer.

        Raises:
            WorkerCrashed: the worker died over it.
            DispatchLabError: whatever the worker raised.
            KeyboardInterrupt: Ctrl-C; the worker's own, with what it has, when it answers in time.
        """
        try:
            send(self._stdin, (name, arguments))
            return self._answer(progress)
        except (EOFError, OSError):
            raise self.crash() from None
        except KeyboardInterrupt:
            return self._interrupted()

    def end(self) -> None:
        """End it now; harmless when it has ended."""
        self._finalizer()

    def crash(self) -> WorkerCrashed:
        """Why the worker died; it has died or is about to."""
        if self._crash is None:
            self._crash = self._autopsy()
        return self._crash

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _answer(self, progress: Callable[[Any], None] | None) -> object:
        assert self._process.stdout is not None
        while True:
            message = receive(self._process.stdout)
            assert isinstance(message, tuple)
            kind, value = message
            if kind == "done":
                return value
            if kind == "raised":
                assert isinstance(value, BaseException)
                raise value
            if progress is not None:
                progress(value)

    def _interrupted(self) -> object:
        """Pass Ctrl-C on, and give the worker a while to answer with what it has; then end it in any case."""
        late = Timer(_GRACE_S, self._process.kill)
        late.daemon = True
        late.start()
        try:
            interrupt(self._stdin)
            return self._answer(None)
        except KeyboardInterrupt:
            raise
        except Exception:
            # NB: a read that Ctrl-C cut in half can leave anything in the pipe.
            raise KeyboardInterrupt from None
        finally:
            late.cancel()
            self.end()

    def _autopsy(self) -> WorkerCrashed:
        if not self._finalizer.alive:
            return WorkerCrashed("the process that runs PyTorch was ended")
        if not self._ends():
            self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        sequence, older = self._journal.sequence()
        end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = f"; its last output: {' / '.join(lines[-_LAST_LINES:])}" if lines else ""
        more = f"; {older} earlier steps of its sequence were not kept" if older else ""
        self.end()
        return WorkerCrashed(f"the process that ran PyTorch ended with {end}{last}{more}", sequence)

    def _ends(self) -> bool:
        """Whether it ends by itself, now that its output is closed."""
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return False
        return True


def _environment() -> dict[str, str]:
    """The environment of this process, with this package where Python finds it."""
    here = str(Path(__file__).parents[2])
    paths = [here, *(entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _end(process: subprocess.Popen[bytes], journal: Journal, errors: IO[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    errors.close()
    journal.close(remove=True)
