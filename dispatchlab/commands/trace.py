"""`dispatchlab trace`: run a file and show what the operators did."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TextIO

from dispatchlab.analysis.run_program import program_at, run_program
from dispatchlab.call.trace import Trace, trace
from dispatchlab.commands.output import Format, OutputClosed, abandon_stdout, chosen_format, note, out


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What was asked for; each field is an option of the command."""

    file: str
    arguments: tuple[str, ...] = ()
    sets: bool = False
    format: Format | None = None
    color: bool = True


def trace_file(request: TraceRequest) -> int:
    """Run a file as a program, and show the calls that it made; what it prints goes to standard error.

    Returns:
        The exit code: 0 when the program ended well, 1 when it raised something, 130 when it was interrupted, else the
        code that it exits with. The calls up to then are shown in any case.

    Raises:
        UnreadableProgramError: the file cannot be read.
        OutputClosed: nobody reads standard output any more.
    """
    chosen = chosen_format(request.format)
    program = program_at(request.file)
    live = _Lines(sys.stdout) if chosen == "text" and not request.sets else None
    with redirect_stdout(sys.stderr), trace(live) as seen:
        code = run_program(program, request.arguments, report=note)
    if live is None:
        _show(request, seen)
    elif live.closed:
        abandon_stdout()
        raise OutputClosed
    return code


class _Lines:
    """Writes lines as they come, until nobody reads them: the program must not hear of that."""

    def __init__(self, stream: TextIO) -> None:
        self.closed = False
        self._stream = stream

    def __call__(self, line: str) -> None:
        if self.closed:
            return
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except OSError:
            self.closed = True


def _show(request: TraceRequest, seen: Trace) -> None:
    match chosen_format(request.format):
        case "text":
            from dispatchlab.render.trace import trace_text

            out(trace_text(seen.threads, sets=True))
        case "json":
            from dispatchlab.render.trace import trace_json

            out(trace_json(seen.threads))
        case "rich":
            from dispatchlab.render.rich_trees import print_trace
            from dispatchlab.render.rich_view import console

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                print_trace(terminal, seen.threads, sets=request.sets)
            out(captured.get())
