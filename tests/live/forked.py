"""Programs in copies of one process that has imported PyTorch, which takes most of the time of a record.

A program and the workers of its live engines are processes of their own, as ever. They begin as copies of one that has
imported PyTorch, and what any command and any worker imports.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.live.forked_client import ask
from tests.live.forked_work import end_with


class WorkerCopy:
    """A worker that is a copy of this process, in the place of `subprocess.Popen`.

    Args:
        errors: its standard error.
    """

    def __init__(self, errors: IO[bytes]) -> None:
        (their_input, ours), (answers, their_output) = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            for end in (ours, answers):
                os.close(end)
            _serve(their_input, their_output, errors.fileno())
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


def _serve(inward: int, outward: int, errors: int) -> NoReturn:
    from dispatchlab.live.bridge.torch import forget_import_listeners
    from dispatchlab.live.worker.main import main

    try:
        os.setpgid(0, 0)
        for theirs, number in ((inward, 0), (outward, 1), (errors, 2)):
            os.dup2(theirs, number)
        for each in (inward, outward):  # else what a kernel forks, and lives longer, would keep them
            os.close(each)
        os.environ["DISPATCHLAB_NO_MEASURE"] = "1"
        sys.argv = ["-c"]
        forget_import_listeners()
        main()
    finally:
        os._exit(1)


def _started(journal: object, errors: IO[bytes]) -> WorkerCopy:
    return WorkerCopy(errors)


def _run(request: Mapping[str, Any]) -> int:
    """Run a program in this copy of the process; returns its exit code."""
    from dispatchlab.live.worker import process

    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = [*request["path"], *os.environ["PYTHONPATH"].split(os.pathsep)]
    sys.argv = ["-c", *request["arguments"]]
    vars(process)["_started"] = _started
    code: object = 0
    try:
        exec(request["program"], {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    return code if isinstance(code, int) else int(code is not None)


def _answer(listening: socket.socket, asking: socket.socket) -> None:
    """Run what is asked for in a copy of this copy, which has the streams of who asks, and say how it ended."""
    listening.close()
    _, streams, _, _ = socket.recv_fds(asking, 1, 3)
    with asking.makefile() as lines:
        request = json.loads(lines.readline())
    child = os.fork()
    if not child:
        asking.close()
        for number, (stream, name) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), strict=True)):
            os.dup2(stream, number)
            os.close(stream)
            # Those of the copied process know whether they can seek, which these may do otherwise.
            made = os.fdopen(number, "w" if number else "r", 1 if number else -1, encoding="utf-8", closefd=False)
            vars(sys).update({name: made, f"__{name}__": made})
        end_with(partial(_run, request))
    asking.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def serve(*modules: str) -> None:
    """Import modules, say at which address programs are asked for, and run them until standard input ends."""
    import dispatchlab.cli
    import dispatchlab.commands.output
    import dispatchlab.live.worker.main  # noqa: F401
    from dispatchlab.live.bridge.torch import bindings

    bindings()
    for name in modules:
        import_module(name)
    # The folder is of this process: a copy of one that asks may forget what that does at its end, and take it away.
    with tempfile.TemporaryDirectory(prefix="forked-") as folder, socket.socket(socket.AF_UNIX) as listening:
        for each in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # nor are they to end what is of PyTorch
            each.atexit = False
        gc.collect()
        gc.freeze()
        address = str(Path(folder) / "socket")
        listening.bind(address)
        listening.listen()
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            asking, _ = listening.accept()
            if not os.fork():
                end_with(partial(_answer, listening, asking))
            asking.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


@cache
def address_of(having: tuple[str, ...] = ()) -> str:
    """Where a process listens that has imported PyTorch and these modules; it ends with this one."""
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from tests.live.forked import serve; serve(*{having!r})"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    address = server.stdout.readline().rstrip("\n")
    assert address, "the process that imports PyTorch ended"
    atexit.register(server.communicate)
    return address


COMPILERS = (
    "torch._inductor.compile_fx",
    "torch.distributed.tensor",
    "torch.export",
    "torch.testing._internal.common_methods_invocations",
    "torch.testing._internal.optests",
)
"""What compares operators under compilers imports these sooner or later."""


def python(
    *line: str,
    folder: Path,
    environment: Mapping[str, str],
    having: tuple[str, ...] = (),
    path: tuple[str, ...] = ("",),
) -> subprocess.CompletedProcess[str]:
    """Run what a command line of Python names: `-c` and a program, `-m` and a module, or a file.

    Args:
        line: the command line.
        folder: where it runs.
        environment: all of its environment variables, PYTHONPATH among them.
        having: modules that it may find imported.
        path: what is on the path before PYTHONPATH.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr, open(os.devnull) as stdin:
        streams = [each.fileno() for each in (stdin, stdout, stderr)]
        code = ask(address_of(having), line, streams, folder=str(folder), environment=environment, path=path)
        for each in (stdout, stderr):
            each.seek(0)
        return subprocess.CompletedProcess(line, code, stdout.read(), stderr.read())


def module(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of these tests that compares what runs in PyTorch, and imports most of it."""
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    return python("-m", name, *arguments, folder=root, environment=environment, having=COMPILERS)


def run(
    program: str, *arguments: str, folder: Path, environment: Mapping[str, str], having: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program by its source; the rest as `python`."""
    return python("-c", program, *arguments, folder=folder, environment=environment, having=having)
