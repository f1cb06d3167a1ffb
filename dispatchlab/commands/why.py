"""`dispatchlab why`: run a program that fails and show the cause and the fix."""

from __future__ import annotations

import sys
from linecache import getlines
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import format_option
from dispatchlab.commands.output import Format, exit_with, note_passed_on, out, show_view

if TYPE_CHECKING:
    from dispatchlab.questions.why.diagnose import Answer


@click.command(cls=Command, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM.py [ARGUMENT]...")
@click.option("--text", metavar="FILE", help="Read a traceback from FILE instead of running; - is standard input.")
@click.option(
    "--from",
    "source",
    metavar="REGISTRY",
    help="With --text, ask a recorded registry, such as torch-2.9, instead of the installed PyTorch.",
)
@format_option("github")
def why(
    *,
    program: tuple[str, ...],
    text: str | None,
    source: str | None,
    format: Format | Literal["github"] | None,
) -> None:
    """Show why a program fails, and what fixes it.

    Runs the program as Python does, notes its registrations and the call that fails, and tries the fix in a copy of the
    process. The output of the program goes to standard error. '-m MODULE' instead of the file runs a module. For a
    program that succeeds, also explains a missing autograd kernel, undeclared writes, wrong backwards, and exceptions
    that the program caught and printed. Then runs the operators again, for at most two seconds.

    The exit code is 0 if the program succeeds and 1 if it fails. If the program calls sys.exit, the exit code
    is its argument. With --text, it is 1 if the cause is known, else 3.

    \b
    Examples:
      dispatchlab why train.py --epochs 1
      dispatchlab why -m pytest tests/test_ops.py
      dispatchlab why --text error.txt --from torch-2.9
    """
    from dispatchlab.errors import RequestError
    from dispatchlab.questions.why.run import NO_PROGRAM, why_program, why_text

    if text is not None:
        if program or text.endswith(".py"):
            raise click.UsageError(f"run a program without --text: dispatchlab why {' '.join(program) or text}")
        try:
            given = sys.stdin.read() if text == "-" else Path(text).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise RequestError(f"{text} cannot be read: {error.strerror or error}; {NO_PROGRAM}") from error
        if not given.strip():
            raise click.UsageError(
                "standard input was empty; paste the error, then press Ctrl-D" if text == "-" else f"{text} is empty"
            )
        answer = why_text(given, source or "")
        _show_and_exit(format, answer, 1 if answer.code else 3)
    if not program or (program[0].startswith("-") and program[:1] != ("-m",)) or program == ("-m",):
        raise click.UsageError("name a program, as in: dispatchlab why PROGRAM.py, or a traceback with --text FILE")
    if source is not None:
        raise click.UsageError("--from is for --text: a program runs on the installed PyTorch")
    if program[0].endswith((".txt", ".log")):
        raise click.UsageError(f"{program[0]} is no program; for a traceback: dispatchlab why --text {program[0]}")
    note_passed_on(program[program[0] == "-m"], program[1:], "--format")
    outcome = why_program(program)
    if outcome.answer is not None:
        if not outcome.answer.failed:
            notes = {"UserWarning": "PyTorch warned of a missing autograd kernel", "WHY212": "a kernel returned None"}
            notes |= {"WHY421": "an operator wrote an undeclared argument", "WHY403": "a fake kernel is wrong"}
            notes |= {"WHY431": "an operator did not write its argument", "WHY510": "a backward is wrong"}
            notes |= {"WHY524": "a Function wrote its input without mark_dirty"}
            what = notes.get(outcome.answer.error.partition(":")[0] or outcome.answer.code, "it caught this exception")
            click.echo(f"dispatchlab why: the program ended well, but {what}", err=True)
        _show_and_exit(format, outcome.answer, outcome.exit_code or int(outcome.answer.failed))
    if not outcome.exit_code:
        click.echo("dispatchlab why: the program ended well; nothing to explain", err=True)
    elif program[:2] == ("-m", "pytest") or "pytest.main(" in "".join(getlines(program[0])):
        click.echo("dispatchlab why: to see the cause of each failing test, run: pytest --why", err=True)
    exit_with(outcome.exit_code if outcome.exit_code >= 0 else 128 - outcome.exit_code)


def _show_and_exit(format: Format | Literal["github"] | None, answer: Answer, code: int) -> NoReturn:
    from dispatchlab.questions.why.answer_blocks import github_annotation, why_view

    if format == "github":
        out(github_annotation(answer))
    else:
        show_view(format, why_view(answer))
    exit_with(code)
