"""`dispatchlab trace`: run a file and show what the operators did."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TextIO

import click

from dispatchlab.commands.options import OPERATOR, ROW, engine_option, refuse, view_format_option
from dispatchlab.commands.output import (
    Format,
    OutputClosed,
    abandon_stdout,
    chosen_format,
    exit_with,
    note,
    save,
    show_view,
    warn,
)
from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import printable
from dispatchlab.files.file_kinds import FileKind, check_output

if TYPE_CHECKING:
    from dispatchlab.call.trace import TracedThread
    from dispatchlab.questions.trace.run_program import Program
    from dispatchlab.sources.engines import EngineName


class TorchProgramError(DispatchLabError):
    """A program of PyTorch was traced as one of the lab."""

    path: str

    template = (
        "{path} called no operator of the lab and imports torch, whose operators the lab engine does not "
        "see: trace them with --engine torch"
    )


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", metavar="FILE.py")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
@engine_option("Whose operators to trace: the lab's, or those of the installed PyTorch.")
@click.option("--sets", is_flag=True, help="Also show the key sets of each call, the guards and the kernels.")
@click.option(
    "--operator",
    "operators",
    metavar="OP",
    multiple=True,
    type=OPERATOR,
    help="Show the calls of this operator only, a name or a glob; may be repeated.",
)
@click.option("--key", "keys", metavar="KEY", multiple=True, type=ROW, help="Show calls to KEY only; may be repeated.")
@click.option("--summary", is_flag=True, help="Show which kernels ran, how often, and for how long.")
@click.option(
    "--perfetto",
    metavar="PATH",
    type=click.Path(),
    help="Write the calls to PATH as well, for https://ui.perfetto.dev or chrome://tracing.",
)
@click.option("--force", is_flag=True, help="Write over whatever is at PATH.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1, max=10**8),
    help="Keep the first N hops, with --engine torch; 160 bytes each. Default: 250000.",
)
@view_format_option()
@click.pass_context
def trace(
    context: click.Context,
    *,
    file: str,
    arguments: tuple[str, ...],
    engine: EngineName,
    sets: bool,
    operators: tuple[str, ...],
    keys: tuple[str, ...],
    summary: bool,
    perfetto: str | None,
    force: bool,
    limit: int | None,
    format: Format | None,
) -> None:
    """Run FILE.py and show every call of the operators: redispatches, keys, kernels, boxings and guards.

    This runs the code in the file, as 'python FILE.py ARGUMENT...' does: only for files you trust. The output of the
    program goes to standard error. The exit code is the program's, 1 when it raises, and 5 when it calls
    os._exit(0), which leaves no trace.

    --engine torch traces a program of PyTorch: each hop of each call in every thread of this process, as it was taken.
    It prints when the program is over. It needs Linux on x86-64.

    --format text prints a line for each call, in the format of PyTorch's own trace, unless --sets.

    \b
    Examples:
      dispatchlab trace program.py
      dispatchlab trace --sets program.py
      dispatchlab trace --format json program.py --epochs 3
      dispatchlab trace --engine torch --summary train.py --epochs 1
      dispatchlab trace --engine torch --sets --operator aten::mm --key AutogradCPU train.py
      dispatchlab trace --engine torch --perfetto trace.json train.py
    """
    from dispatchlab.questions.trace.run_program import program_at

    if engine == "lab":
        refuse(context, ("limit",), "is for --engine torch, which records before it shows: leave it out")
    if summary:
        refuse(context, ("sets",), "shows each call, and --summary none: leave one of them out")
    if perfetto is None:
        refuse(context, ("force",), "is for --perfetto PATH: leave it out")
    program = program_at(file)
    if perfetto is not None:
        check_output(perfetto, FileKind.TRACE, force=force)
    from dispatchlab.questions.trace.blocks import summary_view, trace_view
    from dispatchlab.questions.trace.summary import Trace, only
    from dispatchlab.questions.trace.summary import summary as summary_of
    from dispatchlab.views.as_json import deep_nesting

    live = None
    if engine == "torch":
        code, threads, notes = _trace_torch(program, arguments, limit)
    else:
        plain = not (sets or summary or operators or keys)
        live = _Lines(sys.stdout) if chosen_format(format) == "text" and plain else None
        code, threads, notes = _trace_lab(program, arguments, live)
    with deep_nesting():
        if perfetto is not None:
            from dispatchlab.questions.trace.blocks import chrome_trace

            save(perfetto, chrome_trace(threads, program=file), FileKind.TRACE, force=force)
        shown = only(threads, operators=operators, keys=keys)
        if threads and not shown:
            note("no call is left: none is of what --operator and --key name")
        if live is None:
            traced = Trace(tuple(shown), notes)
            show_view(format, summary_view(summary_of(traced)) if summary else trace_view(traced, sets=sets))
    if live is not None and live.closed:
        abandon_stdout()
        raise OutputClosed
    for text in notes:
        warn(f"note: {text}")
    exit_with(code)


def _trace_lab(
    program: Program, arguments: Sequence[str], live: _Lines | None
) -> tuple[int, Sequence[TracedThread], tuple[str, ...]]:
    from dispatchlab.call.trace import trace as traced
    from dispatchlab.questions.trace.run_program import run_program

    had_torch = "torch" in sys.modules
    with redirect_stdout(sys.stderr), traced(live) as calls:
        code = run_program(program, arguments, report=note)
    threads = calls.threads
    if not threads and not had_torch and "torch" in sys.modules:
        error = TorchProgramError(program.path)
        if code == 0:
            raise error
        warn(f"note: {error}")
    elif not threads and code == 0:
        note(f"note: {program.path} called no operator")
    return code, threads, ()


def _trace_torch(
    program: Program, arguments: Sequence[str], limit: int | None
) -> tuple[int, Sequence[TracedThread], tuple[str, ...]]:
    from dispatchlab.questions.trace.run_program import run_program
    from dispatchlab.questions.trace.torch_trace import LIMIT, TorchTrace

    process = os.getpid()
    traced = TorchTrace(limit=limit or LIMIT)
    with _stdout_on_stderr(), traced:
        code = run_program(program, arguments, report=note)
        if os.getpid() != process:  # a fork of the program has come to the program's end
            sys.stderr.flush()
            os._exit(code & 0xFF)
    if not traced.threads and code == 0:
        note(f"note: {program.path} called no operator of PyTorch")
    return code, traced.threads, traced.notes


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """Have what the program, its libraries and its child processes print go to standard error."""
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


class _Lines:
    """Writes lines as they come, until they have no reader: the program must not hear of that."""

    def __init__(self, stream: TextIO) -> None:
        self.closed = False
        self._stream = stream

    def __call__(self, line: str) -> None:
        if self.closed:
            return
        try:
            self._stream.write(f"{printable(line)}\n")
            self._stream.flush()
        except OSError:
            self.closed = True
