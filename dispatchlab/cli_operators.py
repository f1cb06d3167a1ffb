"""The commands about some operators: what the dispatcher knows of them, does with a call, and makes of any order.

Parse, call, exit. What they do is in `commands`, imported when needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dispatchlab.cli_options import FORMAT_HELP, FORMATS, IMPORT_HELP, SEMANTICS_HELP, OneOf, exit_with

if TYPE_CHECKING:
    from dispatchlab.commands.output import Format

_ENGINES = click.Choice(["lab", "torch"])
_ALLOW_IMPORT_HELP = "Import the functions that a scenario names. That runs their code: only for files you trust."


@click.command()
@click.argument("operator", metavar="OP", required=False, type=OneOf("operator", "operator"))
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=OneOf("source", "source"),
    help="A scenario, a recorded registry, or the name of a bundled one. Default: torch-2.13, which is bundled.",
)
@click.option(
    "--after",
    metavar="SEQUENCE",
    help="Run these steps first, for example '+0 +2 -0'. Default: register all, in the order of the file.",
)
@click.option("--engine", type=_ENGINES, default="lab", show_default=True, help="The engine that is asked.")
@click.option("--semantics", metavar="NAME", type=OneOf("name", "semantics"), help=SEMANTICS_HELP)
@click.option(
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    type=OneOf("key", "row"),
    help="Show this row of the table; may be repeated.",
)
@click.option("--list", "listing", is_flag=True, help="List the operators of a registry, a line each.")
@click.option("--dangling", is_flag=True, help="List the operators of a registry that have no def.")
@click.option("--overridden", is_flag=True, help="List the kernels of a registry that took the place of another.")
@click.option("--counts", is_flag=True, help="Show how many kernels a registry has at each key.")
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=IMPORT_HELP)
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
@click.option("--allow-import", is_flag=True, help=_ALLOW_IMPORT_HELP)
@click.pass_obj
def dump(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Show what the dispatcher knows of an operator: its kernels, and its table with the reasons.

    OP is a name (test::foo.out), a name without overload when that is unique, or a glob ('test::*'). The operators are
    those of PyTorch 2.13 unless --from says otherwise; PyTorch need not be installed for it. When a
    registration of a scenario is refused on the way, standard error says so, the remaining steps still run, and the
    exit code stays 0.

    With --engine torch and without --from, it is the operators of the PyTorch that is installed that are shown.

    --format text prints the dump, an empty line, and the computed table.

    \b
    Examples:
      dispatchlab dump aten::add.Tensor
      dispatchlab dump 'aten::add*' --list --key Meta
      dispatchlab dump test::foo --from scenario.yaml
      dispatchlab dump foo --from scenario.yaml --after '+0 +1 -0' --semantics torch-2.13
      dispatchlab dump 'test::*' --from scenario.yaml --key CPU --key AutogradCPU --format text
      dispatchlab dump aten::add.Tensor --engine torch --import my_package
    """
    from dispatchlab.commands.dump import dump_anything

    exit_with(dump_anything(options, color=color))


@click.command()
@click.argument("scenarios", metavar="SCENARIO...", nargs=-1, required=True, type=OneOf("scenario", "scenario"))
@click.option("--engine", type=_ENGINES, help="The engine that is explored. Default: lab.")
@click.option("--semantics", metavar="NAME", type=OneOf("name", "semantics"), help=SEMANTICS_HELP)
@click.option(
    "--walk",
    type=click.Choice(["graph", "orders", "sample"]),
    default="graph",
    show_default=True,
    help="graph: visit every state once, a proof. orders: run all n! times n! orders of registration and release. "
    "sample: take random walks, where the state graph is too large.",
)
@click.option("--samples", metavar="N", type=click.IntRange(min=1), help="How many random walks --walk sample takes.")
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Random seed.")
@click.option(
    "--passes",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many times to take every edge on an engine whose state cannot be read. Default: 8.",
)
@click.option("--max-states", metavar="N", type=click.IntRange(min=1), help="Stop at this many states.")
@click.option(
    "--timeout", "timeout_s", metavar="SECONDS", type=click.FloatRange(min=0), help="Stop after so many seconds."
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many scenarios to explore at once.",
)
@click.option("--require-proof", is_flag=True, help="Exit with 3 when nothing was found but nothing was proved.")
@click.option("--conform", is_flag=True, help="Hold the live engine to its model besides, step by step.")
@click.option(
    "--every-table",
    is_flag=True,
    help="With --engine torch: read the table after every step, which takes twice as long.",
)
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=IMPORT_HELP)
@click.option(
    "--replay", metavar="FILE", type=click.Path(), help="Run a saved counterexample again instead of exploring."
)
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(),
    help="Save the counterexample: FILE.py is a program, FILE.scenario.yaml a small scenario, else it is for --replay.",
)
@click.option(
    "--graph", metavar="FILE.dot|.svg", type=click.Path(), help="Draw the states with the counterexample marked."
)
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Tell how far it has come, on standard error. Default: on a terminal.",
)
@click.option("--allow-import", is_flag=True, help=_ALLOW_IMPORT_HELP)
@click.pass_obj
def permute(
    color: bool,  # noqa: FBT001  click passes its object by place
    /,
    *,
    scenarios: tuple[str, ...],
    jobs: int,
    format: Format | None,
    progress: bool | None,
    **options: Any,
) -> None:
    """Find out whether the order of registrations matters.

    A folder stands for all scenarios below it. Each scenario has a report of its own, and the exit code is the highest
    of theirs: 0 as the scenario expects, 1 not as expected, 2 bad input, 3 a bound was hit (or there is no proof and
    --require-proof), 4 nondeterministic, 5 the engine crashed; 130 after Ctrl-C, with what was covered until then.

    \b
    Examples:
      dispatchlab permute scenario.yaml
      dispatchlab permute scenarios/ --jobs 2 --format json
      dispatchlab permute scenario.yaml --semantics torch-2.13 --save found.replay
      dispatchlab permute scenario.yaml --replay found.replay
      dispatchlab permute scenario.yaml --graph states.svg
    """
    from dispatchlab.analysis.run_scenario import Asked
    from dispatchlab.commands.permute import PermuteRequest
    from dispatchlab.commands.permute import permute as run

    request = PermuteRequest(
        scenarios=scenarios,
        asked=Asked(**options),
        jobs=jobs,
        format=format,
        color=color,
        progress=progress,
    )
    exit_with(run(request))


@click.command()
@click.argument("operator", metavar="OP", type=OneOf("operator", "operator"))
@click.option(
    "--arg",
    "args",
    metavar="WORDS",
    multiple=True,
    help="What an argument is like, in the order of the schema, or NAME=WORDS. Default: each tensor is on the CPU.",
)
@click.option(
    "--exclude", metavar="KEY", multiple=True, type=OneOf("key", "row"), help="A guard excludes KEY; may be repeated."
)
@click.option(
    "--include", metavar="KEY", multiple=True, type=OneOf("key", "row"), help="A guard includes KEY; may be repeated."
)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=OneOf("source", "source"),
    help="A scenario, a recorded registry, the name of a bundled one, or live. Default: torch-2.13, which is bundled.",
)
@click.option("--engine", type=_ENGINES, default="lab", show_default=True, help="The engine that is asked.")
@click.option("--semantics", metavar="NAME", type=OneOf("name", "semantics"), help=SEMANTICS_HELP)
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=IMPORT_HELP)
@click.option("--format", type=FORMATS, help=FORMAT_HELP)
@click.pass_obj
def explain(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Show which kernel a call of OP runs and why, without running it.

    Each key set is shown, what was masked and whose fallthrough did it, the keys that remain, the kernel, which
    candidates lost and to what; then the same for each redispatch that follows, down to a backend kernel.

    WORDS are a device (cpu, cuda, meta, ...), a layout (sparse, csr, mkldnn, nested, ...), and any of quantized,
    requires_grad, conj, neg, zero, inference, python (a subclass that intercepts calls); none for no tensor, and
    'list:cpu, cuda' for a list. The name of a dispatch key adds that key. What a factory makes is told by device=,
    layout= and dtype=.

    \b
    Examples:
      dispatchlab explain aten::add.Tensor --arg "cuda requires_grad" --arg cuda
      dispatchlab explain aten::randn --arg device=cuda
      dispatchlab explain aten::cat --arg "list:cpu, meta" --exclude Autograd
      dispatchlab explain test::foo --arg cpu --from scenario.yaml --semantics torch-2.13
      dispatchlab explain my::op --arg cpu --engine torch --import my_package
    """
    from dispatchlab.commands.explain import ExplainRequest, explain_call

    exit_with(explain_call(ExplainRequest(**options, color=color)))


OPERATOR_COMMANDS: tuple[click.Command, ...] = (dump, explain, permute)
"""For the group of all commands."""
