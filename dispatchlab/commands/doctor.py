"""`dispatchlab doctor`: what works with the installed PyTorch, its known defects, and its dispatcher measured."""

from __future__ import annotations

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import format_option
from dispatchlab.commands.output import Format, exit_with, note, out, progress_display, save, show_view


@click.command(cls=Command)
@click.argument("defect", required=False)
@click.option("--defects", is_flag=True, help="Show which known defects PyTorch has, by running a program for each.")
@click.option(
    "--measure",
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="Measure the dispatcher, and write its model to FILE for --semantics FILE; - is standard output.",
)
@format_option()
def doctor(*, defect: str | None, defects: bool, measure: str | None, format: Format | None) -> None:
    """Show the versions, the features that work with the installed PyTorch, and why others do not.

    Tries each feature in a new process, which imports PyTorch. With --defects DEFECT, prints the program of that defect
    and does not run it.

    Exit codes: 0 if no installed part is broken, also if PyTorch is not installed; else 1. With --defects: 0 without
    defects, 1 with defects, 2 if no program can run here.

    \b
    Examples:
      dispatchlab doctor
      dispatchlab doctor --defects
      dispatchlab doctor --defects stale_slots > stale_slots.py
      dispatchlab doctor --measure mine.json
    """
    from dispatchlab.questions.setup.doctor import diagnose, doctor_view

    if measure is not None:
        _measure(measure)
    elif defects:
        _defects(defect, format)
    elif defect is not None:
        raise click.UsageError(f"to show the defect {defect}, add --defects")
    else:
        with progress_display() as display:
            found = diagnose(progress=lambda name: display.stage("doctor", f"trying: {name}"))
        show_view(format, doctor_view(found))
        exit_with(found.exit_code)


def _defects(name: str | None, format: Format | None) -> None:
    from dispatchlab.questions.setup.defects import defects_view, known_defects, program_view, run_defects

    if name is not None:
        (chosen,) = known_defects((name,))
        show_view(format or "text", program_view(chosen))  # nothing of a program is wrapped
        return
    version, found = run_defects()
    show_view(format, defects_view(version, found))
    exit_with(int(any(defect.found for defect in found)))


def _measure(file: str) -> None:
    from dispatchlab.files import FileKind, check_output
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.model.profile import Profile, profile_text

    if file != "-":
        check_output(file, FileKind.PROFILE)
    with LiveEngine() as engine:
        found: Profile = engine.ask("dispatchlab.live.introspection.profile_probe:measure_profile")
    if file == "-":
        out(profile_text(found))
    else:
        save(file, profile_text(found), FileKind.PROFILE)
    note(
        f"PyTorch {found.torch}: {len(found.keys)} keys, {len(found.runtime)} of them with a slot, "
        f"{len(found.fallbacks)} fallbacks; not measured: {', '.join(found.not_probed) or 'nothing'}"
    )
