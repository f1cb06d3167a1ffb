"""`dispatchlab imports`: packages in every order, each order in a fresh process, and what differs."""

from __future__ import annotations

import click

from dispatchlab.commands.options import import_timeout_option, progress_option, view_format_option
from dispatchlab.commands.output import Format, exit_with, show_view, working


@click.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@click.option(
    "--orders",
    "most",
    metavar="N",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="Import in every order when there are at most N, else in N that are chosen.",
)
@import_timeout_option
@view_format_option()
@progress_option
def imports(*, packages: tuple[str, ...], most: int, format: Format | None, progress: bool | None) -> None:
    """Import packages in every order and show what depends on it.

    Each order runs in a fresh process. Compares what is there afterwards: whether each import succeeds, the operators
    with tables and slots, fallbacks, registries of Python, and the public variables of the packages by type, length and
    plain value. Exit codes: 0 when nothing differs, 1 when something does, 2 when a package cannot be imported, 5 when
    an import ends its process.

    \b
    Examples:
      dispatchlab imports my_package your_package
      dispatchlab imports a b c d e --orders 120
    """
    from dispatchlab.questions.imports.blocks import import_orders_view
    from dispatchlab.questions.imports.import_orders import compare_import_orders

    with working("starting PyTorch", asked=progress) as say:
        found = compare_import_orders(packages, most=most, started=say)
    show_view(format, import_orders_view(found))
    exit_with(found.exit_code)
