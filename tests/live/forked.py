"""Programs in copies of one process that has imported PyTorch, which takes most of the time of a record.

A program and the workers of its live engines are processes of their own, as ever. They begin as copies of one that has
imported PyTorch, and what any command and any worker imports.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.live.forked_work import end_with


class WorkerCopy:
    """A worker that is a copy of this process, in the place of `subprocess.Popen`.

    Args:
        errors: its standard error.
        lifeline: both ends of its lifeline.
    """

    def __init__(self, errors: IO[bytes], lifeline: tuple[int, int]) -> None:
        (their_input, ours), (answers, their_output) = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            for end in (ours, answers, lifeline[1]):
                os.close(end)
            _serve(their_input, their_output, errors.fileno(), lifeline[0])
        os.close(their_input)
        os.close(their_output)
        self.stdin, self.stdout = os.fdopen(ours, "wb"), os.fdopen(answers, "rb")

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self._waited(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """Kill it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _waited(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _serve(inward: int, outward: int, errors: int, lifeline: int) -> NoReturn:
    from dispatchlab.pytorch.bridge.torch import forget_import_listeners
    from dispatchlab.pytorch.worker.main import main

    try:
        os.setpgid(0, 0)
        for theirs, number in ((inward, 0), (outward, 1), (errors, 2)):
            os.dup2(theirs, number)
        os.environ["DISPATCHLAB_NO_MEASURE"] = "1"
        sys.argv = ["-c", str(lifeline)]
        forget_import_listeners()
        main()
    finally:
        os._exit(1)


def _started(journal: object, errors: IO[bytes]) -> tuple[WorkerCopy, int]:
    lifeline = os.pipe()
    try:
        return WorkerCopy(errors, lifeline), lifeline[1]
    finally:
        os.close(lifeline[0])


def _run(request: Mapping[str, Any]) -> int:
    """Run a program in this copy of the process; returns its exit code."""
    from dispatchlab.pytorch.worker import process

    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        file = os.open(request[name], os.O_RDWR)
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = ["", *os.environ["PYTHONPATH"].split(os.pathsep)]
    sys.argv = ["-c", *request["arguments"]]
    vars(process)["_started"] = _started
    code: object = 0
    try:
        exec(request["program"], {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    return code if isinstance(code, int) else int(code is not None)


def serve() -> None:
    """Run the programs of the requests, one a line, and answer each with its exit code."""
    import dispatchlab.cli
    import dispatchlab.commands.output
    import dispatchlab.pytorch.worker.main  # noqa: F401
    from dispatchlab.pytorch.bridge.torch import bindings

    bindings()
    for each in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # what PyTorch does at its end is not theirs
        each.atexit = False
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if not child:
            end_with(partial(_run, json.loads(line)))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", "from tests.live.forked import serve; serve()"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)
    return server


def run(
    program: str, *arguments: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program.

    Args:
        program: its source.
        arguments: its command line.
        folder: where it runs.
        environment: all of its environment variables, PYTHONPATH among them.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
        request = {
            "program": program,
            "arguments": arguments,
            "folder": str(folder),
            "environment": dict(environment),
            "stdin": os.devnull,
            "stdout": stdout.name,
            "stderr": stderr.name,
        }
        server.stdin.write(f"{json.dumps(request)}\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())
