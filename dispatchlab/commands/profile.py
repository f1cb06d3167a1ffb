"""`dispatchlab profile`: what makes the dispatcher of the running PyTorch differ, measured and written to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dispatchlab.commands.output import note, out, save

if TYPE_CHECKING:
    from dispatchlab.model.profile import Profile


@click.command()
@click.option("-o", "--output", "file", metavar="FILE", type=click.Path(), help="Write there, not to standard output.")
def profile(*, file: str | None) -> None:
    """Measure what makes the dispatcher of the running PyTorch differ from that of other versions.

    Registers operators of its own in a new process and reads dumps, tables and slots: the keys, what alias keys stand
    for, which kernel wins a slot, which slots a registration and a release recompute, the builtin fallbacks, what is
    refused. The lab engine runs on the file. What cannot be measured is named in it, and has the value of PyTorch 2.13.

    \b
    Examples:
      dispatchlab profile -o mine.json
      dispatchlab permute scenario.yaml --semantics mine.json
    """
    from dispatchlab.files import FileKind, check_output
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.model.profile import profile_text

    if file is not None:
        check_output(file, FileKind.PROFILE)
    with LiveEngine() as engine:
        found: Profile = engine.ask("dispatchlab.live.introspection.profile_probe:measure_profile")
    if file is None:
        out(profile_text(found))
    else:
        save(file, profile_text(found), FileKind.PROFILE)
    note(
        f"PyTorch {found.torch}: {len(found.keys)} keys, {len(found.runtime)} of them with a slot, "
        f"{len(found.fallbacks)} fallbacks; not measured: {', '.join(found.not_probed) or 'nothing'}"
    )
