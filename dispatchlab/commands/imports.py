"""`dispatchlab imports`: packages in every order, each order in a process of its own, and what differs."""

from __future__ import annotations

from typing import Any

import click

from dispatchlab.commands.options import (
    JOBS,
    SEED,
    import_timeout_option,
    progress_option,
    refuse,
    view_format_option,
)
from dispatchlab.commands.output import Format, exit_with, show_view, working


@click.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@click.option(
    "--samples",
    metavar="N",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="Number of orders to sample when there are more than five packages.",
)
@click.option("--seed", metavar="N", type=SEED, default=0, show_default=True, help="Random seed, for sampled orders.")
@click.option(
    "--again",
    is_flag=True,
    help="Also purge the modules and import them again in the same process. What differs then is shown, and does not "
    "change the exit code.",
)
@click.option(
    "--all-orders",
    "every",
    is_flag=True,
    help="Import in every order, however many there are.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=JOBS,
    default=1,
    show_default=True,
    help="Try N orders at once, at most one for each core.",
)
@import_timeout_option
@view_format_option()
@progress_option
@click.pass_context
def imports(
    context: click.Context,
    /,
    *,
    packages: tuple[str, ...],
    every: bool,
    format: Format | None,
    progress: bool | None,
    **options: Any,
) -> None:
    """Import packages in every order and show what depends on it.

    Each order runs in its own process, forked from one that has PyTorch. Reports what is not the same afterwards:
    dumps and tables, the functions that are registered with all that they reach, settings, and what was replaced or
    written in other modules, with the source locations of the registrations. Exit codes: 0 when nothing differs or
    fails, 5 when an import ends its process, else 1.

    \b
    Examples:
      dispatchlab imports my_package your_package
      dispatchlab imports my_package --again
    """
    from dispatchlab.questions.imports.blocks import import_orders_view
    from dispatchlab.questions.imports.import_orders import EVERY, compare_import_orders

    if len(packages) <= EVERY:
        refuse(
            context,
            ("samples", "seed"),
            f"is for more than {EVERY} packages, of whose orders some are sampled; {EVERY} or fewer are imported in "
            "every order: leave it out",
        )
    if every:
        refuse(context, ("samples", "seed"), "is for sampled orders, and --all-orders takes every one: leave one out")
    with working("starting PyTorch", asked=progress) as say:
        found = compare_import_orders(packages, every=every, started=say, **options)
    show_view(format, import_orders_view(found))
    exit_with(found.exit_code)
