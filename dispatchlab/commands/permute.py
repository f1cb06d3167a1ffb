"""`dispatchlab permute`: explore scenarios and compare with what they expect, or certify a registry."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import (
    SOURCE,
    Source,
    allow_import_option,
    engine_option,
    format_option,
    is_registry,
    operators_option,
    reach_checkout,
    report_option,
    semantics_option,
    subject,
)
from dispatchlab.commands.output import (
    Format,
    chosen_format,
    exit_with,
    note,
    out,
    progress_display,
    save,
    show_and_keep,
    show_view,
    warn,
)


@click.command(
    cls=Command,
    rare=("samples", "seed", "passes", "max_states", "timeout_s", "require_proof", "conform", "allow_import"),
    group="Bounds of the prover, and engines",
)
@click.argument("scenarios", metavar="[SCENARIO|REGISTRY]...", nargs=-1, type=SOURCE)
@operators_option
@engine_option("Engine to explore. Default: lab.", default=None)
@semantics_option
@click.option(
    "--walk",
    type=click.Choice(["auto", "graph", "orders", "sample"]),
    default="auto",
    show_default=True,
    help="How to explore. auto: prove by the strongest reduction that applies. graph: visit every state once, with no "
    "reduction. orders: run all n! times n! orders of registration and then release, which proves only these. "
    "sample: take random walks, for a state graph that is too large.",
)
@click.option("--samples", metavar="N", type=click.IntRange(min=1), help="With --walk sample: take N random walks.")
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Random seed.")
@click.option(
    "--passes",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --engine torch: take every edge N times, because the state cannot be read. Default: 8.",
)
@click.option("--max-states", metavar="N", type=click.IntRange(min=1), help="Explore at most N states.")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True, max=10**9),
    help="Stop after this many seconds. Default: 120 for each scenario with --engine torch, else no limit.",
)
@click.option("--require-proof", is_flag=True, help="Exit with 3 if no violation was found, but there is no proof.")
@click.option(
    "--conform",
    is_flag=True,
    help="Also compare the live engine with its model, step by step.",
)
@click.option("--package", "imports", metavar="MODULE", multiple=True, help="With --engine torch: import MODULE first.")
@click.option(
    "--save", metavar="FILE", type=click.Path(), help="Save the counterexample: a program (.py), or a scenario."
)
@click.option(
    "--snapshots", is_flag=True, help="Also show the result of every registration and release, in all orders."
)
@report_option(" of all scenarios")
@click.option("-v", "--details", is_flag=True, help="Print the whole report of every scenario, and what was explored.")
@format_option()
@allow_import_option
def permute(
    *,
    scenarios: tuple[str, ...],
    operators: tuple[str, ...],
    format: Format | None,
    details: bool,
    snapshots: bool,
    page: str | None,
    **options: Any,
) -> None:
    """Prove that the order of registrations does not matter, or show the shortest counterexample.

    A scenario is a YAML file of registrations (its fields: `dispatchlab schema`). A folder stands for all scenarios
    below it. A registry is a file, a bundled registry's name, a package, or `live` (the installed PyTorch). permute
    checks each operator of a registry; for a package, only its own operators. With --operator, it checks single
    operators of a scenario. Default: the packages in [tool.dispatchlab] of the checkout, or else its one package; with
    --operator, the bundled registry of the installed PyTorch.

    The exit code is the highest of all: 0 as the scenario expects, 1 not as expected, 2 bad input, 3 a limit was
    reached (or there is no proof, with --require-proof), 4 nondeterministic, 5 the engine crashed; 130 after Ctrl-C,
    with the results so far.

    \b
    Examples:
      dispatchlab permute scenarios/
      dispatchlab permute scenario.yaml --semantics torch-2.13 --save found.yaml
      dispatchlab permute torch-2.13 --operator 'aten::*matmul*'
      dispatchlab permute my_package --report certificates.html
    """
    from dispatchlab.scenario.folders import scenario_files

    if not scenarios or is_registry(scenarios) or operators:
        if scenarios and scenarios[0] != "." and os.path.isdir(scenarios[0]) and not is_registry(scenarios):
            scenarios = scenario_files(scenarios, report=note)
        if len(scenarios) > 1:
            about = f"but several were named: name one, such as {scenarios[0]}"
            raise click.UsageError(f"--operator needs one registry or scenario, {about}")
        found = subject(scenarios[0] if scenarios else None if operators else ".", operators=operators)
        if found.name == ".":
            raise click.UsageError(_NO_SOURCE)
        _refuse({"operators", "semantics", "format", "page"}, f"{found.name} is a registry")
        _certify(found, operators, options["semantics"], page, format)
    from dispatchlab.errors import DispatchLabError
    from dispatchlab.files import FileKind
    from dispatchlab.questions.order.outcomes import Outcomes, check_files
    from dispatchlab.questions.order.run_scenario import RunOptions, run_scenarios

    if options["imports"]:
        reach_checkout()
    asked, files, interrupted = RunOptions(**options), scenario_files(scenarios, report=note), False
    check_files(files, asked, snapshots=snapshots)
    is_one, shows_operators = len(files) == 1, chosen_format(format) not in ("text", "json")
    shown = Outcomes(
        files,
        asked,
        details=details,
        with_snapshots=snapshots,
        with_operators=page is not None or shows_operators,
        shows_operators=shows_operators,
        report=warn,
    )
    try:
        with (
            progress_display() as display,
            closing(run_scenarios(files, asked, progress=display.update, finished=display.finish)) as outcomes,
        ):
            for _, outcome in outcomes:
                view = shown.take(outcome)
                if view is None or isinstance(outcome, DispatchLabError):
                    continue
                interrupted |= outcome.interrupted
                try:
                    show_view(format, view, paged=is_one)
                finally:  # also when the reader of the pipe has gone
                    for path, text, kind in shown.files_of(outcome):
                        save(path, text, kind)
    except KeyboardInterrupt:
        warn("interrupted")
        interrupted = True
    if not is_one:
        if chosen_format(format) == "json":
            note(shown.summary)
        else:
            out(f"\n{shown.summary}\n")
    if page is not None:
        from dispatchlab.views.html.backend import html_page

        save(page, html_page(shown.document(interrupted=interrupted)), FileKind.PAGE)
    exit_with(130 if interrupted else shown.code)


_NO_SOURCE = """\
there is no package in this folder: name what to permute, such as
  dispatchlab permute my_package
  dispatchlab permute scenarios/
  dispatchlab permute torch-2.13 --operator 'aten::add*'
  dispatchlab permute torch-2.13    (all operators of PyTorch; takes half a minute)"""


def _refuse(known: set[str], why: str) -> None:
    """Refuse an option that is about scenarios alone."""
    context = click.get_current_context()
    for param in context.command.params:
        given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if isinstance(param, click.Option) and given and param.name not in known:
            raise click.UsageError(f"{param.opts[-1]} is for scenarios, and {why}")


def _certify(
    source: Source,
    operators: tuple[str, ...],
    semantics: str | None,
    page: str | None,
    format: Format | None,
) -> NoReturn:
    """Certify the operators of a registry."""
    from dispatchlab.questions.certify.blocks import certification_view
    from dispatchlab.questions.certify.certify_registry import certification_of_own
    from dispatchlab.questions.sources.find_sources import recorded_from

    if semantics == "pr35061":
        raise click.UsageError("--semantics pr35061 cannot be certified: name strict or a PyTorch, such as torch-2.13")
    name = " and ".join(source.imports) or source.name
    with progress_display() as display:
        display.stage(name, "reading")
        recorded = recorded_from(source.name, imports=source.imports, report=note)
        found = certification_of_own(
            recorded,
            name,
            operators=operators,
            semantics=semantics,
            progress=lambda done: display.update(name, done),
            partial=True,
        )
        display.finish(name)
    show_and_keep(format, certification_view(found, torch=recorded.torch), page)
    exit_with(130 if found.interrupted else found.exit_code)
