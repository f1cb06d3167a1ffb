"""`dispatchlab rule`: the page of a rule of `check`, or of a cause of `why`."""

from __future__ import annotations

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.output import chosen_format, out, out_paged, rich_text


@click.command(cls=Command)
@click.argument("rule", metavar="[RULE]", default="")
def rule(*, rule: str) -> None:
    """Print the page of a rule or a cause: what it reports, why that matters, and how to fix it.

    For the start of codes, such as WHY8, lists the codes with their titles; without RULE, lists all codes, grouped by
    what fails. The page is Markdown; a terminal shows it with headings and wrapped lines.

    \b
    Examples:
      dispatchlab rule DL004
      dispatchlab rule WHY306
      dispatchlab rule WHY8
    """
    from dispatchlab.questions.check.selection import page_of

    page = page_of(rule)
    if chosen_format(None) == "text":
        out(page)
        return
    from rich.markdown import Markdown

    out_paged(rich_text(lambda console: console.print(Markdown(page, code_theme="ansi_dark"))))
