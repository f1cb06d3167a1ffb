"""The process that runs the program: it watches the program, and if it fails, finds the cause.

python -m dispatchlab.questions.why.child ANSWER_FILE PROGRAM [ARGS]
python -m dispatchlab.questions.why.child ANSWER_FILE -m MODULE [ARGS]
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import format_exception

from dispatchlab.live.failure.program_watch import CHILDREN, ProgramWatch, events_in_children
from dispatchlab.live.failure.torch_watch import after, start
from dispatchlab.model.failure import Fix, Trial
from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.questions.why.exception import UNTRIED, why_exception
from dispatchlab.views.formatting import counted

_REPEATED = re.compile(r"((?:  File .*\n(?:    .*\n)*){1,9}?)\1{3,}")  # frames of a traceback, as of a recursion
_AGAIN_S = 300
_TRIED = ("WHY403", "WHY431", "WHY510", "WHY524")  # what only trials find
_AGAIN = """\
{}
import runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main(arguments: Sequence[str]) -> int:
    """Run a program, and if it fails, write the answer to a file."""
    answer_file, *rest = arguments
    faulthandler.enable()  # a crash prints where Python was
    watch = ProgramWatch(os.getcwd())
    start(watch)
    for stream in (sys.stdout, sys.stderr):
        after(stream, "write", lambda *_: setattr(watch, "shown", sys.exc_info()[1] or watch.shown))
    _explain_threads(Path(answer_file), watch, rest)
    try:
        _run(rest)
        sys.exit(0)
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:
        error = ended.__context__ or watch.shown or ended if ended.code else _warning(watch)
        answer = _answer(error, watch, rest) if error and "torch" in sys.modules else None
        known = answer is not None and (answer.code in _TRIED or str(error) != UNTRIED)
        if answer and known and answer.code not in ("", "WHY919") and (ended.code or answer.dispatcher):
            line = "" if "UserWarning: an operator " in answer.error else answer.error
            Path(answer_file).write_bytes(pickle.dumps(replace(answer, failed=bool(ended.code), error=line)))
        raise
    except BaseException as error:
        _show(error)
        Path(answer_file).write_bytes(pickle.dumps(_answer(error, watch, rest)))
        return 1


def _warning(watch: ProgramWatch) -> BaseException | None:
    """Return what a program that ended well passes over: a lost gradient, a kernel against its schema, an exception."""
    details = (event.detail for event in watch.events if event.kind == "warning")
    texts = [text for text in details if "kernel was not registered to the Autograd" in text]
    texts += ["an operator wrote an undeclared argument" for event in watch.events if event.kind == "wrote undeclared"]
    texts += ["an operator returned None" for event in watch.events if event.detail.startswith("NoneType\n")]
    at = watch.shown.__traceback__ if watch.shown else None  # its outermost frame is the one that caught it
    caught = watch.shown if at is not None and watch.is_users(at.tb_frame.f_code.co_filename) else None
    untried = any(event.kind in ("custom_op", "impl", "function") for event in watch.events)
    return UserWarning(texts[0]) if texts else caught or (UserWarning(UNTRIED) if untried else None)


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


def _explain_threads(answer_file: Path, watch: ProgramWatch, program: Sequence[str]) -> None:
    """Write the answer for the first thread that fails; the program goes on."""
    show, lock = threading.excepthook, threading.Lock()

    def in_thread(failed: threading.ExceptHookArgs) -> None:
        show(failed)
        with lock:
            if isinstance(failed.exc_value, Exception) and not answer_file.exists():
                answer_file.write_bytes(pickle.dumps(_answer(failed.exc_value, watch, program)))

    threading.excepthook = in_thread


def _show(error: BaseException) -> None:
    """Print a traceback as Python does without this module."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        at = at.tb_next
    sys.stderr.write(_REPEATED.sub(_once, "".join(format_exception(type(error), error, at))))
    sys.stderr.flush()


def _once(repeated: re.Match[str]) -> str:
    frames, times = counted(repeated[1].count("  File "), "frame"), len(repeated[0]) // len(repeated[1]) - 1
    return f"{repeated[1]}  [Previous {frames} repeated {times} more times]\n"


def _answer(error: BaseException, watch: ProgramWatch, program: Sequence[str]) -> Answer:
    later = events_in_children(watch, os.environ.get(CHILDREN, ""))
    return why_exception(error, watch, later=later, again=partial(_run_again, program=program))


def _run_again(fix: Fix, program: Sequence[str]) -> Trial:
    """Run the program again in a new process, after the statements of a fix."""
    environment = {name: value for name, value in os.environ.items() if name != CHILDREN}
    command = [sys.executable, "-c", _AGAIN.format(fix.again), *program]
    with suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_AGAIN_S, check=False)
        return Trial(fix, "fails" if done.returncode else "works")
    return Trial(fix, "not tried")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code) if code else sys.exit(0)
