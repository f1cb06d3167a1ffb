"""Run a program in a new process, and return why it failed."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Final

from dispatchlab.errors import RequestError
from dispatchlab.live.failure.operator_facts import InstalledRegistry
from dispatchlab.live.failure.program_watch import CHILDREN, left_events
from dispatchlab.model.failure import Fix, Registry, Trial
from dispatchlab.model.installed_torch import installed_torch
from dispatchlab.model.quoted_text import tracebacks, unquoted, unwrapped
from dispatchlab.questions.why.diagnose import Answer, diagnose
from dispatchlab.questions.why.pasted_traceback import RecordedFacts, failure_of_text, read_traceback
from dispatchlab.registries.builds import default_registry, has_kernels_for
from dispatchlab.registries.file import open_named
from dispatchlab.views.formatting import counted

NO_PROGRAM: Final = "name a Python file to run, or paste an error message into `dispatchlab why --text -`"
_KEPT_OUTPUT: Final = 200_000
_NEXT: Final = Fix(
    text="paste the whole text, from `Traceback` to the error; or run the program: dispatchlab why PROGRAM.py"
)
_ABOVE: Final = Fix(text="this is the end of PyTorch's message: paste it from the line with `Could not run`")
_RUN: Final = Fix(text="run the program: dispatchlab why PROGRAM.py")
_UNDECIDED: Final = re.compile(r"(?:Assertion|Recursion|Type|Value|Key)Error|AttributeError: (?!module )")
"""Exceptions of a program's own line whose cause may be the dispatcher; only a run of the program shows it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a program.

    Args:
        exit_code: its exit code; negative for a signal.
        answer: why it failed; None if it did not fail.
    """

    exit_code: int
    answer: Answer | None = None


def why_program(program: Sequence[str], *, quiet: bool = False) -> Outcome:
    """Run `PROGRAM.py ARGS` or `-m MODULE ARGS`; its output goes to standard error, or nowhere with `--quiet`.

    Raises:
        RequestError: the file cannot be read.
    """
    if program[0] != "-m" and not Path(program[0]).is_file():
        reason = "it is a folder" if Path(program[0]).is_dir() else "there is no such file"
        raise RequestError(f"{program[0]} cannot be read: {reason}; {NO_PROGRAM}")
    with tempfile.TemporaryDirectory() as folder:
        answer_file, output_file = Path(folder) / "answer", Path(folder) / "output"
        environment = {**os.environ, CHILDREN: str(Path(folder) / "events"), "PYTHONPATH": _python_path(folder)}
        code = _start(
            [sys.executable, "-m", __package__ + ".child", str(answer_file), *program],
            environment,
            output_file,
            quiet=quiet,
        )
        if answer_file.exists():
            return Outcome(code, pickle.loads(answer_file.read_bytes()))
        if code < 0 or code == 134:
            printed = output_file.read_bytes()[-_KEPT_OUTPUT:].decode(errors="replace")
            return Outcome(code, why_text(printed, events=environment[CHILDREN]))
        return Outcome(code)


def why_text(text: str, source: str = "", events: str = "") -> Answer:
    """Return the cause of a traceback.

    Args:
        text: the traceback.
        source: the recorded registry with the operators; default: the installed PyTorch, or without PyTorch, the
            newest bundled registry.
        events: the file with the events of the program that printed it.

    Raises:
        UnknownRegistryError: there is no such registry.
    """
    keys = re.findall(r"from the '(\w+)'", text)
    other = any(not has_kernels_for(installed_torch() or "", (), key) for key in keys)
    if source or find_spec("torch") is None or (other and not events):
        registry: Registry = RecordedFacts(open_named(source or default_registry(keys).name))
    else:
        with suppress(ImportError):  # a traceback is read where PyTorch is broken, too
            import_module("torch")
        registry = InstalledRegistry()
    parts = tracebacks(unquoted(text))
    forms = (form for part in reversed(parts) for form in (part, unwrapped(part)))
    answers = (diagnose(failure_of_text(form, registry, left_events(events))) for form in forms)
    last = next(answers)
    answer = next((each for each in chain([last], answers) if each.code not in ("", "WHY919")), last)
    more = len({raised.line for part in parts for raised in read_traceback(part)[0][:1] if raised.kind}) - 1
    if more > 0:
        answer = replace(answer, evidence=(*answer.evidence, f"and {counted(more, 'more error')} in this text"))
    if answer.code == "WHY919" and not events and _UNDECIDED.match(answer.error):
        asserted = answer.cause.removeprefix("not the dispatcher: ")
        answer = replace(answer, code="", title="no known cause", cause=f"cannot tell from the text: {asserted}")
    fix = _RUN if "Traceback (" in text else _ABOVE if "[backend fallback]\n" in f"{text}\n" else _NEXT
    return answer if answer.code else replace(answer, fixes=(Trial(fix, "not tried"),))


def _start(command: Sequence[str], environment: dict[str, str], output: Path, *, quiet: bool) -> int:
    """Run a command with its output on standard error, or without output if quiet, and keep a copy."""
    with (
        output.open("wb") as kept,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                if not quiet:
                    sys.stderr.buffer.write(line)
                    sys.stderr.flush()
        except KeyboardInterrupt:
            process.terminate()
            raise
        return process.wait()


def _python_path(folder: str) -> str:
    """Return a PYTHONPATH with which Python child processes of the program are also watched."""
    (Path(folder) / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    ours = str(Path(__file__).resolve().parents[3])
    paths = (folder, "" if "site-packages" in ours else ours, os.environ.get("PYTHONPATH"))
    return os.pathsep.join(filter(None, paths))


_SITE: Final = """\
import os, sys
if not getattr(sys, "orig_argv", [])[1:3] == ["-m", "dispatchlab.questions.why.child"]:
    try:
        from dispatchlab.live.failure.program_watch import ProgramWatch
        from dispatchlab.live.failure.torch_watch import start
        start(ProgramWatch(os.getcwd()))
    except Exception:
        pass
"""
