"""`dispatchlab doctor`: the versions, and what works with the installed PyTorch."""

from __future__ import annotations

import click

from dispatchlab.commands.options import format_option, progress_option, reach_checkout
from dispatchlab.commands.output import Format, exit_with, note, show


@click.command()
@click.option(
    "--backend",
    metavar="PACKAGE",
    help="Show instead what PyTorch asks of the device that this package brings, and what of it is missing.",
)
@format_option
@progress_option
def doctor(*, backend: str | None, format: Format | None, progress: bool | None) -> None:
    """Show the versions, and what works with the installed PyTorch and why the rest does not.

    Tries each feature in a process of its own, which imports PyTorch; nothing is concluded from its version. Exit
    codes: 0 when everything that is installed works, also without PyTorch, and 1 when something does not.

    --backend imports a package that brings a device at PrivateUse1, and runs a small program for each part that PyTorch
    asks of a device: kernels, hooks, and the module of the device. A program fails without its part.

    \b
    Examples:
      dispatchlab doctor
      dispatchlab doctor --format json
      dispatchlab doctor --backend my_backend
    """
    import sys

    if backend is not None:
        from dispatchlab.adopt.backend import backend_json, backend_text, diagnose_backend

        reach_checkout(click.get_current_context())
        device = diagnose_backend(backend)
        show(format, text=lambda: backend_text(device), json=lambda: backend_json(device))
        exit_with(device.exit_code)
    from dispatchlab.adopt.doctor import diagnose, doctor_json, doctor_text

    shown = sys.stderr.isatty() if progress is None else progress
    found = diagnose(progress=(lambda name: note(f"trying: {name}")) if shown else None)
    show(format, text=lambda: doctor_text(found), json=lambda: doctor_json(found))
    exit_with(found.exit_code)
