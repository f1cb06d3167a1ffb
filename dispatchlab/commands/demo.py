"""`dispatchlab demo`: a defect of order on a small example, and what to do next."""

from __future__ import annotations

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.output import chosen_format, out, rich_text, save


@click.command(cls=Command)
@click.option("--save", "file", metavar="FILE", type=click.Path(), help="Write the example as a scenario to FILE.")
def demo(*, file: str | None) -> None:
    """Show a defect of order on a small example, and what to do next.

    Registers two kernels in two orders, calls the operator after each, and explores every order. Needs no PyTorch.

    \b
    Examples:
      dispatchlab demo
      dispatchlab demo --save demo.yaml
    """
    from dispatchlab.files import FileKind
    from dispatchlab.questions.setup.demo import demo_blocks, run_demo

    shown = run_demo()
    if chosen_format(None) == "rich":
        from dispatchlab.views.terminal import draw

        out(rich_text(lambda console: draw(console, demo_blocks(shown))))
    else:
        from dispatchlab.views.text import text_of

        out(text_of(demo_blocks(shown)))
    if file is not None:
        save(file, shown.text, FileKind.SCENARIO)
