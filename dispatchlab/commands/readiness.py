"""`dispatchlab readiness`: what the operators of packages have of what users of PyTorch 2 expect."""

from __future__ import annotations

import click

from dispatchlab.commands.options import (
    check_page,
    force_option,
    operators_option,
    progress_option,
    refuse,
    report_option,
    view_format_option,
)
from dispatchlab.commands.output import Format, exit_with, note, save_page, show_view, working

_COLUMNS = (
    *("cpu", "cuda", "backends", "fake", "autograd", "functionalize", "vmap"),
    *("autocast", "dtensor", "export", "inductor", "schema", "tags"),
)


@click.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@operators_option
@click.option(
    "--fail-on",
    "fail_on",
    type=click.Choice([*_COLUMNS, "any", "nothing"]),
    multiple=True,
    help="Exit with 1 when an operator lacks this; may be repeated. Default: fake, functionalize, export and inductor.",
)
@click.option(
    "--inputs",
    metavar="MODULE:NAME",
    help="Also run the operators that NAME gives inputs for, so that runs decide: a dictionary, or a function that "
    "returns one, from operator to a function that makes the arguments of a call.",
)
@click.option(
    "--time-limit",
    "time_limit",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="End the runs of an operator that take longer; with --inputs.",
)
@report_option(" of all cells")
@force_option
@click.option("--all", "show_all", is_flag=True, help="Show the reason of every cell.")
@view_format_option
@progress_option
@click.pass_context
def readiness(
    context: click.Context,
    *,
    packages: tuple[str, ...],
    operators: tuple[str, ...],
    fail_on: tuple[str, ...],
    inputs: str | None,
    time_limit: float,
    page: str | None,
    force: bool,
    show_all: bool,
    format: Format | None,
    progress: bool | None,
) -> None:
    """Show what the operators of packages have of what users of PyTorch 2 expect, and which call closes each gap.

    Imports PACKAGE in a process of its own, and calls no operator unless --inputs is given. A cell is yes, no, not
    needed, or unknown where only a run shows it; --inputs runs it. torch.library.opcheck finds other things: it runs
    an operator on inputs that you give, and checks that its schema says what it writes, that its gradients are
    registered rightly, that its fake agrees with its kernel, and that it compiles. Use both.
    Exit codes: 0 when nothing of --fail-on is lacking, 1 when something is; unknown is not lacking.

    \b
    Examples:
      dispatchlab readiness my_package
      dispatchlab readiness my_package --operator 'my_package::*' --all
      dispatchlab readiness my_package --inputs my_package_tests.inputs:INPUTS
      dispatchlab readiness my_package --report readiness.html
      dispatchlab readiness my_package --fail-on fake --fail-on autograd --format json
    """
    from dispatchlab.questions.readiness.blocks import readiness_view
    from dispatchlab.questions.readiness.operator_readiness import COMPILED, Aspect
    from dispatchlab.questions.readiness.package_readiness import package_readiness

    check_page(context, page, force=force)
    if inputs is None:
        refuse(context, ("time_limit",), "is for the runs of --inputs, and nothing is run: leave it out")
    if len(fail_on) > 1 and {"any", "nothing"} & set(fail_on):
        raise click.UsageError("--fail-on any and --fail-on nothing stand alone: name the columns, or one of these")
    required: tuple[Aspect, ...]
    match fail_on:
        case ():
            required = COMPILED
        case ("any",):
            required = tuple(Aspect)
        case ("nothing",):
            required = ()
        case _:
            required = tuple(one for one in Aspect if one in fail_on)
    text = f"starting PyTorch, importing {' and '.join(packages)} and reading its registries"
    with working("live", text, asked=progress) as say:
        found = package_readiness(
            packages,
            operators=operators,
            required=required,
            inputs=inputs,
            limit_s=time_limit,
            started=lambda name: say(f"running {name}"),
        )
    for each in found.notes:
        note(f"note: {each}")
    view = readiness_view(found, complete=show_all)
    show_view(format, view)
    if page is not None:
        save_page(page, view.html(), force=force)
    exit_with(found.exit_code)
