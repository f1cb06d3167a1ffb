"""`dispatchlab coverage`: what a backend can run."""

from __future__ import annotations

from typing import Any

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import ROW, SOURCE, format_option, operators_option, report_option, subject
from dispatchlab.commands.output import Format, exit_with, note, show_and_keep

_WAYS = click.Choice(["direct", "composite", "fallback", "ambiguous", "missing"])


@click.command(cls=Command)
@click.argument("source", metavar="[SOURCE]", required=False, type=SOURCE)
@click.option(
    "--key",
    metavar="KEY",
    default="PrivateUse1",
    show_default=True,
    type=ROW,
    help="Runtime key of the backend, or the device name that SOURCE records.",
)
@operators_option
@click.option(
    "--tag",
    "tags",
    metavar="TAG",
    multiple=True,
    help="Select operators with this tag of PyTorch, such as core; may be repeated.",
)
@click.option("--list", "listed", type=_WAYS, multiple=True, help="List the operators with this coverage.")
@click.option(
    "--program",
    "programs",
    metavar="FILE.py",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Run this program on a device that stands in for the backend, and list the kernels that it needs; may be "
    "repeated. Needs PyTorch 2.10 or newer.",
)
@click.option(
    "--device",
    metavar="NAME",
    help="Name of the device in the programs. Default: the name in the registry, or privateuseone.",
)
@report_option()
@format_option()
def coverage(
    *,
    source: str | None,
    key: str,
    operators: tuple[str, ...],
    tags: tuple[str, ...],
    listed: tuple[str, ...],
    programs: tuple[str, ...],
    device: str | None,
    page: str | None,
    format: Format | None,
) -> None:
    """Show which operators a backend can run: with its own kernel, through a composite, by fallback, or not at all.

    SOURCE is a recorded registry, the name of a bundled registry, a scenario, `live` (the installed PyTorch),
    or a package, which is imported into the installed PyTorch. Default: the bundled registry of the installed
    PyTorch, or else the newest; for a CUDA key, a registry with CUDA kernels.

    --program runs a program, as 'python FILE.py' does, on a stand-in device at PrivateUse1 with memory of the
    CPU: only for files you trust. The output of the program goes to standard error. The program uses the real
    name of the device.

    Exit codes: 0; 1 if a program of --program makes no call on the device; 3 if SOURCE comes from a PyTorch build
    without kernels for KEY. Then the table has only kernels for all backends.

    \b
    Examples:
      dispatchlab coverage
      dispatchlab coverage --list missing --operator 'aten::_foreach*'
      dispatchlab coverage --tag core --list missing
      dispatchlab coverage my_package --key MPS
      dispatchlab coverage --report coverage.html
      dispatchlab coverage my_backend.yaml --key npu --program train.py
    """
    from dispatchlab.model.keys import UnknownKeyError
    from dispatchlab.questions.coverage.blocks import coverage_view
    from dispatchlab.questions.coverage.coverage_on_lab import coverage_report
    from dispatchlab.questions.coverage.program_coverage import program_coverage, program_coverage_view
    from dispatchlab.questions.sources.find_sources import chosen, recorded_from, with_tags
    from dispatchlab.registries.backend_coverage import Way, runtime_key
    from dispatchlab.views.view import View

    if device and not programs:
        raise click.UsageError("--device names the device in a program: add --program FILE.py")
    if programs and (operators or tags or listed):
        raise click.UsageError("--program cannot be combined with --operator, --tag and --list: leave some out")
    source, imports = subject(source, keys=[key], operators=operators)
    recorded = recorded_from(source, imports=imports, report=note)
    try:
        row = runtime_key(key, privateuse1=recorded.privateuse1)
    except UnknownKeyError as error:
        if not programs or not key.islower():
            raise
        raise click.UsageError(f"{error}; for the name in the program, add --device {key}") from None
    name = f"PyTorch {recorded.torch} with {' and '.join(imports)}" if imports else source
    view: View[Any]
    if programs:
        needs = program_coverage(recorded, row, programs, name=name, device=device or "")
        view = program_coverage_view(needs)
    else:
        found = coverage_report(
            recorded,
            row,
            name=name,
            operators=with_tags(chosen(recorded, operators), tags),
            listed=tuple(map(Way, listed)),
        )
        view = coverage_view(found, torch=recorded.torch)
    show_and_keep(format, view, page)
    if programs and not all(one.calls for one in needs.programs):
        exit_with(1)
    exit_with(0 if programs or not found.no_answer else 3)
