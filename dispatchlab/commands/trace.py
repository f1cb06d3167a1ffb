"""`dispatchlab trace`: run a file and show what the operators did."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, TextIO

import click

from dispatchlab.commands.options import format_option
from dispatchlab.commands.output import (
    Format,
    OutputClosed,
    abandon_stdout,
    chosen_format,
    exit_with,
    note,
    show,
)
from dispatchlab.escape import printable

if TYPE_CHECKING:
    from rich.console import Console

    from dispatchlab.call.trace import TracedThread


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", metavar="FILE.py")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--sets", is_flag=True, help="Also show the key sets of each call, the guards and the kernels.")
@format_option
def trace(*, file: str, arguments: tuple[str, ...], sets: bool, format: Format | None) -> None:
    """Run FILE.py and show every call of the lab's operators: redispatches, keys, kernels, boxings and guards.

    This runs the code in the file, as 'python FILE.py ARGUMENT...' does: only for files you trust. The output of the
    program goes to standard error. The exit code is the program's, and 1 when it raises.

    --format text prints a line for each call as it begins, in the format of PyTorch's own trace, unless --sets.

    \b
    Examples:
      dispatchlab trace program.py
      dispatchlab trace --sets program.py
      dispatchlab trace --format json program.py --epochs 3
    """
    from dispatchlab.analysis.run_program import program_at, run_program
    from dispatchlab.call.trace import trace as traced
    from dispatchlab.render.trace import trace_json, trace_text

    program = program_at(file)
    live = _Lines(sys.stdout) if chosen_format(format) == "text" and not sets else None
    with redirect_stdout(sys.stderr), traced(live) as calls:
        code = run_program(program, arguments, report=note)
    if live is None:
        show(
            format,
            text=lambda: trace_text(calls.threads, sets=True),
            json=lambda: trace_json(calls.threads),
            rich=lambda console: _print_trace(console, calls.threads, sets=sets),
        )
    elif live.closed:
        abandon_stdout()
        raise OutputClosed
    exit_with(code)


class _Lines:
    """Writes lines as they come, until nobody reads them: the program must not hear of that."""

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


def _print_trace(console: Console, threads: Sequence[TracedThread], *, sets: bool) -> None:
    from dispatchlab.render.rich_trace import print_trace

    print_trace(console, threads, sets=sets)
