"""`dispatchlab check`: all questions about a package, asked of one import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from dispatchlab.commands.options import (
    baseline_option,
    check_baseline,
    force_option,
    import_timeout_option,
    quiet_option,
    refuse,
    report_option,
    root_option,
    view_format_option,
    write_baseline_option,
)
from dispatchlab.commands.output import (
    FOR_READING,
    Format,
    exit_with,
    note,
    out,
    progress_display,
    save,
    save_page,
    show_view,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dispatchlab.adopt.checkout import Checkout
    from dispatchlab.questions.check.configuration import Settings

_QUESTIONS = ("order", "lint", "upgrade", "drift")


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
@baseline_option
@write_baseline_option
@report_option(" of all findings")
@force_option
@click.option(
    "--all", "show_all", is_flag=True, help="Show all findings, not the 20 most harmful causes, and every note."
)
@root_option
@view_format_option("sarif", "github")
@import_timeout_option
@quiet_option
@click.pass_context
def check(
    context: click.Context,
    /,
    *,
    packages: tuple[str, ...],
    fail_on: tuple[str, ...],
    records: tuple[str, ...],
    baseline: str | None,
    write_baseline: str | None,
    page: str | None,
    force: bool,
    show_all: bool,
    root: str | None,
    format: Format | Literal["sarif", "github"] | None,
) -> None:
    """Ask every question about a package: order, lint, upgrade, drift from its record.

    Imports the packages once, in a process of its own. Default: those of the settings of the checkout around the
    current folder, or the module that has the name of the project. The settings are in [tool.dispatchlab] of
    pyproject.toml, or in dispatchlab.toml: packages, fail (the questions of --fail-on), baseline and record.

    order is the verdict of `permute` on what is registered, lint is `lint`, drift is `record --check` with
    a record that is committed, and upgrade is `diff --for` with the newest PyTorch that dispatchlab knows. A question
    that cannot be asked says why.
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
    from pathlib import Path

    from dispatchlab.adopt.checkout import find_checkout
    from dispatchlab.files.file_kinds import FileKind
    from dispatchlab.questions.check.annotations import findings_sarif, github_annotations
    from dispatchlab.questions.check.blocks import check_view
    from dispatchlab.questions.check.check_packages import check_packages
    from dispatchlab.questions.check.configuration import settings_of
    from dispatchlab.questions.check.report import Question
    from dispatchlab.questions.lint.baseline import baseline_text, load_baseline
    from dispatchlab.questions.lint.checkout import Checkout as Places
    from dispatchlab.questions.lint.checkout import checkout_of

    check_baseline(context, write_baseline, page, force=force)
    if format not in ("sarif", "github"):
        refuse(context, ("root",), "is for the paths of --format sarif and github: leave it out")
    if format not in (None, *FOR_READING):
        refuse(context, ("show_all",), f"has no effect with --format {format}: leave it out")
    if len(fail_on) > 1 and "nothing" in fail_on:
        raise click.UsageError("--fail-on nothing stands alone: name the questions, or it")
    checkout = find_checkout(Path.cwd())
    settings = settings_of(checkout.root)
    named = packages or settings.packages or _module_of(checkout)
    is_own = _are_of(named, checkout, settings)
    files = records or (() if not is_own else settings.record or _records_of_pytest(checkout.root))
    accepted_file = baseline or (settings.baseline if is_own and write_baseline is None else None)
    accepted = frozenset() if accepted_file is None else load_baseline(accepted_file)
    fails = (
        tuple(Question(one) for one in fail_on if one != "nothing") if fail_on else settings.fail if is_own else None
    )
    if is_own:
        _make_importable(context, named, checkout)
    with progress_display(None) as display:
        report = check_packages(
            named,
            records=files,
            fails=tuple(Question) if fails is None else fails,
            accepted=accepted,
            stage=lambda text: display.stage("check", text),
        )
    view = check_view(report, complete=show_all)
    places = checkout_of(".") if root is None else Places(root)
    match format:
        case "sarif":
            found = (finding for group in report.groups for finding in group.findings)
            out(findings_sarif("check", found, report.packages, places))
        case "github":
            out(github_annotations(report, places))
        case _:
            show_view(format, view)
    if page is not None:
        save_page(page, view.html(), force=force)
    if write_baseline is not None and not report.nothing:
        kept = [one for one in accepted if one not in report.outdated]
        save(write_baseline, baseline_text(report.findings, kept), FileKind.BASELINE, force=force)
        count = len({*kept, *(finding.identity for finding in report.findings)})
        note(f"{write_baseline} accepts {count:,} findings")
        return
    exit_with(report.exit_code)


def _module_of(checkout: Checkout) -> tuple[str, ...]:
    """The module that has the name of the project."""
    if checkout.certain:
        return checkout.modules[:1]
    found = f"has several packages, {', '.join(checkout.modules)}" if checkout.modules else "has no package"
    raise click.UsageError(
        f"{checkout.root} {found}: name the module that registers operators, or the modules in [tool.dispatchlab] of "
        'pyproject.toml: packages = ["my_package"]'
    )


def _are_of(packages: tuple[str, ...], checkout: Checkout, settings: Settings) -> bool:
    """Whether these packages are those of the checkout, so that its settings are about them."""
    own = {name.partition(".")[0] for name in (*checkout.modules, *settings.packages)}
    return {name.partition(".")[0] for name in packages} <= own


def _records_of_pytest(root: Path) -> tuple[str, ...]:
    """The records that pytest compares with what is registered."""
    from dispatchlab.adopt.first_files import RECORDS
    from dispatchlab.adopt.pytest_option import PytestConfigError, folders_of, pytest_options

    try:
        values = pytest_options(root)
    except PytestConfigError:  # it is pytest that says what is wrong with it
        return ()
    return tuple(str(root / one) for one in folders_of(values.get(RECORDS, [])))


def _make_importable(context: click.Context, packages: tuple[str, ...], checkout: Checkout) -> None:
    """Have the modules of the checkout found where they are not installed, and say so."""
    import sys
    from importlib.util import find_spec

    missing = [name for name in packages if find_spec(name.partition(".")[0]) is None]
    if missing:
        sys.path.append(str(checkout.source))
        context.call_on_close(lambda: sys.path.remove(str(checkout.source)))
        note(f"note: {' and '.join(missing)} not installed, so imported from {checkout.source}")
