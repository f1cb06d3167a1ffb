"""The command line: parse, call, print, exit. What the commands do is in `commands`, imported when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dispatchlab import __version__
from dispatchlab.cli_registry import REGISTRY_COMMANDS

if TYPE_CHECKING:
    from dispatchlab.commands.output import Format

_FORMATS = click.Choice(["rich", "text", "json"])
_SHELLS = click.Choice(["bash", "zsh", "fish"])
_ENGINES = click.Choice(["lab", "torch"])
_FORMAT_HELP = "How to print: rich on a terminal when left out, text anywhere else."
_SEMANTICS_HELP = "Which dispatcher the lab engine is: strict, torch-2.13, pr35061. Default: what the scenario says."
_IMPORT_HELP = "On the live PyTorch: import this module first, for what it registers; may be repeated."
_ALLOW_IMPORT_HELP = "Import the functions that a scenario names. That runs their code: only for files you trust."


class _Errors(click.Group):
    """Tells what went wrong without a traceback, with an exit code that says what kind of thing it was."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:
            from dispatchlab.commands.output import OutputClosed, OutputFailed, note
            from dispatchlab.errors import DispatchLabError

            if isinstance(error, OutputClosed):
                ctx.exit(141)
            if not isinstance(error, DispatchLabError):
                raise
            from dispatchlab.explore.protocol import EngineCrashed

            note(str(error))
            ctx.exit(74 if isinstance(error, OutputFailed) else 5 if isinstance(error, EngineCrashed) else 2)


if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:  # generic from click 8.2 on
    _TextType = click.ParamType


class _OneOf(_TextType):
    """A text whose values are offered by the shell; whether it is right is for the command to say."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self._kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The values that begin as `incomplete` does."""
        from dispatchlab.commands.completion import candidates

        values = candidates(self._kind, incomplete, ctx.params)
        if self._kind == "scenario":
            return (
                [CompletionItem(incomplete, type="file")] if not values else [CompletionItem(each) for each in values]
            )
        return [CompletionItem(value) for value in values]


@click.group(
    cls=_Errors,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 as expected, 1 not as expected, 2 bad input, 3 incomplete, 4 not deterministic, 5 crashed.",
)
@click.version_option(__version__, prog_name="dispatchlab")
@click.option("--no-color", is_flag=True, help="Print without colours, as the environment variable NO_COLOR does.")
@click.pass_context
def main(ctx: click.Context, *, no_color: bool) -> None:
    """Prove that the order of registrations does not matter, or see the shortest order that proves it does.

    \b
    Examples:
      dispatchlab permute scenarios/
      dispatchlab dump test::foo --from scenario.yaml
    """
    from dispatchlab.commands.output import tolerate_encodings

    tolerate_encodings()
    ctx.obj = not no_color


@main.command()
@click.argument("operator", metavar="OP", required=False, type=_OneOf("operator", "operator"))
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=_OneOf("scenario", "scenario"),
    help="A scenario, a recorded registry, or the name of a bundled one. Default: torch-2.13, which is bundled.",
)
@click.option(
    "--after", metavar="WORD", help="What happens first, as '+0 +2 -0'. Default: all, in the order of the file."
)
@click.option("--engine", type=_ENGINES, default="lab", show_default=True, help="The engine that is asked.")
@click.option("--semantics", metavar="NAME", type=_OneOf("name", "semantics"), help=_SEMANTICS_HELP)
@click.option(
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    type=_OneOf("key", "row"),
    help="Show this row of the table; may be repeated.",
)
@click.option("--list", "listing", is_flag=True, help="List the operators of a registry, a line each.")
@click.option("--dangling", is_flag=True, help="List the operators of a registry that have no def.")
@click.option("--overridden", is_flag=True, help="List the kernels of a registry that took the place of another.")
@click.option("--counts", is_flag=True, help="Show how many kernels a registry has at each key.")
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=_IMPORT_HELP)
@click.option("--format", type=_FORMATS, help=_FORMAT_HELP)
@click.option("--allow-import", is_flag=True, help=_ALLOW_IMPORT_HELP)
@click.pass_obj
def dump(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Show what the dispatcher knows of an operator: its kernels, and its table with the reasons.

    OP is a name (test::foo.out), a name without overload when that is unique, or a glob ('test::*'). The operators are
    those of PyTorch 2.13 unless --from says otherwise; PyTorch need not be installed for it. A registration of a
    scenario that is refused on the way is told on standard error and the word goes on; the exit code stays 0.

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
    from dispatchlab.commands.dumping import dump_anything

    _exit(dump_anything(options, color=color))


@main.command()
@click.argument("scenarios", metavar="SCENARIO...", nargs=-1, required=True, type=_OneOf("scenario", "scenario"))
@click.option("--engine", type=_ENGINES, help="The engine that is explored. Default: lab.")
@click.option("--semantics", metavar="NAME", type=_OneOf("name", "semantics"), help=_SEMANTICS_HELP)
@click.option(
    "--walk",
    type=click.Choice(["graph", "orders", "sample"]),
    default="graph",
    show_default=True,
    help="graph: every state once, a proof. orders: n! times n! words, to compare with. sample: for what is too large.",
)
@click.option("--samples", metavar="N", type=click.IntRange(min=1), help="How many excursions --walk sample goes on.")
@click.option(
    "--seed", metavar="N", type=int, default=0, show_default=True, help="Of everything that is chosen at random."
)
@click.option(
    "--laps",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many laps to go on an engine that cannot be read. Default: 8.",
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
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=_IMPORT_HELP)
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
@click.option("--format", type=_FORMATS, help=_FORMAT_HELP)
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
    --require-proof), 4 not deterministic, 5 the engine crashed; 130 after Ctrl-C, with what was covered until then.

    \b
    Examples:
      dispatchlab permute scenario.yaml
      dispatchlab permute scenarios/ --jobs 2 --format json
      dispatchlab permute scenario.yaml --semantics torch-2.13 --save found.replay
      dispatchlab permute scenario.yaml --replay found.replay
      dispatchlab permute scenario.yaml --graph states.svg
    """
    from dispatchlab.commands.exploring import Asked
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
    _exit(run(request))


@main.command()
@click.argument("operator", metavar="OP", type=_OneOf("operator", "operator"))
@click.option(
    "--arg",
    "args",
    metavar="WORDS",
    multiple=True,
    help="What an argument is like, in the order of the schema, or NAME=WORDS. Default: each tensor is on the CPU.",
)
@click.option(
    "--exclude", metavar="KEY", multiple=True, type=_OneOf("key", "row"), help="A guard excludes KEY; may be repeated."
)
@click.option(
    "--include", metavar="KEY", multiple=True, type=_OneOf("key", "row"), help="A guard includes KEY; may be repeated."
)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=_OneOf("scenario", "scenario"),
    help="A scenario, a recorded registry, the name of a bundled one, or live. Default: torch-2.13, which is bundled.",
)
@click.option("--engine", type=_ENGINES, default="lab", show_default=True, help="The engine that is asked.")
@click.option("--semantics", metavar="NAME", type=_OneOf("name", "semantics"), help=_SEMANTICS_HELP)
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=_IMPORT_HELP)
@click.option("--format", type=_FORMATS, help=_FORMAT_HELP)
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

    _exit(explain_call(ExplainRequest(**options, color=color)))


@main.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--import", "imports", metavar="MODULE", multiple=True, help=_IMPORT_HELP)
@click.option("--semantics", metavar="NAME", type=_OneOf("name", "semantics"), help=_SEMANTICS_HELP)
@click.option("--tables/--no-tables", default=True, help="Compare the rows of computed tables, too. Default: yes.")
@click.option("--places/--no-places", default=True, help="Compare where kernels come from, too. Default: yes.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option("--format", type=_FORMATS, help=_FORMAT_HELP)
def diff(**options: Any) -> None:
    """Show what came, went and changed from A to B: operators, schemas, kernels, rows of tables, fallbacks.

    A and B are recorded registries, names of bundled ones, scenarios, or `live`, the PyTorch that is installed.

    \b
    Examples:
      dispatchlab diff torch-2.13 live --import my_package
      dispatchlab diff before.dlreg after.dlreg --no-places --exit-code
    """
    from dispatchlab.commands.registry_diff import RegistryDiffRequest, diff_registries

    _exit(diff_registries(RegistryDiffRequest(**options)))


@main.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1)
@click.option("-o", "--output", "file", metavar="FILE", required=True, type=click.Path(), help="The file to write.")
@click.option("--all", "everything", is_flag=True, help="Record everything that is registered, as a registry file.")
def record(**options: Any) -> None:
    """Write what importing packages registers to a scenario, each registration with its true call site.

    The packages are imported in this order, in a process of its own. Registrations that PyTorch makes for itself on the
    way are left out. With --all, it is the whole registry of the running PyTorch that is written, after the packages
    were imported.

    \b
    Examples:
      dispatchlab record my_package -o my_package.yaml
      dispatchlab permute my_package.yaml --engine torch
      dispatchlab record --all -o today.dlreg
    """
    from dispatchlab.commands.record import RecordRequest
    from dispatchlab.commands.record import record as run

    _exit(run(RecordRequest(**options)))


@main.command()
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@click.option(
    "--samples",
    metavar="N",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="How many orders of more than five packages.",
)
@click.option(
    "--seed", metavar="N", type=int, default=0, show_default=True, help="Of the orders that are chosen at random."
)
@click.option("--format", type=_FORMATS, help=_FORMAT_HELP)
def imports(**options: Any) -> None:
    """Import packages in every order and show what depends on it.

    Each order has a process of its own. There, the packages are imported, their modules are purged, and they are
    imported once more. Told are differences in dumps, tables and failures, with the places that registered what
    differs. Exit codes: 0 when nothing differs or fails, else 1.

    \b
    Examples:
      dispatchlab imports my_package your_package
    """
    from dispatchlab.commands.imports import ImportsRequest
    from dispatchlab.commands.imports import imports as run

    _exit(run(ImportsRequest(**options)))


@main.command()
@click.argument("file", metavar="[FILE.yaml]", required=False, type=click.Path())
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=click.Path(), help="Where the files go. Default: print them."
)
@click.option("--only", metavar="OP", multiple=True, help="Only the group of this operator or glob; may be repeated.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when the files in DIR differ.")
@click.option(
    "--walk", "walked", metavar="OP", help="Call an operator that has kernels, and show the frames of the call."
)
def codegen(*, file: str | None, folder: str | None, only: tuple[str, ...], check: bool, walked: str | None) -> None:
    """Generate structured operators from a native_functions.yaml: wrappers, classes, registrations, a scenario.

    Nothing is written when anything in FILE.yaml is wrong.

    \b
    Examples:
      dispatchlab codegen native_functions.yaml -o generated
      dispatchlab codegen native_functions.yaml --only add
      dispatchlab codegen native_functions.yaml -o generated --check
      dispatchlab codegen --walk add.out
    """
    if walked is not None and (file or folder or only or check):
        raise click.UsageError("--walk calls an operator that has kernels and takes no file and no other option")
    if walked is None and file is None:
        raise click.UsageError("give a file of native functions, or an operator to --walk")
    if check and folder is None:
        raise click.UsageError("--check compares with the files in a folder: give it with -o DIR")
    from dispatchlab.commands.codegen import CodegenRequest, walk_operator
    from dispatchlab.commands.codegen import codegen as run

    if walked is not None:
        _exit(walk_operator(walked))
    elif file is not None:
        _exit(run(CodegenRequest(file=file, folder=folder, only=only, check=check)))


@main.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, with which editors complete and check them.

    \b
    Examples:
      dispatchlab schema > scenario.schema.json
    """
    from dispatchlab.commands.schema import print_schema

    print_schema()


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", metavar="FILE.py")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--sets", is_flag=True, help="Show the key sets of each call, the guards and the kernels, too.")
@click.option("--format", type=_FORMATS, help=_FORMAT_HELP)
@click.pass_obj
def trace(color: bool, /, **options: Any) -> None:  # noqa: FBT001  click passes its object by place
    """Run FILE.py and show every call of the lab's operators: redispatches, keys, kernels, boxings and guards.

    This runs the code in the file, as 'python FILE.py ARGUMENT...' does: only for files you trust. What the program
    prints goes to standard error. The exit code is the program's: 1 when it raises something.

    --format text prints a line for each call as it begins, in the format of PyTorch's own trace, unless --sets.

    \b
    Examples:
      dispatchlab trace program.py
      dispatchlab trace --sets program.py
      dispatchlab trace --format json program.py --epochs 3
    """
    from dispatchlab.commands.trace import TraceRequest, trace_file

    _exit(trace_file(TraceRequest(**options, color=color)))


@main.command()
@click.argument("shell", type=_SHELLS)
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands, options, operators, keys and scenario files.

    \b
    Examples:
      eval "$(dispatchlab completion bash)"
      dispatchlab completion fish > ~/.config/fish/completions/dispatchlab.fish
    """
    from dispatchlab.commands.completion import script
    from dispatchlab.commands.output import out

    out(script(main, shell))


for _command in REGISTRY_COMMANDS:
    main.add_command(_command)


def _exit(code: int) -> None:
    click.get_current_context().exit(code)


if __name__ == "__main__":
    main()
