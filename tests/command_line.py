"""Run commands in this process: as a user does, or without the group so that their errors are raised."""

from __future__ import annotations

from click.testing import CliRunner, Result

from dispatchlab.cli import main


def run(*arguments: str) -> Result:
    """Run the command line: errors are text and an exit code."""
    return CliRunner().invoke(main, list(arguments), prog_name="dispatchlab")


def run_raising(name: str, *arguments: str) -> Result:
    """Run one command by itself: errors are raised."""
    with main.make_context("dispatchlab", ["--no-color", name], resilient_parsing=True) as context:
        command = main.get_command(context, name)
    assert command is not None
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)
