"""Run a Python file as a program, as `python FILE.py` would."""

from __future__ import annotations

import ast
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType

from dispatchlab.errors import RequestError
from dispatchlab.files import FileKind, OtherFileError, ReadError, content_of, read_file

MAX_BYTES = 16 * 2**20
"""Larger programs are refused unread."""

_OURS = str(Path(__file__).parents[2] / "_")[:-1]


@dataclass(frozen=True, slots=True)
class Program:
    """A file and its content."""

    path: str
    source: bytes

    @property
    def imports_torch(self) -> bool:
        """True if a line of the program imports PyTorch."""
        try:
            nodes = [*ast.walk(ast.parse(self.source))]
        except (SyntaxError, ValueError):
            return False
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
        return "torch" in {name.partition(".")[0] for name in names}


def program_at(path: str) -> Program:
    """Read a program.

    Raises:
        RequestError: there is no such file, or it cannot be read.
        OtherFileError: it is another file of dispatchlab.
    """
    content = content_of(path)
    if content is not None and content.kind not in (FileKind.PROGRAM, FileKind.GENERATED):
        raise OtherFileError(path, content, (FileKind.PROGRAM,))
    try:
        return Program(path, read_file(path, limit=MAX_BYTES, what="programs"))
    except (ReadError, OSError) as error:
        reason = error.reason if isinstance(error, ReadError) else error.strerror or str(error)
        raise RequestError(f"{path} cannot be read: {reason}; name a Python file to run") from error


def run_program(
    program: Program, arguments: Sequence[str] = (), *, report: Callable[[str], None], died: Callable[[str], None]
) -> int:
    """Run a program as `__main__` in this process, and wait for the threads that it starts.

    Args:
        program: the program.
        arguments: its `sys.argv[1:]`.
        report: a function that gets the text that Python would print on standard error for an uncaught error.
        died: a function that gets the name of a signal that ends the process, such as SIGABRT, before the process ends.

    Returns:
        0, the exit code of the program, 1 if it raised an exception, or 130 if it was interrupted.
    """
    process = os.getpid()
    stack = ExitStack()

    def ended(name: str) -> None:
        if os.getpid() == process:
            stack.close()
            died(name)

    with _before_death(ended), stack:
        stack.enter_context(_stdout_on_stderr())
        main = stack.enter_context(_as_main(program, arguments))
        try:
            exec(compile(program.source, program.path, "exec"), main.__dict__)
            _wait_for_threads()
        except SystemExit as asked:
            return _exit_code(asked, report)
        except KeyboardInterrupt:
            report("interrupted: the trace has the calls so far")
            return 130
        except BaseException as error:
            report(error_text(error).rstrip("\n"))
            return 1
        finally:
            if os.getpid() != process:  # a fork of the program has come to the program's end
                sys.stderr.flush()
                os._exit(0)
    return 0


_PATIENCE_S = 30.0
_DEADLY = (signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)


@contextmanager
def _before_death(ended: Callable[[str], None]) -> Iterator[None]:
    """Call a function before a signal of an error in C++ ends the process.

    Python's own handlers do not run then, since no Python code runs any more: this one is a handler in C, which calls
    Python. It cannot run after an overflow of the stack.
    """
    if sys.platform == "win32":
        yield
        return
    c = ctypes.CDLL(None)
    c.signal.restype = ctypes.c_void_p

    first = threading.Lock()

    def before_end(number: int) -> None:
        if first.acquire(timeout=_PATIENCE_S):  # else another thread of a kernel has failed too, and does this
            ended(signal.Signals(number).name)
        restore()
        signal.raise_signal(number)

    def restore() -> None:
        for number, earlier in before:
            c.signal(int(number), ctypes.c_void_p(earlier))

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(before_end)
    before = [(number, c.signal(int(number), handler)) for number in _DEADLY]
    try:
        yield
    finally:
        restore()


@contextmanager
def _as_main(program: Program, arguments: Sequence[str]) -> Iterator[ModuleType]:
    main = ModuleType("__main__")
    main.__file__ = program.path
    before = sys.modules["__main__"], sys.argv, sys.path
    sys.modules["__main__"], sys.argv = main, [program.path, *arguments]
    sys.path = [str(Path(program.path).resolve().parent), *sys.path]
    try:
        yield main
    finally:
        sys.modules["__main__"], sys.argv, sys.path = before


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """Send the output of the program, its libraries and its children to standard error."""
    try:
        out, error = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # there are no descriptors behind them
        with redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    kept = os.dup(out)
    try:
        os.dup2(error, out)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, out)
        os.close(kept)


def _wait_for_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread() and thread is not threading.main_thread():
            thread.join()


def _exit_code(asked: SystemExit, report: Callable[[str], None]) -> int:
    if asked.code is None:
        return 0
    if isinstance(asked.code, int):
        return asked.code
    report(str(asked.code))
    return 1


def error_text(error: BaseException) -> str:
    """Return Python's text for an uncaught error, without the frames of this package."""
    shown = TracebackException.from_exception(error)
    _shorten(shown)
    return "".join(shown.format() if shown.stack else shown.format_exception_only())


def _shorten(shown: TracebackException) -> None:
    kept = [frame for frame in shown.stack if not frame.filename.startswith(_OURS)]
    shown.stack = StackSummary.from_list(kept)
    for cause in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if cause is not None:
            _shorten(cause)
