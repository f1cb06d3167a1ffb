"""The commands about all of a registry: parse, call, exit. What they do is in `commands`, imported when needed."""

from __future__ import annotations

from typing import Any

import click

from dispatchlab.cli_options import FORMAT_HELP, FORMATS, IMPORT_HELP, SEMANTICS_HELP, OneOf, exit_with

_LINT_FORMATS = click.Choice(["rich", "text", "json", "sarif"])
_SEMANTICS = click.Choice(["strict", "torch-2.13"])
_WAYS = click.Choice(["direct", "composite", "fallback", "ambiguous", "missing"])
_OPERATORS: Any = {"metavar": "OP", "multiple": True, "type": OneOf("operator", "operator")}
_LIVE_IMPORT_HELP = "Import MODULE first, for what it registers; with live alone. May be repeated."


@click.command()
@click.argument("source", metavar="[SOURCE]", default="torch-2.13", type=OneOf("source", "source"))
@click.option(
    "--key",
    metavar="KEY",
    required=True,
    type=OneOf("key", "row"),
    help="The runtime key of the backend, such as PrivateUse1.",
)
@click.option("--operator", "operators", help="Only this name or glob; may be repeated.", **_OPERATORS)
@click.option("--list", "listed", type=_WAYS, multiple=True, help="List the operators that are covered so.")
@click.option(
    "--what-if",
    "what_if",
    metavar="REGISTRATION",
    multiple=True,
    help="Show what 'impl OP KEY' or 'fallback KEY' would change; may be repeated, and adds up.",
)
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=_LIVE_IMPORT_HELP)
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
@click.pass_obj
def coverage(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Show which operators a backend can run: with its own kernel, through a composite, by fallback, or not at all.

    SOURCE is a recorded registry, the name of a bundled one, a scenario, or live, the PyTorch that is installed.

    \b
    Examples:
      dispatchlab coverage --key PrivateUse1
      dispatchlab coverage --key PrivateUse1 --list missing --operator 'aten::_foreach*'
      dispatchlab coverage --key PrivateUse1 --what-if "impl aten::mul.Tensor PrivateUse1"
      dispatchlab coverage live --key MPS --import my_package
    """
    from dispatchlab.commands.coverage import CoverageRequest, show_coverage

    exit_with(show_coverage(CoverageRequest(**options, color=color)))


@click.command()
@click.argument("registry", metavar="[REGISTRY]", default="torch-2.13", type=OneOf("source", "source"))
@click.option("--operator", "operators", help="Only this name or glob; may be repeated.", **_OPERATORS)
@click.option("--semantics", type=_SEMANTICS, default="strict", show_default=True, help="Which dispatcher it is about.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="How many processes. Default: as many as cores.")
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=_LIVE_IMPORT_HELP)
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Tell how far it has come, on standard error. Default: on a terminal.",
)
@click.pass_obj
def certify(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Prove for every operator of a registry that the order of its registrations does not matter.

    Where it does, both sequences are shown and whose registrations they are: a kernel that takes the place of another,
    or, under torch-2.13, a slot that calls use and no refresh reaches. REGISTRY is as SOURCE of coverage.

    Exit codes: 0 when everything is proved, 1 when the order of something matters, 3 when something is not decided.

    \b
    Examples:
      dispatchlab certify
      dispatchlab certify --semantics torch-2.13 --operator 'aten::*matmul*'
      dispatchlab certify today.registry --jobs 2 --format json
    """
    from dispatchlab.commands.certify import CertifyRequest
    from dispatchlab.commands.certify import certify as run

    exit_with(run(CertifyRequest(**options, color=color)))


@click.command()
@click.argument("sources", metavar="[SOURCE...]", nargs=-1, type=OneOf("source", "source"))
@click.option("--select", metavar="RULE", multiple=True, help="Only these rules, by code or name, with commas between.")
@click.option("--ignore", metavar="RULE", multiple=True, help="Not these rules.")
@click.option("--operator", "operators", help="Only this name or glob; may be repeated.", **_OPERATORS)
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=f"{_LIVE_IMPORT_HELP} Findings are its own.")
@click.option(
    "--against",
    metavar="SOURCE",
    type=OneOf("source", "source"),
    help="Leave out what is found there, too, and miss what was defined there.",
)
@click.option("--baseline", metavar="FILE", type=click.Path(), help="Findings that are accepted for now.")
@click.option(
    "--write-baseline", metavar="FILE", type=click.Path(), help="Accept what is found, in a file for --baseline."
)
@click.option("--explain", metavar="RULE", help="Print the page of a rule: what, why it hurts, how to mend it.")
@click.option("--format", type=_LINT_FORMATS, help=FORMAT_HELP)
@click.pass_obj
def lint(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Find what works today and will hurt somebody: kernels that dangle, shadow others, or disable a decomposition.

    SOURCE is a recorded registry, the name of a bundled one, a scenario, or live, the PyTorch that is installed, which
    is also meant when there is none. Exit codes: 0 when nothing is found, 1 when something is.

    \b
    Examples:
      dispatchlab lint live --import my_package
      dispatchlab lint my_package.yaml --select DL001,shadowed-kernel
      dispatchlab lint live --import my_package --baseline accepted.json --format sarif
      dispatchlab lint --explain DL004
    """
    from dispatchlab.commands.lint import LintRequest, run_lint

    exit_with(run_lint(LintRequest(**options, color=color)))


@click.command()
@click.argument("before", metavar="A", type=OneOf("source", "source"))
@click.argument("after", metavar="B", type=OneOf("source", "source"))
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=IMPORT_HELP)
@click.option("--semantics", metavar="NAME", type=OneOf("name", "semantics"), help=SEMANTICS_HELP)
@click.option("--tables/--no-tables", default=True, help="Compare the rows of computed tables, too. Default: yes.")
@click.option("--places/--no-places", default=True, help="Compare where kernels come from, too. Default: yes.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
def diff(**options: Any) -> None:
    """Show what came, went and changed from A to B: operators, schemas, kernels, rows of tables, fallbacks.

    A and B are recorded registries, names of bundled ones, scenarios, or `live`, the PyTorch that is installed.

    \b
    Examples:
      dispatchlab diff torch-2.13 live --import my_package
      dispatchlab diff before.dlreg after.dlreg --no-places --exit-code
    """
    from dispatchlab.commands.diff import RegistryDiffRequest, diff_registries

    exit_with(diff_registries(RegistryDiffRequest(**options)))


REGISTRY_COMMANDS: tuple[click.Command, ...] = (certify, coverage, diff, lint)
"""For the group of all commands."""
