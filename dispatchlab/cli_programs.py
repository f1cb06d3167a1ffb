"""The commands about Python: what importing packages registers, what a program calls, what is generated.

Parse, call, exit. What they do is in `commands`, imported when needed.
"""

from __future__ import annotations

from typing import Any

import click

from dispatchlab.cli_options import FORMAT_HELP, FORMATS, exit_with


@click.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1)
@click.option("-o", "--output", "file", metavar="FILE", required=True, type=click.Path(), help="The file to write.")
@click.option("--all", "everything", is_flag=True, help="Record everything that is registered, as a registry file.")
def record(**options: Any) -> None:
    """Write what importing packages registers to a scenario, each registration with its true call site.

    The packages are imported in this order, in a process of its own. Registrations that PyTorch makes for itself on the
    way are left out. With --all, it is the whole registry of the running PyTorch that is written, after the packages
    were imported.

    \b
    Examples:
      dispatchlab record my_package -o my_package.yaml
      dispatchlab permute my_package.yaml --engine torch
      dispatchlab record --all -o today.dlreg
    """
    from dispatchlab.commands.record import RecordRequest
    from dispatchlab.commands.record import record as run

    exit_with(run(RecordRequest(**options)))


@click.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@click.option(
    "--samples",
    metavar="N",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="How many orders of more than five packages.",
)
@click.option(
    "--seed", metavar="N", type=int, default=0, show_default=True, help="Of the orders that are chosen at random."
)
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
def imports(**options: Any) -> None:
    """Import packages in every order and show what depends on it.

    Each order has a process of its own. There, the packages are imported, their modules are purged, and they are
    imported once more. Told are differences in dumps, tables and failures, with the places that registered what
    differs. Exit codes: 0 when nothing differs or fails, else 1.

    \b
    Examples:
      dispatchlab imports my_package your_package
    """
    from dispatchlab.commands.imports import ImportsRequest
    from dispatchlab.commands.imports import imports as run

    exit_with(run(ImportsRequest(**options)))


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", metavar="FILE.py")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--sets", is_flag=True, help="Show the key sets of each call, the guards and the kernels, too.")
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
@click.pass_obj
def trace(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Run FILE.py and show every call of the lab's operators: redispatches, keys, kernels, boxings and guards.

    This runs the code in the file, as 'python FILE.py ARGUMENT...' does: only for files you trust. What the program
    prints goes to standard error. The exit code is the program's: 1 when it raises something.

    --format text prints a line for each call as it begins, in the format of PyTorch's own trace, unless --sets.

    \b
    Examples:
      dispatchlab trace program.py
      dispatchlab trace --sets program.py
      dispatchlab trace --format json program.py --epochs 3
    """
    from dispatchlab.commands.trace import TraceRequest, trace_file

    exit_with(trace_file(TraceRequest(**options, color=color)))


@click.command()
@click.argument("file", metavar="[FILE.yaml]", required=False, type=click.Path())
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=click.Path(), help="Where the files go. Default: print them."
)
@click.option("--only", metavar="OP", multiple=True, help="Only the group of this operator or glob; may be repeated.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when the files in DIR differ.")
@click.option(
    "--walk", "walked", metavar="OP", help="Call an operator that has kernels, and show the frames of the call."
)
def codegen(*, file: str | None, folder: str | None, only: tuple[str, ...], check: bool, walked: str | None) -> None:
    """Generate structured operators from a native_functions.yaml: wrappers, classes, registrations, a scenario.

    Nothing is written when anything in FILE.yaml is wrong.

    \b
    Examples:
      dispatchlab codegen native_functions.yaml -o generated
      dispatchlab codegen native_functions.yaml --only add
      dispatchlab codegen native_functions.yaml -o generated --check
      dispatchlab codegen --walk add.out
    """
    if walked is not None and (file or folder or only or check):
        raise click.UsageError("--walk calls an operator that has kernels and takes no file and no other option")
    if walked is None and file is None:
        raise click.UsageError("give a file of native functions, or an operator to --walk")
    if check and folder is None:
        raise click.UsageError("--check compares with the files in a folder: give it with -o DIR")
    from dispatchlab.commands.codegen import CodegenRequest, walk_operator
    from dispatchlab.commands.codegen import codegen as run

    if walked is not None:
        exit_with(walk_operator(walked))
    elif file is not None:
        exit_with(run(CodegenRequest(file=file, folder=folder, only=only, check=check)))


PROGRAM_COMMANDS: tuple[click.Command, ...] = (codegen, imports, record, trace)
"""For the group of all commands."""
