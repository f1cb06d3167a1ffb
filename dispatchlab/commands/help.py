"""Help in two lengths: `-h` fits a screen, `--help` says everything."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

import click

SHORT = "dispatchlab.short_help"
"""The place in click's `meta` that says that `-h` was given, and not `--help`."""


class Command(click.Command):
    """A command whose `-h` leaves out the rare options.

    Args:
        rare: the names of the options that `--help` alone shows, in a group of their own.
        group: the title of that group.
    """

    def __init__(self, *arguments: Any, rare: Sequence[str] = (), group: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._rare, self._group = rare, group

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
