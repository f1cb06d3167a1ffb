"""`dispatchlab certify`: a certificate for every operator of a registry."""

from __future__ import annotations

import click

from dispatchlab.commands.options import (
    SEMANTICS,
    SOURCE,
    format_option,
    operators_option,
    report_option,
    with_package,
)
from dispatchlab.commands.output import Format, exit_with, note, progress_display, show_and_keep


@click.command()
@click.argument("registry", metavar="[REGISTRY]", required=False, type=SOURCE)
@operators_option
@click.option(
    "--semantics",
    metavar="NAME",
    type=SEMANTICS,
    help="Semantics of the dispatcher to certify: strict, a PyTorch, such as torch-2.13, or torch for the model of the "
    "installed PyTorch, or else the newest. Default: the PyTorch of the registry; strict where it names none.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Certify every operator. Default: of a recording, those that are not as in the registry that it was made on.",
)
@report_option()
@format_option()
def certify(
    *,
    registry: str | None,
    operators: tuple[str, ...],
    semantics: str | None,
    everything: bool,
    page: str | None,
    format: Format | None,
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
      dispatchlab certify today.dlreg --format json
      dispatchlab certify today.dlreg --report certificates.html
    """
    from dispatchlab.questions.certify.blocks import certification_view
    from dispatchlab.questions.certify.certify_registry import certification_of_own
    from dispatchlab.questions.sources.find_sources import recorded_from
    from dispatchlab.registries.builds import default_registry

    if semantics == "pr35061":
        raise click.UsageError("--semantics pr35061: its tables are not certified: name strict or a PyTorch")
    imports: tuple[str, ...] = ()
    if registry is None:
        registry, reason = default_registry()
        note(f"note: {reason}")
    else:
        registry, imports = with_package(registry)
    with progress_display() as display:
        display.stage(registry, "reading")
        recorded = recorded_from(registry, imports=imports, report=note)
        found = certification_of_own(
            recorded,
            registry,
            operators=operators,
            everything=everything,
            semantics=semantics,
            progress=lambda done: display.update(registry, done),
            partial=True,
        )
        display.finish(registry)
    show_and_keep(format, certification_view(found, torch=recorded.torch), page)
    exit_with(130 if found.interrupted else found.exit_code)
