"""`dispatchlab diff`: what it means to go from one registry, scenario or PyTorch to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import SOURCE, format_option, operators_option, report_option, with_package
from dispatchlab.commands.output import Format, exit_with, note, reading, show_and_keep

if TYPE_CHECKING:
    from dispatchlab.questions.upgrade.compare_sources import Layer


@click.command(cls=Command)
@click.argument("before", metavar="A", type=SOURCE)
@click.argument("after", metavar="B", type=SOURCE)
@operators_option
@click.option(
    "--for",
    "package",
    metavar="FILE",
    type=click.Path(),
    help="Report changes for the registrations in this recording or scenario: refused registrations, missing defs, and "
    "calls that run another kernel.",
)
@click.option(
    "--layer",
    type=click.Choice(["cxx", "python", "all"]),
    default="cxx",
    show_default=True,
    help="Compare the registrations of the dispatcher (cxx), those of Python, or both. For `live`, python and all "
    "import Inductor and DTensor.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show every detail. Also compare what PyTorch registers on the first use of one of its parts.",
)
@click.option(
    "--exit-code", is_flag=True, help="Exit with 1 if there is a difference. Without this option, always exit with 0."
)
@report_option(" with every detail")
@format_option()
def diff(
    *,
    before: str,
    after: str,
    operators: tuple[str, ...],
    package: str | None,
    layer: Layer,
    everything: bool,
    exit_code: bool,
    page: str | None,
    format: Format | None,
) -> None:
    """Report what an upgrade from A to B changes: operators, schemas, kernels, composites, tags, fallbacks, slots.

    A and B are recorded registries, names of bundled registries, scenarios, `live` (the installed PyTorch), or
    packages, which are imported into the installed PyTorch.

    The summary comes first. For each changed schema, diff says whether it breaks callers, by PyTorch's rule for
    compatible schemas. Also reports what changes because the dispatcher changed. Not reported: moved lines, renamed
    files, and what PyTorch registers when one of its parts is first used.

    With --layer python or all, counts the entries of each registry of Python: only in A, only in B, or with
    another function. Names each registry that cannot be compared.

    Exit codes: 0. With --exit-code: 1 if there is a difference, or with --for, a difference for FILE.

    \b
    Examples:
      dispatchlab diff torch-2.12 torch-2.15
      dispatchlab diff torch-2.15 live
      dispatchlab diff torch-2.12 torch-2.15 --for my_package.yaml
      dispatchlab diff live my_package --all
      dispatchlab diff before.dlreg after.dlreg --exit-code
      dispatchlab diff torch-2.12 torch-2.13 --layer python
      dispatchlab diff torch-2.12 torch-2.15 --report upgrade.html
    """
    from dispatchlab.questions.upgrade.blocks import upgrade_view
    from dispatchlab.questions.upgrade.compare_sources import upgrade_sources

    (first, into_first), (second, into_second) = with_package(before), with_package(after)
    if into_first and second == "live":
        raise click.UsageError(f"{before} is imported into B, the second: write `diff live {before}`")
    if package is not None and operators:
        raise click.UsageError("--operator and --for cannot be combined: leave one of them out")
    everything = everything or bool(operators)
    imports = (*into_first, *into_second)
    with reading((first, second), imports):
        report = upgrade_sources(
            first,
            second,
            imports=imports,
            operators=operators,
            everything=everything,
            package=package,
            layer=layer,
            report=note,
        )
    show_and_keep(format, upgrade_view(report, everything=everything), page)
    exit_with(report.exit_code if exit_code else 0)
