"""The command line: the group of all commands, each imported on first use; errors as exit codes."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from shlex import join
from typing import Any

import click

from dispatchlab.commands.help import SHORT
from dispatchlab.commands.output import NO_PAGER, QUIET, OutputClosed, OutputFailed, out, tolerate_encodings, warn
from dispatchlab.commands.overview import COMMANDS, HIDDEN, RENAMED, overview
from dispatchlab.errors import DispatchLabError, nearest

_HELP = ["-h", "--help"]
_INTERRUPTED = 130


class _Group(click.Group):
    """Imports a command on first use; reports errors without a traceback, each kind with its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_help(self, ctx: click.Context) -> str:
        """Return the commands with their lines, without importing any."""
        return overview().removesuffix("\n")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name; None when there is none."""
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        command = getattr(import_module(f"dispatchlab.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        command.context_settings["help_option_names"] = _HELP
        for param in command.params:
            if isinstance(param, click.Option) and not param.is_flag and param.callback is None:
                param.callback = _not_empty
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names; for an unknown name, the error names the nearest one."""
        for former, call in RENAMED.items():
            if former.startswith(args[0]) and (match := re.fullmatch(former, join(args), re.DOTALL)):
                raise click.UsageError(f"{args[0]} has another name now: dispatchlab {match.expand(call)}", ctx)
        ctx.meta[SHORT] = "--help" not in args
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], [*COMMANDS, *HIDDEN])
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None

    def main(self, *arguments: Any, **more: Any) -> Any:
        """Run the command line; an unexpected error is a defect of dispatchlab, exit 70, and never a verdict."""
        tolerate_encodings()
        try:
            return super().main(*arguments, **more)
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

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            warn("interrupted before there was a result")
            ctx.exit(_INTERRUPTED)
        except OutputClosed:
            ctx.exit(141)
        except DispatchLabError as error:
            warn(str(error))
            ctx.exit(error.exit_code)


def _not_empty(context: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the value of an option; empty text is most likely an unset variable of a script."""
    texts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(text, str) and not text.strip() for text in texts):
        raise click.BadParameter("it is empty: write a value, or leave the option out", context, param)
    return value


def _print_version(context: click.Context, param: click.Parameter, asked: bool) -> None:  # noqa: FBT001  a callback
    if asked and not context.resilient_parsing:
        from dispatchlab import __version__  # looked up now and not at every start

        out(f"dispatchlab, version {__version__}\n")
        context.exit()


@click.group(cls=_Group, context_settings={"help_option_names": _HELP})
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no notes on standard error.")
@click.option("--no-color", is_flag=True, help="Print without colours.")
@click.option("--no-pager", is_flag=True, help="Print long output without a pager.")
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
@click.pass_context
def main(ctx: click.Context, *, quiet: bool, no_color: bool, no_pager: bool) -> None:
    """Run one of the commands; `overview` has the help."""
    ctx.obj = not no_color
    ctx.meta[QUIET], ctx.meta[NO_PAGER] = quiet, no_pager


if __name__ == "__main__":
    main()
