"""`dispatchlab dump`: an operator of a scenario, a registry or the installed PyTorch, and listings."""

from __future__ import annotations

from typing import Any

import click

from dispatchlab.commands.options import (
    OPERATOR,
    ROW,
    allow_import_option,
    engine_option,
    format_option,
    from_option,
    semantics_option,
    versions_after,
    with_package,
)
from dispatchlab.commands.output import Format, note, show_view


class _OfEveryVersion(click.Command):
    """A command whose `--across` takes no versions, unlike that of `explain`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        for version in versions_after(args):
            raise click.UsageError(f"--across shows every version: leave {version} out.", ctx)
        return super().parse_args(ctx, args)


@click.command(cls=_OfEveryVersion)
@click.argument("operator", metavar="OP", required=False, type=OPERATOR)
@from_option
@click.option(
    "--after",
    metavar="SEQUENCE",
    help="Run these steps before dumping, for example '+0 +2 -0'. Default: register all, in the order of the file.",
)
@engine_option("Engine to dump.")
@semantics_option
@click.option(
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    type=ROW,
    help="Show only this row of the table, and what Python registers at this key; may be repeated.",
)
@click.option("--list", "listed", is_flag=True, help="List the operators of a registry, one a line.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="On a terminal, also show every row of the table with what lost to it, and shorten nothing.",
)
@click.option(
    "--layer",
    type=click.Choice(["cxx", "python", "all"]),
    default="all",
    show_default=True,
    help="Show what C++ dispatches by, what Python registers beside it, or both.",
)
@click.option("--across", is_flag=True, help="Show the operator in every bundled version of PyTorch, from 2.4 on.")
@click.option(
    "--register",
    metavar="KEYS",
    help="Show the table of an operator with a kernel at each of these keys, as PyTorch's PythonDispatcher does.",
)
@format_option()
@allow_import_option
def dump(
    *,
    operator: str | None,
    source: str | None,
    after: str | None,
    listed: bool,
    across: bool,
    register: str | None,
    format: Format | None,
    **options: Any,
) -> None:
    """Show the kernels and the dispatch table of an operator, and what Python registers for it.

    OP is a name, a name without overload, or a glob such as 'aten::add*'. Text is what PyTorch itself prints.

    \b
    Examples:
      dispatchlab dump aten::add.Tensor
      dispatchlab dump aten::add.Tensor --key CUDA --across
      dispatchlab dump test::foo --from scenario.yaml --after '+0 +2 -0'
      dispatchlab dump 'aten::*' --list --key MPS
      dispatchlab dump my::op --from my_package
      dispatchlab dump --register 'CPU, XLA, CompositeImplicitAutograd'
    """
    from dispatchlab.questions.dump.show_operators import DumpOptions, across_versions, listing, operators, registered

    imports: tuple[str, ...] = ()
    if source is not None:
        source, imports = with_package(source)
    asked = DumpOptions(operator, source, imports, **options)
    if register is not None:
        view = registered(register, asked, report=note)
    elif listed:
        view = listing(asked, report=note)
    elif across:
        view = across_versions(asked)
    else:
        view = operators(asked, after=after, report=note)
    show_view(format, view)
