"""`dispatchlab lint`: rules on a registry, a scenario or the running PyTorch, with a baseline for what is accepted."""

from __future__ import annotations

from typing import Literal

import click

from dispatchlab.commands.options import (
    IMPORT_HELP,
    SOURCE,
    baseline_option,
    check_baseline,
    force_option,
    import_option,
    operators_option,
    quiet_option,
    refuse,
    report_option,
    root_option,
    view_format_option,
    write_baseline_option,
)
from dispatchlab.commands.output import FOR_READING, Format, exit_with, note, out, reading, save, save_page, show_view


@click.command()
@click.argument("sources", metavar="[SOURCE...]", nargs=-1, type=SOURCE)
@click.option(
    "--select", metavar="RULE", multiple=True, help="Check only these rules, by code or name, separated by commas."
)
@click.option("--ignore", metavar="RULE", multiple=True, help="Skip these rules, by code or name, separated by commas.")
@operators_option
@import_option(f"{IMPORT_HELP} Only what it adds is reported.")
@click.option(
    "--against",
    metavar="SOURCE",
    type=SOURCE,
    help="Leave out the findings that SOURCE has, too. Report the operators that SOURCE defines and that "
    "have no def any more.",
)
@baseline_option
@write_baseline_option
@report_option(" of all findings")
@force_option
@click.option("--explain", metavar="RULE", help="Print the page of a rule: what it reports, why, and how to fix it.")
@click.option(
    "--all", "show_all", is_flag=True, help="Show all findings, not the 20 most harmful causes, with every operator."
)
@root_option
@view_format_option("sarif")
@quiet_option
@click.pass_context
def lint(
    context: click.Context,
    /,
    *,
    sources: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    operators: tuple[str, ...],
    imports: tuple[str, ...],
    against: str | None,
    baseline: str | None,
    write_baseline: str | None,
    page: str | None,
    force: bool,
    explain: str | None,
    show_all: bool,
    root: str | None,
    format: Format | Literal["sarif"] | None,
) -> None:
    """Report likely mistakes: kernels that dangle, override others, or disable a decomposition.

    SOURCE is a package, which is imported, a record of one or another scenario, a recorded registry, a bundled one's
    name, or `live`, the installed PyTorch. Default: live.
    Findings of one cause are shown as one, the most harmful first.
    Exit codes: 0 when nothing is found but information, 1 when an error or a warning is.

    \b
    Examples:
      dispatchlab lint my_package
      dispatchlab lint my_package.yaml --select DL001,shadowed-kernel
      dispatchlab lint my_package --baseline accepted.json --format sarif
      dispatchlab lint my_package --report findings.html
      dispatchlab lint --explain DL004
    """
    from dispatchlab.files.file_kinds import FileKind
    from dispatchlab.questions.lint.baseline import load_baseline, renewed_baseline
    from dispatchlab.questions.lint.blocks import lint_view
    from dispatchlab.questions.lint.checkout import Checkout, checkout_of
    from dispatchlab.questions.lint.rule import Identity
    from dispatchlab.questions.lint.rules import rule_named, selected
    from dispatchlab.questions.lint.run import lint_source
    from dispatchlab.questions.lint.sarif import sarif
    from dispatchlab.sources.find_sources import LIVE, check_sources

    if explain is not None:
        refuse(
            context, sorted(set(context.params) - {"explain", "sources"}), "has no effect with --explain: leave it out"
        )
        if sources:
            raise click.UsageError(f"--explain prints the page of a rule, and checks nothing: leave {sources[0]} out")
        out(rule_named(explain).page)
        return
    check_baseline(context, write_baseline, page, force=force)
    if format != "sarif":
        refuse(context, ("root",), "is for the paths of --format sarif: leave it out")
    if format not in (None, *FOR_READING):
        refuse(context, ("show_all",), f"has no effect with --format {format}, which has all findings: leave it out")
    accepted = frozenset[Identity]() if baseline is None else load_baseline(baseline)
    rules = selected(select, ignore)
    check_sources((*sources, against) if against is not None else sources)
    sources = tuple(dict.fromkeys(sources or (LIVE,)))
    with reading(sources, imports):
        reports = [
            lint_source(
                source,
                rules,
                operators=operators,
                imports=imports if source == LIVE or LIVE not in sources else (),
                against=against,
                accepted=accepted,
                report=note,
            )
            for source in sources
        ]
    view = lint_view(reports, complete=show_all)
    if format == "sarif":
        out(sarif(reports, checkout_of(".") if root is None else Checkout(root), imports=imports))
    else:
        show_view(format, view)
    if page is not None:
        save_page(page, view.html(), force=force)
    if write_baseline is not None:
        text, count = renewed_baseline(reports, accepted)
        save(write_baseline, text, FileKind.BASELINE, force=force)
        note(f"{write_baseline} accepts {count:,} findings")
        return
    exit_with(max(report.exit_code for report in reports))
