"""`dispatchlab schema`: the JSON Schema of scenario files."""

from __future__ import annotations

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.output import out


@click.command(cls=Command)
def schema() -> None:
    """Print the JSON Schema of scenario files, which editors use to complete and check them.

    \b
    Examples:
      dispatchlab schema > scenario.schema.json
    """
    import json

    from dispatchlab.scenario.load import json_schema

    out(json.dumps(json_schema(), indent=2) + "\n")
