"""`dispatchlab schema`: the JSON Schema of scenario files."""

from __future__ import annotations

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.output import out


@click.command(cls=Command)
def schema() -> None:
    """Print the JSON Schema of scenario files. With it, editors complete and check these files.

    \b
    Examples:
      dispatchlab schema > scenario.schema.json
    """
    import json

    from dispatchlab.scenario.load import json_schema

    out(json.dumps(json_schema(), indent=2) + "\n")
