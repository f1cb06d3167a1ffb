"""`dispatchlab defects`: the known defects of PyTorch that the installed one has."""

from __future__ import annotations

import click

from dispatchlab.commands.options import format_option
from dispatchlab.commands.output import Format, exit_with, show_view


@click.command()
@click.argument("name", required=False)
@format_option()
def defects(*, name: str | None, format: Format | None) -> None:
    """Show which known defects the installed PyTorch has, by running a program for each.

    Each program runs in a process of its own; nothing is concluded from the version. With NAME, print the program of
    that defect and do not run it: it needs PyTorch alone, and ends with 1 where PyTorch has the defect, else with 0.

    Exit codes: 0 when no program finds its defect, 1 when one does, 2 when none can be run here. A program that cannot
    be run says why.

    \b
    Examples:
      dispatchlab defects
      dispatchlab defects --format json
      dispatchlab defects stale_slots > stale_slots.py
    """
    from dispatchlab.questions.setup.defects import defects_view, known_defects, program_view, run_defects

    if name is not None:
        (chosen,) = known_defects((name,))
        show_view(format or "text", program_view(chosen))  # nothing of a program is wrapped
        return
    version, found = run_defects()
    show_view(format, defects_view(version, found))
    exit_with(int(any(defect.found for defect in found)))
