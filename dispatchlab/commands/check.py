"""`dispatchlab check`: all questions about a package, asked of one import; lint of a scenario or a registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, NoReturn

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import (
    LIVE,
    SOURCE,
    baseline_options,
    format_option,
    operators_option,
    reach_checkout,
    report_option,
)
from dispatchlab.commands.output import (
    Format,
    exit_with,
    note,
    progress_display,
    reading,
    save,
    show_and_keep,
    show_view,
    working,
)
from dispatchlab.views.formatting import counted

_QUESTIONS = ("order", "lint", "trials", "upgrade", "drift")


@click.command(cls=Command)
@click.argument("names", metavar="[PACKAGE|SOURCE]...", nargs=-1, type=SOURCE)
@click.option("--only", type=click.Choice(_QUESTIONS), multiple=True, help="Ask only this question; may be repeated.")
@click.option("--select", metavar="RULE", multiple=True, help="Show only findings of RULE, such as DL004 or WHY3.")
@click.option("--ignore", metavar="RULE", multiple=True, help="Hide findings of RULE; may be repeated.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "information"]),
    default="warning",
    show_default=True,
    help="Exit with 1 for a finding of this level or a worse one.",
)
@click.option("--run", "whole", is_flag=True, help="Also run the trials that need a compiler.")
@click.option(
    "--inputs",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='Run operators on the inputs in FILE.py. It has INPUTS = {"ns::name": [(args, kwargs)]}. '
    "Default: the inputs of your tests that `pytest --why` stored, or else inputs made from the schemas.",
)
@click.option("--no-submodules", is_flag=True, help="Import only the packages, not their submodules.")
@click.option("--orders", is_flag=True, help="Only import the packages in every order, and show the differences.")
@operators_option
@click.option("--against", metavar="SOURCE", type=SOURCE, help="With lint: hide the findings that SOURCE also has.")
@baseline_options
@report_option(" of all findings")
@click.option("--all", "show_all", is_flag=True, help="Show all findings and every note, not only 20 causes.")
@format_option("sarif", "github")
def check(
    *,
    names: tuple[str, ...],
    only: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    whole: bool,
    no_submodules: bool,
    inputs: str | None,
    orders: bool,
    operators: tuple[str, ...],
    against: str | None,
    baseline: str | None,
    write_baseline: str | None,
    page: str | None,
    show_all: bool,
    format: Format | Literal["sarif", "github"] | None,
) -> None:
    """Find mistakes in a package: order, lint, trials, upgrade, drift from its record.

    Imports the packages in new processes. Default: the packages of the checkout around the current folder. For a
    scenario, a record, a registry or `live` (the installed PyTorch), check asks only lint.

    order compares orders of imports and of registrations; lint finds likely mistakes; trials run each operator in a
    dozen ways; upgrade compares with the newest PyTorch that dispatchlab knows; drift compares with a committed record.
    `dispatchlab rule DL004` explains a rule. Settings are in [tool.dispatchlab] of pyproject.toml: packages, fail,
    baseline, record, select, ignore, inputs, per-operator-ignores. The comment `# dispatchlab: ignore[DL004]` at the
    line of a registration hides a finding.

    Exit codes: 0: no error and no warning; 1: an error or a warning (or what --fail-on says), or no trial could run,
    or an import fails because of the dispatcher; 2: a package cannot be imported for another reason, or registers
    nothing; 5: an import ends its process.

    \b
    Examples:
      dispatchlab check
      dispatchlab check my_package --format github
      dispatchlab check my_package --only lint --ignore DL010
      dispatchlab check package_a package_b --orders
      dispatchlab check my_package --write-baseline accepted.json
    """
    from dispatchlab.files import FileKind, check_output
    from dispatchlab.questions.check.annotations import findings_sarif, github_annotations
    from dispatchlab.questions.check.blocks import check_view
    from dispatchlab.questions.check.check_packages import check_packages
    from dispatchlab.questions.check.check_sources import lint_sources
    from dispatchlab.questions.check.report import Question
    from dispatchlab.questions.check.selection import selection_of
    from dispatchlab.questions.lint.baseline import baseline_text, load_baseline
    from dispatchlab.questions.lint.checkout import checkout_of
    from dispatchlab.questions.lint.rule import Level
    from dispatchlab.questions.setup.check_subject import check_subject

    found = check_subject(names, report=note)
    selection = selection_of(found.settings, select, ignore, operators)
    if not found.packages and not found.sources:
        raise click.UsageError(_NO_SOURCE)
    if orders:
        if format == "sarif" or format == "github":
            raise click.UsageError(f"--format {format} is for findings: leave out --orders")
        _orders(found.packages, format)
    is_lint = bool(found.sources) or (only == ("lint",) and bool(operators or against))
    if found.sources and only not in ((), ("lint",)):
        raise click.UsageError(f"{found.sources[0]} is not a package, so only lint can be asked")
    if against and not is_lint:
        raise click.UsageError("--against is for lint: add --only lint")
    if write_baseline is not None:
        check_output(write_baseline, FileKind.BASELINE)
    else:
        baseline = baseline or found.baseline
    accepted = frozenset() if baseline is None else load_baseline(baseline)
    if is_lint:
        sources = found.sources or (LIVE,)
        with reading(sources, found.packages):
            report = lint_sources(
                sources,
                selection,
                imports=found.packages,
                operators=operators,
                against=against,
                accepted=accepted,
                report=note,
            )
    else:
        with progress_display() as display:
            report = check_packages(
                found.packages,
                records=found.records,
                fails=found.fails,
                accepted=accepted,
                questions=tuple(map(Question, only)) or tuple(Question),
                selection=selection,
                inputs=found.settings.inputs if inputs is None else str(Path(inputs).resolve()),
                whole=whole,
                submodules=not no_submodules,
                stage=lambda text: display.stage("check", text),
            )
    report = replace(report, fail_on=Level(fail_on))
    checkout = checkout_of(".")
    others = {
        "sarif": lambda: findings_sarif(
            "check", [one for group in report.groups for one in group.findings], report.packages, checkout
        ),
        "github": lambda: github_annotations(report, checkout),
    }
    show_and_keep(format, check_view(report, complete=show_all), page, others=others)
    if write_baseline is not None and not report.nothing:
        kept = {*accepted} - {*report.outdated} | {finding.identity for finding in report.findings}
        save(write_baseline, baseline_text(kept), FileKind.BASELINE)
        note(f"{write_baseline} accepts {counted(len(kept), 'finding')}")
        return
    if report.groups and not report.exit_code:
        worst = report.groups[0].level
        note(f"note: the exit code is 0, as the worst finding is {worst}; to fail on it: --fail-on {worst}")
    exit_with(report.exit_code)


_NO_SOURCE = """\
there is no package in this folder: name what to check, such as
  dispatchlab check my_package
  dispatchlab check scenario.yaml
  dispatchlab check live    (the installed PyTorch)"""


def _orders(packages: tuple[str, ...], format: Format | None) -> NoReturn:
    """Show what differs between orders of imports."""
    from dispatchlab.questions.imports.blocks import import_orders_view
    from dispatchlab.questions.imports.import_orders import compare_import_orders

    reach_checkout()
    with working("starting PyTorch") as say:
        found = compare_import_orders(packages, started=say)
    show_view(format, import_orders_view(found))
    exit_with(found.exit_code)
