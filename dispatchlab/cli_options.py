"""Which options, completed values and ends do several commands share?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _TextType = click.ParamType[str]
else:  # generic from click 8.2 on
    _TextType = click.ParamType

FORMATS = click.Choice(["rich", "text", "json"])
FORMAT_HELP = "How to print: rich on a terminal when left out, text anywhere else."
SEMANTICS_HELP = "Which dispatcher the lab engine is: strict, torch-2.13, pr35061. Default: what the scenario says."
IMPORT_HELP = "On the live PyTorch: import this module first, for what it registers; may be repeated."


class OneOf(_TextType):
    """A text whose values are offered by the shell; whether it is right is for the command to say."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self._kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The values that begin as `incomplete` does."""
        from click.shell_completion import CompletionItem

        from dispatchlab.commands.completion import candidates

        values = candidates(self._kind, incomplete, ctx.params)
        if self._kind in ("scenario", "source"):
            return (
                [CompletionItem(incomplete, type="file")] if not values else [CompletionItem(each) for each in values]
            )
        return [CompletionItem(value) for value in values]


def exit_with(code: int) -> None:
    """End the command with an exit code."""
    click.get_current_context().exit(code)
