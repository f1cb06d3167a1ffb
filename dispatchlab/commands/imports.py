"""`dispatchlab imports`: packages in every order, each order in a fresh process, and what differs."""

from __future__ import annotations

import click

from dispatchlab.commands.options import format_option, reach_checkout
from dispatchlab.commands.output import Format, exit_with, show_view, working


@click.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@format_option()
def imports(*, packages: tuple[str, ...], format: Format | None) -> None:
    """Import packages in every order and show what depends on it.

    Each order runs in a fresh process; of more than 12 orders, 12 are chosen. What is compared stands in the output.
    Exit codes: 0 when nothing differs, 1 when something does, 2 when a package cannot be imported, 5 when an import
    ends its process.

    \b
    Examples:
      dispatchlab imports my_package your_package
    """
    from dispatchlab.questions.imports.blocks import import_orders_view
    from dispatchlab.questions.imports.import_orders import compare_import_orders

    reach_checkout()
    with working("starting PyTorch") as say:
        found = compare_import_orders(packages, started=say)
    show_view(format, import_orders_view(found))
    exit_with(found.exit_code)
