"""`dispatchlab readiness`: what the operators of packages have of what users of PyTorch 2 expect."""

from __future__ import annotations

from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Literal

import click

from dispatchlab.commands.options import (
    JOBS,
    check_page,
    force_option,
    operators_option,
    progress_option,
    refuse,
    report_option,
    root_option,
    view_format_option,
)
from dispatchlab.commands.output import FOR_READING, Format, exit_with, note, out, save, save_page, show_view, working

_COLUMNS = (
    *("cpu", "cuda", "backends", "fake", "dynamic_shapes", "autograd", "second_order", "functionalize", "vmap"),
    *("autocast", "dtensor", "export", "export_dynamic", "inductor", "aot_package", "repeat", "strides", "empty"),
    *("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic", "tags"),
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
    metavar="SOURCE",
    help="Also run the operators that SOURCE gives inputs for, so that runs decide. It is a file that --save-inputs or "
    "pytest --dispatchlab-readiness wrote, or MODULE:NAME of a dictionary, or of a function that returns one, from "
    "operator to a function that makes the arguments of a call.",
)
@click.option(
    "--from-program",
    "program",
    metavar="FILE.py",
    type=click.Path(exists=True, dir_okay=False),
    help="Run this program first, and take the arguments of the operator calls that it makes as inputs.",
)
@click.option(
    "--save-inputs",
    "saved",
    metavar="FILE.safetensors",
    type=click.Path(dir_okay=False),
    help="Also write the inputs of --from-program to a file for --inputs.",
)
@click.option("--generate", is_flag=True, help="Also run operators without inputs on some that their schemas suggest.")
@click.option(
    "--time-limit",
    "time_limit",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="End a run that takes longer: that of one column of one operator.",
)
@click.option(
    "--jobs", metavar="N", type=JOBS, default=1, show_default=True, help="Run operators in N processes at once."
)
@click.option(
    "--baseline", metavar="FILE", type=click.Path(), help="Expect the failures that FILE says; new ones fail."
)
@click.option(
    "--write-baseline",
    metavar="FILE",
    type=click.Path(),
    help="Write what fails in the columns of --fail-on to FILE, for --baseline.",
)
@report_option(" of all cells")
@force_option
@click.option("--all", "show_all", is_flag=True, help="Show the reason of every cell.")
@root_option
@view_format_option("sarif")
@progress_option
@click.pass_context
def readiness(
    context: click.Context,
    *,
    packages: tuple[str, ...],
    operators: tuple[str, ...],
    fail_on: tuple[str, ...],
    inputs: str | None,
    program: str | None,
    saved: str | None,
    generate: bool,
    time_limit: float,
    jobs: int,
    baseline: str | None,
    write_baseline: str | None,
    page: str | None,
    force: bool,
    show_all: bool,
    root: str | None,
    format: Format | Literal["sarif"] | None,
    progress: bool | None,
) -> None:
    """Show what the operators of packages have of what users of PyTorch 2 expect, and which call closes each gap.

    Imports PACKAGE in a process of its own, and calls no operator unless there are inputs: of --inputs, --from-program
    or --generate. Without, a cell is registered, no, not needed, or unknown. With inputs, runs decide: the four tests
    of torch.library.opcheck, gradients, vmap, compiles and more, each beside what a plain call gives.
    Exit codes: 0 when nothing of --fail-on is lacking, 1 when something is; unknown is not lacking.

    \b
    Examples:
      dispatchlab readiness my_package
      dispatchlab readiness my_package --operator 'my_package::*' --all
      dispatchlab readiness my_package --generate
      dispatchlab readiness my_package --inputs my_package_tests.inputs:INPUTS
      pytest --dispatchlab-readiness=inputs.safetensors
      dispatchlab readiness my_package --inputs inputs.safetensors --generate --jobs 4
      dispatchlab readiness my_package --from-program examples/train.py
      dispatchlab readiness my_package --report readiness.html
      dispatchlab readiness my_package --fail-on fake --fail-on autograd --format json
    """
    from dispatchlab.files.atomic_write import write_file
    from dispatchlab.files.file_kinds import FileKind, check_output
    from dispatchlab.pytorch.registry import live_capture
    from dispatchlab.questions.check.annotations import findings_sarif
    from dispatchlab.questions.check.findings import readiness_findings
    from dispatchlab.questions.lint.checkout import Checkout, checkout_of
    from dispatchlab.questions.readiness.blocks import readiness_view
    from dispatchlab.questions.readiness.known_failures import known_failures_text, load_known_failures
    from dispatchlab.questions.readiness.operator_readiness import COMPILED, RUN, Aspect
    from dispatchlab.questions.readiness.package_readiness import package_readiness

    if format != "sarif":
        refuse(context, ("root",), "is for the paths of --format sarif: leave it out")
    if format not in (None, *FOR_READING):
        refuse(context, ("show_all",), f"has no effect with --format {format}: leave it out")
    check_page(context, page, force=force, others=saved is not None or write_baseline is not None)
    runs = generate or inputs is not None or program is not None
    if not runs:
        refuse(context, ("time_limit", "jobs"), "is for runs on inputs, and nothing is run: leave it out")
    if program is None:
        refuse(context, ("saved",), "is for the inputs of --from-program, and there is none: leave it out")
    elif inputs is not None:
        raise click.UsageError("--inputs and --from-program both give inputs: give one of them")
    for path, kind in ((saved, FileKind.INPUTS), (write_baseline, FileKind.KNOWN_FAILURES)):
        if path is not None:
            check_output(path, kind, force=force)
    known = None if baseline is None else load_known_failures(baseline)
    if len(fail_on) > 1 and {"any", "nothing"} & set(fail_on):
        raise click.UsageError("--fail-on any and --fail-on nothing stand alone: name the columns, or one of these")
    required: tuple[Aspect, ...]
    match fail_on:
        case ():
            required = RUN if runs else COMPILED
        case ("any",):
            required = tuple(Aspect)
        case ("nothing",):
            required = ()
        case _:
            required = tuple(one for one in Aspect if one in fail_on)
    text = f"starting PyTorch, importing {' and '.join(packages)} and reading its registries"
    with working(text, asked=progress) as say, TemporaryDirectory() as folder:
        if program is not None:
            content = live_capture(packages, program)
            if saved is not None:
                save(saved, content, FileKind.INPUTS, force=force)
            inputs = f"{folder}/captured.safetensors"
            write_file(inputs, content)
        found = package_readiness(
            packages,
            operators=operators,
            required=required,
            inputs=inputs,
            generate=generate,
            limit_s=time_limit,
            jobs=jobs,
            started=lambda name: say(f"running {name}"),
        )
    found = replace(found, known=known)
    for each in found.notes:
        note(f"note: {each}")
    view = readiness_view(found, complete=show_all)
    if format == "sarif":
        checkout = checkout_of(".") if root is None else Checkout(root)
        out(findings_sarif("readiness", readiness_findings(found), found.packages, checkout))
    else:
        show_view(format, view)
    if write_baseline is not None:
        save(write_baseline, known_failures_text(found, known or ()), FileKind.KNOWN_FAILURES, force=force)
    if page is not None:
        save_page(page, view.html(), force=force)
    exit_with(found.exit_code)
