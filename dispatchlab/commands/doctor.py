"""`dispatchlab doctor`: the versions, and what works with the installed PyTorch."""

from __future__ import annotations

import click

from dispatchlab.commands.options import format_option
from dispatchlab.commands.output import Format, exit_with, note, show_view


@click.command()
@format_option()
def doctor(*, format: Format | None) -> None:
    """Show the versions, and what works with the installed PyTorch and why the rest does not.

    Tries each feature in a process of its own, which imports PyTorch; nothing is concluded from its version. Exit
    codes: 0 when everything that is installed works, also without PyTorch, and 1 when something does not.

    \b
    Examples:
      dispatchlab doctor
      dispatchlab doctor --format json
    """
    import sys

    from dispatchlab.questions.setup.doctor import diagnose, doctor_view

    found = diagnose(progress=(lambda name: note(f"trying: {name}")) if sys.stderr.isatty() else None)
    show_view(format, doctor_view(found))
    exit_with(found.exit_code)
