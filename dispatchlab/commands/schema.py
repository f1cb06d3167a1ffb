"""`dispatchlab schema`: the JSON Schema of scenario files, and of what commands print."""

from __future__ import annotations

import click

from dispatchlab.commands.output import out
from dispatchlab.errors import DispatchLabError, did_you_mean


class NoSchemaError(DispatchLabError):
    """A command prints no JSON, or there is none of this name."""

    command: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        hint = did_you_mean(self.command, self.known)
        return f"{self.command} prints no JSON: choose from {', '.join(self.known)}{hint}"


@click.command()
@click.argument("command", required=False)
def schema(*, command: str | None) -> None:
    """Print the JSON Schema of scenario files, which editors use to complete and check them.

    With COMMAND, prints the JSON Schema of what this command prints with --format json.

    \b
    Examples:
      dispatchlab schema > scenario.schema.json
      dispatchlab schema explain > explain.schema.json
    """
    import json

    draft = "https://json-schema.org/draft/2020-12/schema"
    if command is None:
        from dispatchlab.scenario.load import json_schema

        found = json_schema()
    else:
        from importlib.resources import files

        known = json.loads(files(__package__).joinpath("json_schemas.json").read_text(encoding="utf-8"))
        if command not in known:
            raise NoSchemaError(command, tuple(sorted(known)))
        found = {"$schema": draft, "title": f"dispatchlab {command} --format json", **known[command]}
    out(json.dumps(found, indent=2) + "\n")
