"""The process that runs the program: it watches, and when the program fails it finds the cause before it ends.

python -m dispatchlab.questions.why.child ANSWER_FILE PROGRAM [ARGS]
python -m dispatchlab.questions.why.child ANSWER_FILE -m MODULE [ARGS]
python -m dispatchlab.questions.why.child ANSWER_FILE --text FILE
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import runpy
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import print_exception

from dispatchlab.live.failure.operator_facts import InstalledRegistry
from dispatchlab.live.failure.program_watch import CHILDREN, ProgramWatch, events_in_children, left_events
from dispatchlab.live.failure.torch_watch import start
from dispatchlab.model.failure import Event
from dispatchlab.questions.why.diagnose import Answer, diagnose
from dispatchlab.questions.why.exception import why_exception
from dispatchlab.questions.why.pasted_traceback import failure_of_text

_CACHES_S = 120


def main(arguments: Sequence[str]) -> int:
    """Run a program, and leave the answer in a file where it fails."""
    answer_file, *rest = arguments
    if rest[0] == "--text":
        with suppress(ImportError):  # a traceback is read without PyTorch, too
            import_module("torch")
        text = Path(rest[1]).read_text(encoding="utf-8", errors="replace")
        events = left_events(os.environ.get(CHILDREN, ""))
        return _leave(answer_file, diagnose(failure_of_text(text, InstalledRegistry(), events)))
    faulthandler.enable()  # a crash prints where Python was
    watch = ProgramWatch(os.getcwd())
    start(watch)
    try:
        _run(rest)
    except SystemExit as ended:
        return _code(ended)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        _show(error)
        return _leave(answer_file, _answer(error, watch, rest))
    return 0


def _run(program: Sequence[str]) -> None:
    if program[0] == "-m":
        sys.argv = list(program[1:])
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        return
    path = str(Path(program[0]).resolve())
    sys.argv = list(program)
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def _show(error: BaseException) -> None:
    """Print a traceback as Python does for the program alone."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        at = at.tb_next
    print_exception(type(error), error, at)
    sys.stderr.flush()


def _code(ended: SystemExit) -> int:
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _answer(error: BaseException, watch: ProgramWatch, program: Sequence[str]) -> Answer:
    later = [*events_in_children(watch, os.environ.get(CHILDREN, ""))]
    source = ""
    with suppress(OSError):
        source = Path(program[0]).read_text(encoding="utf-8", errors="replace")
    answer = why_exception(error, watch, source=source, later=later)
    asserted = isinstance(error, AssertionError) and not str(error).startswith("expected size")
    if asserted and not answer.dispatcher and "torch.compile" in source and program[0] != "-m":
        later += _without_caches(program)
        answer = why_exception(error, watch, source=source, later=later)
    return answer


def _without_caches(program: Sequence[str]) -> list[Event]:
    """Run the program again without the caches of the compiler; where it ends well, they are the cause."""
    environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    environment.pop(CHILDREN, None)
    with suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run(
            [sys.executable, *program], env=environment, capture_output=True, timeout=_CACHES_S, check=False
        )
        if done.returncode == 0:
            return [Event("right without caches", "torch.compile")]
    return []


def _leave(path: str, answer: Answer) -> int:
    Path(path).write_bytes(pickle.dumps(answer))
    return 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code) if code else sys.exit(0)
