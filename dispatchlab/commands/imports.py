"""`dispatchlab imports`: packages in every order, each order in a process of its own, and what differs."""

from __future__ import annotations

import click

from dispatchlab.commands.options import SEED, format_option, import_timeout_option, refuse
from dispatchlab.commands.output import Format, exit_with, show


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
@import_timeout_option
@format_option
@click.pass_context
def imports(
    context: click.Context,
    /,
    *,
    packages: tuple[str, ...],
    samples: int,
    seed: int,
    again: bool,
    format: Format | None,
) -> None:
    """Import packages in every order and show what depends on it.

    Each order runs in its own process. Reports differences between dumps, tables and failures, with the source
    locations of the registrations that differ. Exit codes: 0 when nothing differs or fails, 5 when an import ends its
    process, else 1.

    \b
    Examples:
      dispatchlab imports my_package your_package
      dispatchlab imports my_package --again
    """
    from dispatchlab.analysis.import_orders import EVERY, compare_import_orders
    from dispatchlab.render.import_orders import import_orders_json, import_orders_text, print_import_orders

    if len(packages) <= EVERY:
        refuse(
            context,
            ("samples", "seed"),
            f"is for more than {EVERY} packages, of whose orders some are sampled; {EVERY} or fewer are imported in "
            "every order: leave it out",
        )
    found = compare_import_orders(packages, samples=samples, seed=seed, again=again)
    show(
        format,
        text=lambda: import_orders_text(found),
        json=lambda: import_orders_json(found),
        rich=lambda console: print_import_orders(console, found),
    )
    exit_with(found.exit_code)
