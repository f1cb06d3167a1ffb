"""`dispatchlab lint`: rules on a registry, a scenario or the running PyTorch, with a baseline for what is accepted."""

from __future__ import annotations

from typing import Literal

import click

from dispatchlab.commands.options import (
    LIVE,
    SOURCE,
    baseline_options,
    format_option,
    operators_option,
    report_option,
    with_package,
)
from dispatchlab.commands.output import Format, exit_with, note, out, reading, save, show_and_keep


@click.command()
@click.argument("sources", metavar="[SOURCE...]", nargs=-1, type=SOURCE)
@click.option(
    "--select", metavar="RULE", multiple=True, help="Check only these rules, by code or name, separated by commas."
)
@click.option("--ignore", metavar="RULE", multiple=True, help="Skip these rules, by code or name, separated by commas.")
@operators_option
@click.option(
    "--against",
    metavar="SOURCE",
    type=SOURCE,
    help="Leave out the findings that SOURCE has, too. Report the operators that SOURCE defines and that "
    "have no def any more.",
)
@baseline_options
@report_option(" of all findings")
@click.option("--explain", metavar="RULE", help="Print the page of a rule: what it reports, why, and how to fix it.")
@click.option(
    "--all", "show_all", is_flag=True, help="Show all findings, not the 20 most harmful causes, with every operator."
)
@format_option("sarif")
def lint(
    *,
    sources: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    operators: tuple[str, ...],
    against: str | None,
    baseline: str | None,
    write_baseline: str | None,
    page: str | None,
    explain: str | None,
    show_all: bool,
    format: Format | Literal["sarif"] | None,
) -> None:
    """Report likely mistakes: kernels that dangle, override others, or disable a decomposition.

    SOURCE is a package, which is imported and of which only what it adds is reported, a record of one or another
    scenario, a recorded registry, a bundled one's name, or `live`, the installed PyTorch. Default: live.
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
    from dispatchlab.files import FileKind, check_output
    from dispatchlab.questions.lint.baseline import load_baseline, renewed_baseline
    from dispatchlab.questions.lint.blocks import lint_view
    from dispatchlab.questions.lint.checkout import checkout_of
    from dispatchlab.questions.lint.rule import Identity
    from dispatchlab.questions.lint.rules import rule_named, selected
    from dispatchlab.questions.lint.run import lint_source
    from dispatchlab.questions.lint.sarif import sarif
    from dispatchlab.questions.sources.find_sources import check_sources

    if explain is not None:
        out(rule_named(explain).page)
        return
    if write_baseline is not None:
        check_output(write_baseline, FileKind.BASELINE)
    accepted = frozenset[Identity]() if baseline is None else load_baseline(baseline)
    rules = selected(select, ignore)
    named = [with_package(source) for source in sources or (LIVE,)]
    imports = tuple(name for _, packages in named for name in packages)
    found = tuple(dict.fromkeys(source for source, _ in named))
    check_sources(found if against is None else (*found, against))
    with reading(found, imports):
        reports = [
            lint_source(
                source,
                rules,
                operators=operators,
                imports=imports if source == LIVE else (),
                against=against,
                accepted=accepted,
                report=note,
            )
            for source in found
        ]
    view = lint_view(reports, complete=show_all)
    others = {"sarif": lambda: sarif(reports, checkout_of("."), imports=imports)}
    show_and_keep(format, view, page, others=others)
    if write_baseline is not None:
        text, count = renewed_baseline(reports, accepted)
        save(write_baseline, text, FileKind.BASELINE)
        note(f"{write_baseline} accepts {count:,} findings")
        return
    exit_with(max(report.exit_code for report in reports))
