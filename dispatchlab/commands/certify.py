"""`dispatchlab certify`: a certificate for every operator of a registry, worked out in several processes."""

from __future__ import annotations

import os
from typing import Literal

import click

from dispatchlab.commands.options import (
    JOBS,
    SOURCE,
    OneOf,
    check_page,
    cluster_option,
    force_option,
    import_option,
    operators_option,
    progress_option,
    quiet_option,
    refuse,
    report_option,
    view_format_option,
)
from dispatchlab.commands.output import Format, exit_with, note, progress_display, save_page, show_view


def _with_certificates(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value == "pr35061":
        raise click.BadParameter("its tables are not certified: name strict or a PyTorch, such as torch-2.13")
    return value


@click.command()
@click.argument("registry", metavar="[REGISTRY]", required=False, type=SOURCE)
@operators_option
@click.option(
    "--semantics",
    metavar="NAME",
    type=OneOf("name", "semantics"),
    callback=_with_certificates,
    help="Semantics of the dispatcher to certify: strict, a PyTorch, such as torch-2.13, or torch for the model of the "
    "installed PyTorch, or else the newest. Default: the PyTorch of the registry; strict where it names none.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=JOBS,
    help="Use at most N processes. Default, and most: one for each core.",
)
@click.option(
    "--walk",
    type=click.Choice(["auto", "graph"]),
    default="auto",
    show_default=True,
    help="auto: prove by the strongest reduction that applies. graph: explore everything together that reaches the "
    "slots of one refresh, neither by roles nor by symmetry.",
)
@cluster_option("Explore neighbourhoods and certify operators")
@import_option()
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Certify every operator. Default: of a recording, those that are not as in the registry that it was made on.",
)
@report_option()
@force_option
@view_format_option()
@progress_option
@quiet_option
@click.pass_context
def certify(
    context: click.Context,
    /,
    *,
    registry: str | None,
    operators: tuple[str, ...],
    semantics: str | None,
    jobs: int | None,
    walk: Literal["auto", "graph"],
    cluster: str | None,
    imports: tuple[str, ...],
    everything: bool,
    page: str | None,
    force: bool,
    format: Format | None,
    progress: bool | None,
) -> None:
    """Prove for every operator of a registry that the order of its registrations does not matter.

    Where it does, shows both sequences and the owners of the registrations. The reason is a kernel that overrides
    another, or a slot that calls use and that PyTorch does not refresh.

    REGISTRY is a file, a bundled registry's name, a scenario, `live`, the installed PyTorch, or a package, which is
    imported into that. Default: the bundled registry of the installed PyTorch, or else the newest. Of a file, a record
    of packages and `live`, only what differs from the bundled registry of its PyTorch is certified, without what
    PyTorch registers for itself when a part of it is first used, unless --all or --operator is given.

    Exit codes: 0 when every operator is order-independent, 1 when one is order-dependent, 3 when one is not decided;
    130 after Ctrl-C, with what was certified until then.

    \b
    Examples:
      dispatchlab certify
      dispatchlab certify --semantics torch-2.13 --operator 'aten::*matmul*'
      dispatchlab certify my_package
      dispatchlab certify today.registry --jobs 2 --format json
      dispatchlab certify today.registry --report certificates.html
      dispatchlab certify --cluster tcp://10.0.0.1:8786
    """
    from dispatchlab.processes.machine import most_jobs
    from dispatchlab.questions.certify.blocks import certification_view
    from dispatchlab.questions.certify.certify_registry import certification_of_own
    from dispatchlab.records.builds import default_registry
    from dispatchlab.sources.find_sources import is_scenario_source, recorded_from

    check_page(context, page, force=force)
    if cluster is not None:
        refuse(
            context, ("jobs",), "is for processes of this machine, and --cluster has its own: leave one of the two out"
        )
    reason = ""
    if registry is None:
        registry, reason = default_registry()
    with progress_display(progress) as display:
        display.stage(registry, "reading")
        recorded = recorded_from(registry, imports=imports, report=note)
        if reason:
            note(f"note: {reason}")
        found = certification_of_own(
            recorded,
            registry,
            operators=operators,
            everything=everything,
            semantics=semantics,
            jobs=min(jobs or os.cpu_count() or 1, most_jobs()),
            cluster=cluster,
            progress=lambda done: display.update(registry, done),
            partial=True,
            walk=walk,
        )
        display.finish(registry)
    if is_scenario_source(registry):
        from dispatchlab.scenario.load import load_scenario

        scenario = load_scenario(registry)
        unexplored = len(scenario.python)
        if unexplored:
            number = f"{unexplored:,} registration{'' if unexplored == 1 else 's'}"
            note(f"note: this is about the C++ layer; {number} of Python in {registry} not explored")
    view = certification_view(found, torch=recorded.torch)
    show_view(format, view)
    if page is not None:
        save_page(page, view.html(), force=force)
    exit_with(130 if found.interrupted else found.exit_code)
