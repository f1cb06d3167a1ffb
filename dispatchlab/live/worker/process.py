"""A worker process in its parent: start it, send requests, and always end it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from threading import Timer
from time import monotonic, sleep
from typing import IO, Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.torch import ImportEndedError, ImportTimeoutError
from dispatchlab.live.sandbox.journal import Journal
from dispatchlab.live.worker.ipc import interrupt, receive, send
from dispatchlab.model.sequence import StepSequence
from dispatchlab.processes import kill_group
from dispatchlab.prover.protocol import EngineCrashed

IMPORT_LIMIT = "DISPATCHLAB_IMPORT_LIMIT"
"""The environment variable that says how many seconds a package may take to be imported; 300 without it."""

# The worker runs this very package, also from a checkout that is not installed. Its folder is on the path for this one
# import: it would have the user's modules, or those of Python, shadowed by what lies beside or in the package.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import dispatchlab; del sys.path[0]; "
    "from dispatchlab.live.worker.main import main; main()"
)
_GRACE_S = 5.0
_STOP_S = 1.25  # for what was covered when Ctrl-C came
_LOOK_EVERY_S = 0.01
_LAST_LINES = 3
_FATAL, _DYING_THREAD = "Fatal Python error: ", "Current thread "
_FRAME = re.compile(r'  File "(.+)", line (\d+) in ')


def import_limit() -> float:
    """Return the time limit for the import of a package, in seconds."""
    try:
        return float(os.environ.get(IMPORT_LIMIT, "")) or 300.0
    except ValueError:
        return 300.0


class WorkerCrashed(EngineCrashed):
    """The worker process died.

    Args:
        text: how it died, as a sentence.
        sequence: the steps of the current sandbox, oldest first.
    """

    sequence: StepSequence = ()


class WorkerProcess:
    """One worker, alive from the first request until `end`.

    Args:
        imports: modules to import after torch.
        native: the file of an extension with C++ kernels.
    """

    def __init__(self, *, imports: tuple[str, ...], native: Path | None) -> None:
        self._journal = Journal.create()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `_end`
        self._process = _started(self._journal, self._errors)
        self._finalizer = weakref.finalize(self, _end, self._process, self._journal, self._errors)
        self._crash: DispatchLabError | None = None
        self._importing: str | None = None
        self._limit_s = import_limit()
        self._import_timer: Timer | None = None
        self._import_timed_out = False
        self._is_interrupted = False
        path = tuple(entry or os.getcwd() for entry in sys.path)
        start = (self._journal.file, path, imports, None if native is None else str(native))
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
        """True if the worker can reply."""
        return self._finalizer.alive and self._process.poll() is None

    def ask(self, name: str, *arguments: object, progress: Callable[[Any], None] | None = None) -> object:
        """Send a request and wait for the reply.

        Raises:
            WorkerCrashed: the worker died during the request.
            ImportEndedError: it died while it imported a package.
            ImportTimeoutError: it was ended because it took too long to import a package.
            DispatchLabError: the worker raised it.
            KeyboardInterrupt: Ctrl-C; it has the worker's results so far if the worker replies in time.
        """
        if self._is_interrupted:  # what was asked then was answered in time, and nothing more is asked
            raise KeyboardInterrupt
        try:
            send(self._stdin, (name, arguments))
            return self._answer(progress)
        except (EOFError, OSError):
            raise self.crash() from None
        except KeyboardInterrupt:
            return self._interrupted()
        finally:
            self._watch_import(None)

    def end(self) -> None:
        """End the worker now; harmless if it has ended."""
        self._finalizer()

    def kill(self) -> None:
        """Kill the worker and its children, from any thread; a waiting caller gets a `WorkerCrashed`."""
        _kill(self._process)

    def crash(self) -> DispatchLabError:
        """Return the cause of the worker's death, as `ask` raises it; call this when the worker is dead or dying."""
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
            if kind == "importing":
                assert value is None or isinstance(value, str)
                self._watch_import(value)
            elif progress is not None:
                progress(value)

    def _watch_import(self, package: str | None) -> None:
        """Note that this package is being imported, and end the worker if the import takes too long."""
        if self._import_timer is not None:
            self._import_timer.cancel()
            self._import_timer = None
        self._importing = package
        if package is not None:
            self._import_timer = Timer(self._limit_s, self._stop_import)
            self._import_timer.daemon = True
            self._import_timer.start()

    def _stop_import(self) -> None:
        self._import_timed_out = True
        self.kill()

    def _interrupted(self) -> object:
        """Pass Ctrl-C on, give the worker some time to reply with its result so far, then end it."""
        self._is_interrupted = True
        if self._importing is not None:
            self.end()  # nothing was found yet that it could answer with
            raise KeyboardInterrupt
        late = Timer(_STOP_S, self.kill)
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

    def _autopsy(self) -> DispatchLabError:
        if not self._finalizer.alive:
            return WorkerCrashed("the process that runs PyTorch was ended")
        if self._importing is not None and self._import_timed_out:
            self.end()
            return ImportTimeoutError(self._importing, self._limit_s)
        self._let_end()
        self.kill()
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        sequence, older = self._journal.sequence()
        end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        how = f"with {end}{_where(lines, self._importing)}{_last_output(lines)}"
        self.end()
        if self._importing is not None:
            return ImportEndedError(self._importing, f"ended its process {how}")
        more = f"; {older} earlier steps of its sequence were not kept" if older else ""
        return WorkerCrashed(f"the process that ran PyTorch ended {how}{more}", sequence)

    def _let_end(self) -> None:
        """Give the worker time to end after its output was closed; its children stay in its process group."""
        if not hasattr(os, "waitid"):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
            return
        until = monotonic() + _GRACE_S
        while self._process.returncode is None and monotonic() < until:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            sleep(_LOOK_EVERY_S)


def _where(lines: Sequence[str], package: str | None) -> str:
    """Return the Python line at which a process died, preferably of a package; None if no line was written."""
    words = _last_words(lines)
    at = next((at for at, line in enumerate(words) if line.startswith(_DYING_THREAD)), len(words))
    frames = [frame.groups() for line in takewhile(_FRAME.match, words[at + 1 :]) if (frame := _FRAME.match(line))]
    frames = [(file, line) for file, line in frames if not file.startswith("<frozen ")]
    top = "" if package is None else package.partition(".")[0]
    inside = [(file, line) for file, line in frames if top in Path(file).with_suffix("").parts]
    return next((f" at {file}:{line}" for file, line in (*inside, *frames)), "")


def _last_output(lines: Sequence[str]) -> str:
    """Return the last lines that a process wrote before it died, without those about its death."""
    written = lines[: len(lines) - len(_last_words(lines))]
    what = [line.partition("what():")[2].strip() for line in written if "what():" in line]  # as an error of C++ ends
    written = what[-1:] or written[-_LAST_LINES:]
    return f"; its last output: {' / '.join(written)}" if written else ""


def _last_words(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines that Python's faulthandler writes when a process dies."""
    at = next((at for at, line in enumerate(lines) if line.startswith(_FATAL)), len(lines))
    return lines[at:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and its children. The system does not reuse its number before `wait`."""
    if process.returncode is None:
        kill_group(process.pid)
        process.kill()


def _started(journal: Journal, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Return a new worker in its own process group, which Ctrl-C does not reach."""
    command = [sys.executable, "-P", "-c", _BOOT, str(Path(__file__).parents[3])]
    pipe = subprocess.PIPE
    if os.name != "posix":
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors)
    handed = [journal.file] if isinstance(journal.file, int) else []
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, pass_fds=handed, process_group=0)


def _end(process: subprocess.Popen[bytes], journal: Journal, errors: IO[bytes]) -> None:
    _kill(process)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    errors.close()
    journal.close()
