"""`dispatchlab rule`: the page of a rule of `check`, or of a cause of `why`."""

from __future__ import annotations

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.output import out


@click.command(cls=Command)
@click.argument("rule", metavar="RULE")
def rule(*, rule: str) -> None:
    """Print the page of a rule or a cause: what it reports, why that matters, and how to fix it.

    \b
    Examples:
      dispatchlab rule DL004
      dispatchlab rule WHY306
    """
    from dispatchlab.questions.check.selection import page_of

    out(page_of(rule))
