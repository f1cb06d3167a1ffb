"""Look up the functions that a scenario names, in a separate process, because a module may end its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from dispatchlab.errors import RegistrationError
from dispatchlab.escape import output_of_imports
from dispatchlab.model.infer_schema import infer_schema
from dispatchlab.processes import kill_group
from dispatchlab.scenario.yaml_fields import did_you_mean

_SERVE: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from dispatchlab.scenario.named_functions import _serve; _serve()"
)


class NamedFunction(NamedTuple):
    """The facts about a function that was looked up.

    Args:
        wrong: why there is no such function; empty if there is one.
        hint: what to do about it.
        column: the index in the reference that is wrong.
        schema: the schema of its annotations, such as `(Tensor x) -> Tensor`; empty without one.
        no_schema: why there is no schema.
    """

    wrong: str = ""
    hint: str = ""
    column: int = 0
    schema: str = ""
    no_schema: str = ""


class NamedFunctions:
    """A process that looks functions up; it starts with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._found: dict[str, NamedFunction] = {}

    def find(self, reference: str) -> NamedFunction:
        """Import the module of `package.module:function` in the process, and look at the function.

        Returns:
            The facts about it. If the module ended the process, this is the problem.
        """
        if reference not in self._found:
            self._found[reference] = self._asked(reference)
        return self._found[reference]

    def _asked(self, reference: str) -> NamedFunction:
        if self._process is None:
            command = [sys.executable, "-c", _SERVE, *sys.path]
            own_group = None if sys.platform == "win32" else 0  # a Ctrl-C is for this process
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=own_group
            )
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        with suppress(BrokenPipeError):
            asked.write(json.dumps(reference).encode() + b"\n")
            asked.flush()
        answer = answers.readline()
        if answer:
            return NamedFunction(*json.loads(answer))
        code = self._process.wait()
        self.close()
        how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        module = reference.partition(":")[0]
        return NamedFunction(
            f"importing {module} ended its process {how}; run `python -c 'import {module}'` to see what it does"
        )

    def close(self) -> None:
        """End the process and its children."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.returncode is None:
            kill_group(process.pid)
            process.kill()
        process.communicate()


def _serve() -> None:
    """Reply to requests until the pipe closes; the output of modules goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        asked: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=_read, args=(asked,), daemon=True).start()
        while True:
            found = _found(*json.loads(asked.get()).split(":"))
            answers.write(json.dumps(found).encode() + b"\n")
            answers.flush()


def _read(asked: SimpleQueue[bytes]) -> None:
    """Read requests, and end with the asking process, also in the middle of an import."""
    while line := sys.stdin.buffer.readline():
        asked.put(line)
    os._exit(0)


def _found(module: str, path: str) -> NamedFunction:
    try:
        with output_of_imports():
            value: object = import_module(module)
    except (Exception, SystemExit) as error:
        return NamedFunction(f"importing {module} failed with {' '.join(f'{type(error).__name__}: {error}'.split())}")
    column = len(module) + 1
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except Exception:
            return NamedFunction(f"{module} has no {path}", did_you_mean(name, dir(value)), column)
    if not callable(value):
        wrong = f"expected a function but {module}:{path} is of type {type(value).__name__}"
        return NamedFunction(wrong, column=column)
    try:
        return NamedFunction(schema=str(infer_schema(value)))
    except RegistrationError as error:
        return NamedFunction(no_schema=error.message)
