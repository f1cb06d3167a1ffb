"""`dispatchlab check`: all questions about a package, asked of one import."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from dispatchlab.commands.options import baseline_options, format_option, report_option
from dispatchlab.commands.output import Format, exit_with, note, progress_display, save, show_and_keep

_QUESTIONS = ("order", "lint", "trials", "upgrade", "drift")


@click.command()
@click.argument("packages", metavar="[PACKAGE...]", nargs=-1)
@click.option(
    "--fail-on",
    "fail_on",
    type=click.Choice([*_QUESTIONS, "nothing"]),
    multiple=True,
    help="Exit with 1 when this question has a finding; may be repeated. Default: all questions.",
)
@click.option(
    "--record",
    "records",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    help="Compare with the record in FILE; may be repeated. Default: the records of the project.",
)
@click.option(
    "--inputs",
    metavar="FILE",
    type=click.Path(),
    default=None,
    help='Run operators on the inputs of FILE.py, which has INPUTS = {"ns::name": [(args, kwargs)]}. '
    "Default: inputs generated from the schemas.",
)
@click.option("--run", "whole", is_flag=True, help="Run the trials that need a compiler, too.")
@click.option(
    "--no-submodules", is_flag=True, help="Import the packages alone, not the modules of them that register operators."
)
@baseline_options
@report_option(" of all findings")
@click.option(
    "--all", "show_all", is_flag=True, help="Show all findings, not the 20 most harmful causes, and every note."
)
@format_option("sarif", "github")
def check(
    *,
    packages: tuple[str, ...],
    fail_on: tuple[str, ...],
    records: tuple[str, ...],
    inputs: str | None,
    whole: bool,
    no_submodules: bool,
    baseline: str | None,
    write_baseline: str | None,
    page: str | None,
    show_all: bool,
    format: Format | Literal["sarif", "github"] | None,
) -> None:
    """Ask every question about a package: order, lint, trials, upgrade, drift from its record.

    Imports the packages in processes of their own. Default: those of the settings of the checkout around the
    current folder, or the module that has the name of the project. The settings are in [tool.dispatchlab] of
    pyproject.toml: packages, fail (the questions of --fail-on), baseline and record.

    order is `imports`, and the verdict of `permute` on what is registered; lint is `lint`; drift is `record --check`
    with a record that is committed; trials run each operator in a dozen ways; upgrade is `diff --for` with the newest
    PyTorch that dispatchlab knows. A question that cannot be asked says why.
    Exit codes: 0 when nothing is found but information, 1 when something is, 2 when a package cannot be imported or
    registers nothing, 3 when the order is not decided.

    \b
    Examples:
      dispatchlab check
      dispatchlab check my_package
      dispatchlab check my_package --format github
      dispatchlab check my_package --fail-on order --fail-on lint --report check.html
      dispatchlab check my_package --write-baseline accepted.json
    """
    from dispatchlab.files import FileKind, check_output
    from dispatchlab.questions.check.annotations import findings_sarif, github_annotations
    from dispatchlab.questions.check.blocks import check_view
    from dispatchlab.questions.check.check_packages import check_packages
    from dispatchlab.questions.check.report import Question
    from dispatchlab.questions.lint.baseline import baseline_text, load_baseline
    from dispatchlab.questions.lint.checkout import checkout_of
    from dispatchlab.questions.setup.check_subject import check_subject

    if len(fail_on) > 1 and "nothing" in fail_on:
        raise click.UsageError("--fail-on nothing stands alone: name the questions, or it")
    subject = check_subject(packages, report=note)
    if write_baseline is not None:
        check_output(write_baseline, FileKind.BASELINE)
    else:
        baseline = baseline or subject.baseline
    accepted = frozenset() if baseline is None else load_baseline(baseline)
    with progress_display() as display:
        report = check_packages(
            subject.packages,
            records=records or subject.records,
            fails=tuple(Question(one) for one in fail_on if one != "nothing") if fail_on else subject.fails,
            accepted=accepted,
            inputs="" if inputs is None else str(Path(inputs).resolve()),
            whole=whole,
            submodules=not no_submodules,
            stage=lambda text: display.stage("check", text),
        )
    found = (finding for group in report.groups for finding in group.findings)
    others = {
        "sarif": lambda: findings_sarif("check", found, report.packages, checkout_of(".")),
        "github": lambda: github_annotations(report, checkout_of(".")),
    }
    show_and_keep(format, check_view(report, complete=show_all), page, others=others)
    if write_baseline is not None and not report.nothing:
        kept = [one for one in accepted if one not in report.outdated]
        save(write_baseline, baseline_text(report.findings, kept), FileKind.BASELINE)
        count = len({*kept, *(finding.identity for finding in report.findings)})
        note(f"{write_baseline} accepts {count:,} findings")
        return
    exit_with(report.exit_code)
