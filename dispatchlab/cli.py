"""The command line: the group of all commands, each imported on first use; errors as exit codes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from dispatchlab.commands.help import HelpContext, print_version, short_help_option

COMMANDS: Mapping[str, str] = {
    "certify": "Prove for every operator of a registry that order has no effect.",
    "check": "Check a package: order, lint, upgrade, drift.",
    "codegen": "Generate code from a native_functions.yaml.",
    "completion": "Print the completion script for a shell.",
    "coverage": "Show which operators a backend can run, and how.",
    "defects": "Show which known defects the installed PyTorch has.",
    "demo": "Show a defect of order on a small example, and what to do next.",
    "diff": "Show what differs between two registries.",
    "doctor": "Show the versions, and what works with the installed PyTorch.",
    "dump": "Show the kernels and the dispatch table of an operator.",
    "explain": "Show which kernel a call of OP runs and why, without running it.",
    "explore": "Register and release by hand in an application.",
    "imports": "Import packages in every order and show what depends on it.",
    "init": "Set up dispatchlab in the checkout of a package.",
    "lint": "Report likely mistakes in registrations.",
    "permute": "Check whether the order of registrations matters.",
    "profile": "Measure the dispatcher of the installed PyTorch.",
    "record": "Record what importing packages registers, as a scenario.",
    "schema": "Print the JSON Schema of scenario files.",
    "trace": "Run FILE.py and show every call of the lab's operators.",
}
"""Each command with its line in the help. Its module and its function are named like it."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Start": ("demo", "doctor", "init"),
    "Inspect": ("explain", "dump", "coverage", "diff", "defects", "explore"),
    "Check": ("check", "lint", "permute", "record", "imports", "certify"),
    "Advanced": ("trace", "profile", "codegen", "schema", "completion"),
}
"""The commands in the order of the help."""


_INTERRUPTED = 130
_HELP = ["--help"]


class _Group(click.Group):
    """Imports a command on first use; reports errors without a traceback, each kind with its exit code."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return [name for names in GROUPS.values() for name in names if name in COMMANDS]

    def main(self, *arguments: Any, **more: Any) -> Any:
        """Run the command line; an unexpected error is a defect of dispatchlab, exit 70, and never a verdict."""
        from dispatchlab.commands.output import OutputClosed, OutputFailed, tolerate_encodings, warn

        tolerate_encodings()
        try:
            return super().main(*arguments, **more)
        except OutputClosed:  # by a help or a version, which is printed while the command line is read
            sys.exit(141)
        except OutputFailed as error:
            warn(str(error))
            sys.exit(74)
        except Exception as error:
            if not more.get("standalone_mode", True):
                raise
            from traceback import print_exc

            print_exc()
            warn(f"dispatchlab: unexpected {type(error).__name__}: this is a defect of dispatchlab, not a verdict")
            sys.exit(70)

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """The context of a command line, which is read here; its texts are spelled out in errors."""
        from dispatchlab.commands.output import usage_error_texts

        try:
            with usage_error_texts():
                return super().make_context(*arguments, **more)
        except KeyboardInterrupt:  # click would exit with 1, which reads as "violated"
            sys.exit(_INTERRUPTED)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option for help, which prints as everything else is printed."""
        return _through_the_door(super().get_help_option(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"dispatchlab.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        # A command that is run by itself, too, has the options for help that it has in this group.
        command.context_settings["help_option_names"] = _HELP
        command.context_class = HelpContext
        _through_the_door(command.get_help_option(click.Context(command, help_option_names=_HELP)))
        from dispatchlab.commands.every_command import as_every_command

        return as_every_command(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; the error for an unknown one names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from dispatchlab.errors import nearest

            near = nearest(args[0], COMMANDS)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their lines, without importing any."""
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", COMMANDS[name]) for name in names if name in COMMANDS])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, and then the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            from dispatchlab.commands.output import usage_error_texts

            with usage_error_texts():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)
        except Exception as error:
            from dispatchlab.commands.output import OutputClosed, warn
            from dispatchlab.errors import DispatchLabError

            if isinstance(error, OutputClosed):
                ctx.exit(141)
            if not isinstance(error, DispatchLabError):
                raise
            warn(str(error))
            ctx.exit(error.exit_code)


def _through_the_door(option: click.Option | None) -> click.Option | None:
    if option is not None:
        option.callback, option.help = _print_help, "Show the whole help and exit."
    return option


def _print_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001  of click
    if value and not ctx.resilient_parsing:
        from dispatchlab.commands.output import out

        out(f"{ctx.get_help()}\n")
        ctx.exit()


@click.group(
    cls=_Group,
    context_settings={"help_option_names": _HELP},
    epilog="Exit codes: 0 as expected, 1 not as expected, 2 bad input, 3 incomplete, 4 nondeterministic, 5 crashed, "
    "70 a defect of dispatchlab, 74 the output could not be written, 124 a package took too long to be imported, "
    "130 Ctrl-C, 141 the reader of the output has gone.",
)
@short_help_option
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=print_version,
    help="Show the version and exit.",
)
@click.option(
    "--no-color",
    is_flag=True,
    help="Print without colours, as the environment variable NO_COLOR does; FORCE_COLOR asks for them. "
    "May stand before and after the command.",
)
@click.option(
    "--no-pager",
    is_flag=True,
    help="Print long output without a pager. On a terminal, what is longer than the screen goes to PAGER "
    "or less. May stand before and after the command.",
)
@click.option(
    "--no-measure",
    is_flag=True,
    help="Measure nothing: a PyTorch of an unknown version is measured once, when its model is needed. "
    "May stand before and after the command.",
)
@click.pass_context
def main(ctx: click.Context, *, no_color: bool, no_pager: bool, no_measure: bool) -> None:
    """Prove that the order of registrations does not matter, or show the shortest counterexample.

    \b
    Examples:
      dispatchlab permute scenarios/
      dispatchlab dump test::foo --from scenario.yaml
    """
    ctx.obj = not no_color
    if no_pager:
        from dispatchlab.commands.output import NO_PAGER

        ctx.meta[NO_PAGER] = True
    if no_measure:
        from dispatchlab.commands.output import forbid_measuring

        forbid_measuring()


if __name__ == "__main__":
    main()
