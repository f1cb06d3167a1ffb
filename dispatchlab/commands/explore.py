"""`dispatchlab explore`: register and release by hand, and see what each step changes."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from typing import Any

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import after_option, allow_import_option, from_option, named_subject, semantics_option
from dispatchlab.commands.output import exit_with, note, use_color
from dispatchlab.errors import RequestError


@click.command(cls=Command)
@click.argument("what", metavar="[SCENARIO|OP]", required=False)
@from_option
@after_option
@semantics_option
@allow_import_option
def explore(*, source: str | None, **options: Any) -> None:
    """Register and release by hand, and see what each step changes.

    Opens an application in the terminal: the registrations, the sequence of steps, the dispatch table with the
    changes of the last step, and the state graph or the explanation of a call. The application can check every
    order, as `permute` does, and show a counterexample. Press ? for all keys.

    For an operator, it shows the registrations in the registry. Without an argument, it shows the example of
    `dispatchlab demo`. Needs textual: pip install 'dispatchlab[explore]'.

    \b
    Examples:
      dispatchlab explore
      dispatchlab explore scenario.yaml
      dispatchlab explore aten::add.Tensor
      dispatchlab explore aten::relu --from torch-2.6
    """
    if find_spec("textual") is None:
        raise RequestError("explore needs textual, which is not installed: pip install 'dispatchlab[explore]'")
    streams = sys.stdin, sys.stdout, sys.stderr  # textual reads the first and draws on the last
    if not all(stream.isatty() for stream in streams) and "TEXTUAL_DRIVER" not in os.environ:
        what = "explore needs a terminal, but standard input, output or error is not a terminal"
        raise RequestError(f"{what}: use `dispatchlab dump` for output that can be piped")
    if not use_color():
        os.environ["NO_COLOR"] = "1"
    from dispatchlab.questions.explore.open import make_app

    imports: tuple[str, ...] = ()
    what = options["what"] or ""
    if source is not None or "::" in what:
        source, imports = named_subject(source, [what])
    app = make_app(source=source, imports=imports, report=note, **options)
    app.run()
    if app.failure is not None:
        raise app.failure
    if app.ended_by is not None:
        exit_with(130 if app.ended_by is signal.SIGINT else 143)
