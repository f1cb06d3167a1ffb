"""The help and the version of every command: `-h` is short, `--help` is everything; no word is broken at its hyphen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from inspect import cleandoc
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])
_HYPHEN = "\N{NON-BREAKING HYPHEN}"


class _Formatter(click.HelpFormatter):
    """Wraps between words alone."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(text.replace("-", _HYPHEN))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write how the command is called."""
        super().write_usage(prog, args.replace("-", _HYPHEN), prefix)

    def write_dl(self, rows: Iterable[tuple[str, str]], *arguments: Any, **more: Any) -> None:
        """Write options or commands."""
        super().write_dl([(name, text.replace("-", _HYPHEN)) for name, text in rows], *arguments, **more)

    def getvalue(self) -> str:
        """What was written."""
        return super().getvalue().replace(_HYPHEN, "-")


class HelpContext(click.Context):
    """The context of every command."""

    formatter_class = _Formatter


def short_help_option(command: _Command) -> _Command:
    """`-h`."""
    return click.option(
        "-h",
        "short_help",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_short,
        help="Show a short help and exit.",
    )(command)


def _print_short(context: click.Context, param: click.Parameter, asked: bool) -> None:  # noqa: FBT001  a callback
    if asked and not context.resilient_parsing:
        from dispatchlab.commands.output import out

        out(f"{short_help(context)}\n")
        context.exit()


def print_version(context: click.Context, param: click.Parameter, asked: bool) -> None:  # noqa: FBT001  a callback
    """Print the version, which is looked up now and not at every start."""
    if asked and not context.resilient_parsing:
        from dispatchlab import __version__
        from dispatchlab.commands.output import out

        out(f"dispatchlab, version {__version__}\n")
        context.exit()


def short_help(context: click.Context) -> str:
    """The usage, the first paragraph, the examples, and a line for each option."""
    command, formatter = context.command, context.make_formatter()
    command.format_usage(context, formatter)
    paragraphs = cleandoc(command.help or "").split("\n\n")
    for text in (paragraphs[0], *(text for text in paragraphs[1:] if "Examples:" in text)):
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)
    if isinstance(command, click.Group):
        command.format_commands(context, formatter)
    else:
        options = [param for param in command.get_params(context) if isinstance(param, click.Option)]
        records = [record for option in options if (record := option.get_help_record(context))]
        with formatter.section("Options"):
            formatter.write_dl([(name, f"{re.split('[.;] ', text)[0].rstrip('.')}.") for name, text in records])
    formatter.write_paragraph()
    formatter.write_text(f"Everything: {context.command_path} --help")
    return formatter.getvalue().rstrip("\n")
