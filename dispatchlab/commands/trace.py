"""`dispatchlab trace`: run a file and show what the operators did."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import ROW, engine_option, format_option, operators_option
from dispatchlab.commands.output import Format, exit_with, note, note_passed_on, show_view, warn

if TYPE_CHECKING:
    from dispatchlab.questions.sources.engines import EngineName


@click.command(cls=Command, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", metavar="FILE.py")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
@engine_option(
    "Trace the operators of the lab, or of the installed PyTorch. Default: torch if FILE.py imports torch.",
    default=None,
)
@click.option("--sets", is_flag=True, help="Also show the origin of each key set, the guards and the kernels.")
@operators_option
@click.option("--key", "keys", metavar="KEY", multiple=True, type=ROW, help="Show only calls at KEY; may be repeated.")
@click.option("--summary", is_flag=True, help="Show which kernels ran, how often, and for how long.")
@format_option()
def trace(
    *,
    file: str,
    arguments: tuple[str, ...],
    engine: EngineName | None,
    sets: bool,
    operators: tuple[str, ...],
    keys: tuple[str, ...],
    summary: bool,
    format: Format | None,
) -> None:
    """Run FILE.py and show each call of an operator: its dispatch key, the keys of its arguments, its redispatches.

    This runs the code in the file, as 'python FILE.py ARGUMENT...' does: only for files you trust. The output
    of the program goes to standard error. The trace is printed after the program has ended, or before a
    signal such as SIGABRT ends the process; then a note names the call that was running. The exit code is the exit
    code of the program, or 1 if the program raises.

    Options come before FILE.py. For a PyTorch program, shows the calls of its main thread. Reads the kernels from the
    slots in memory.

    \b
    Examples:
      dispatchlab trace program.py
      dispatchlab trace --summary train.py --epochs 1
      dispatchlab trace --sets --operator aten::mm --key AutogradCPU train.py
      dispatchlab trace --format json program.py
    """
    from dispatchlab.questions.trace.blocks import summary_view, trace_view
    from dispatchlab.questions.trace.run_program import program_at, run_program
    from dispatchlab.questions.trace.summary import Trace, death_note, only
    from dispatchlab.questions.trace.summary import summary as summary_of
    from dispatchlab.views.as_json import deep_nesting

    program = program_at(file)
    note_passed_on(file, arguments, "--engine", "--format", "--key", "--operator", "--sets", "--summary")
    is_torch = program.imports_torch if engine is None else engine == "torch"
    if is_torch:
        from dispatchlab.questions.trace.torch_trace import TorchTrace as Recording
    else:
        from dispatchlab.call.trace import Trace as Recording  # type: ignore[assignment]

    def show(ending: str = "") -> None:
        threads, notes = recording.threads, recording.notes
        if ending:
            notes = (*notes, death_note(threads, ending))
        shown = only(threads, operators=operators, keys=keys)
        if threads and not shown:
            note("no call is left: none matches --operator and --key")
        traced = Trace(tuple(shown), notes)
        with deep_nesting():
            view = summary_view(summary_of(traced)) if summary else trace_view(traced, sets=sets)
            show_view(format, view, paged=not ending)
        for text in notes:
            warn(f"note: {text}")

    def died(name: str) -> None:
        if is_torch:
            recording.cut_short()
        show(name)
        sys.stdout.flush()
        sys.stderr.flush()

    with Recording() as recording:
        code = run_program(program, arguments, report=note, died=died)
    if not recording.threads and code == 0:
        missed = not is_torch and "torch" in sys.modules
        note(f"note: {file} called no operator{' of the lab: trace PyTorch with --engine torch' if missed else ''}")
    show()
    exit_with(code)
