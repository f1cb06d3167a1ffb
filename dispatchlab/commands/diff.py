"""`dispatchlab diff`: what came, went and changed between two registries, scenarios or the running PyTorch."""

from __future__ import annotations

import click

from dispatchlab.commands.options import (
    SOURCE,
    format_option,
    import_option,
    operators_option,
    quiet_option,
    refuse,
    semantics_option,
)
from dispatchlab.commands.output import Format, exit_with, note, reading, show


@click.command()
@click.argument("before", metavar="A", type=SOURCE)
@click.argument("after", metavar="B", type=SOURCE)
@operators_option
@import_option()
@semantics_option
@click.option("--tables/--no-tables", default=True, help="Also compare the rows of computed tables. Default: yes.")
@click.option(
    "--locations/--no-locations", default=True, help="Also compare the source locations of kernels. Default: yes."
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show every difference instead of a screen of them, and compare what PyTorch registers for itself when a part "
    "of it is first used, too.",
)
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@format_option
@quiet_option
@click.pass_context
def diff(
    context: click.Context,
    /,
    *,
    before: str,
    after: str,
    operators: tuple[str, ...],
    imports: tuple[str, ...],
    semantics: str | None,
    tables: bool,
    locations: bool,
    everything: bool,
    exit_code: bool,
    format: Format | None,
) -> None:
    """Show what was added, removed and changed from A to B: operators, schemas, kernels, table rows, fallbacks.

    A and B are recorded registries, names of bundled ones, scenarios, or `live`, the installed PyTorch.

    Begins with a summary, by namespace when there are several, and shows a screen of differences unless --all or
    --operator is given. What PyTorch registers for itself when a part of it is first used is counted and left out.

    \b
    Examples:
      dispatchlab diff torch-2.13 live --import my_package
      dispatchlab diff torch-2.13 my_package.yaml --operator 'aten::*'
      dispatchlab diff before.dlreg after.dlreg --no-locations --exit-code
    """
    from dispatchlab.analysis.sources import compare_sources, is_scenario_source
    from dispatchlab.registry.compare import diff_text
    from dispatchlab.render.registry import diff_json

    if not tables and not any(map(is_scenario_source, (before, after))):
        refuse(context, ("semantics",), "is for scenarios and for tables, and neither is compared: leave it out")
    with reading((before, after), imports):
        found = compare_sources(
            before,
            after,
            imports=imports,
            semantics=semantics,
            tables=tables,
            locations=locations,
            operators=operators,
            everything=everything or bool(operators),
            report=note,
        )
    everything = everything or bool(operators)
    show(
        format,
        text=lambda: diff_text(found.diff, before, after, everything=everything),
        json=lambda: diff_json(found, before, after),
    )
    exit_with(found.diff.exit_code if exit_code else 0)
