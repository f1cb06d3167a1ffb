"""Help in two lengths: `-h` fits a screen, `--help` says everything."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

import click

from dispatchlab.commands.output import NO_PAGER, QUIET

SHORT = "dispatchlab.short_help"
"""The place in click's `meta` that says that `-h` was given, and not `--help`."""


def _set_for_all(ctx: click.Context, param: click.Parameter, given: bool) -> None:  # noqa: FBT001  a callback
    """Set an option of the whole command line that was given behind the command."""
    if given and param.name == "no_color":
        ctx.obj = False
    elif given:
        ctx.meta[QUIET if param.name == "quiet" else NO_PAGER] = True


_OF_ALL = [
    click.Option([*names], is_flag=True, hidden=True, is_eager=True, expose_value=False, callback=_set_for_all)
    for names in (("-q", "--quiet"), ("--no-color",), ("--no-pager",))
]


class Command(click.Command):
    """A command whose `-h` leaves out the rare options, and that also takes the options of the whole command line.

    Args:
        rare: the names of the options that `--help` alone shows, in a group of their own.
        group: the title of that group.
    """

    def __init__(self, *arguments: Any, rare: Sequence[str] = (), group: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._rare, self._group = rare, group

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters with those of the whole command line, which stand before the command or behind it."""
        return [*super().get_params(ctx), *_OF_ALL]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help: of `-h` the first paragraph, the options in a sentence each, and the examples."""
        if not ctx.meta.get(SHORT):
            super().format_help(ctx, formatter)
            return
        first, *_, examples = cleandoc(self.help or "").split("\n\n")
        self.format_usage(ctx, formatter)
        for text in (first, examples):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(text)
        self.format_options(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the rare ones last."""
        is_short = bool(ctx.meta.get(SHORT))
        common, rare = list[tuple[str, str]](), list[tuple[str, str]]()
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                name, text = record
                first = "Show this screen; --help shows everything." if param.name == "help" else text.split(". ")[0]
                (rare if param.name in self._rare else common).append((name, first if is_short else text))
        with formatter.section("Options"):
            formatter.write_dl(common)
        if rare and not is_short:
            with formatter.section(self._group):
                formatter.write_dl(rare)
