"""`dispatchlab coverage`: what a backend can run, and what a registration would change."""

from __future__ import annotations

import click

from dispatchlab.commands.options import (
    ROW,
    SOURCE,
    check_page,
    force_option,
    import_option,
    operators_option,
    report_option,
    view_format_option,
)
from dispatchlab.commands.output import Format, note, save_page, show_view

_WAYS = click.Choice(["direct", "composite", "fallback", "ambiguous", "missing"])


@click.command()
@click.argument("source", metavar="[SOURCE]", required=False, type=SOURCE)
@click.option(
    "--key",
    metavar="KEY",
    required=True,
    type=ROW,
    help="Runtime key of the backend, such as PrivateUse1.",
)
@operators_option
@click.option("--list", "listed", type=_WAYS, multiple=True, help="List the operators with this coverage.")
@click.option(
    "--what-if",
    "what_if",
    metavar="REGISTRATION",
    multiple=True,
    help="Show what registering 'impl OP KEY' or 'fallback KEY' would change; may be repeated, each after "
    "those before it.",
)
@import_option()
@report_option(", with every operator unless --list selects some")
@force_option
@view_format_option
@click.pass_context
def coverage(
    context: click.Context,
    /,
    *,
    source: str | None,
    key: str,
    operators: tuple[str, ...],
    listed: tuple[str, ...],
    what_if: tuple[str, ...],
    imports: tuple[str, ...],
    page: str | None,
    force: bool,
    format: Format | None,
) -> None:
    """Show which operators a backend can run: with its own kernel, through a composite, by fallback, or not at all.

    SOURCE is a recorded registry, a bundled one's name, a scenario, `live`, the installed PyTorch, or a package, which
    is imported into that. Default: the bundled registry of the installed PyTorch, or else the newest; for a key of
    CUDA, one that has CUDA's kernels.

    \b
    Examples:
      dispatchlab coverage --key PrivateUse1
      dispatchlab coverage --key PrivateUse1 --list missing --operator 'aten::_foreach*'
      dispatchlab coverage --key PrivateUse1 --what-if "impl aten::mul.Tensor PrivateUse1"
      dispatchlab coverage my_package --key MPS
      dispatchlab coverage --key PrivateUse1 --report coverage.html
    """
    from dispatchlab.questions.coverage.blocks import coverage_view
    from dispatchlab.questions.coverage.coverage_on_lab import coverage_report
    from dispatchlab.records.backend_coverage import Way, runtime_key
    from dispatchlab.records.builds import default_registry
    from dispatchlab.sources.find_sources import chosen, recorded_from

    check_page(context, page, force=force)
    reason = ""
    if source is None:
        source, reason = default_registry([key])
    recorded = recorded_from(source, imports=imports, report=note)
    report = coverage_report(
        recorded,
        runtime_key(key, privateuse1=recorded.privateuse1),
        name=source,
        operators=tuple(chosen(recorded, operators)),
        listed=tuple(map(Way, listed)),
        what_if=what_if,
    )
    if reason:
        note(f"note: {reason}")
    view = coverage_view(report, torch=recorded.torch)
    show_view(format, view)
    if page is not None:
        save_page(page, view.html(), force=force)
