"""Run commands in this process: as a user does, or without the group so that their errors are raised."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import dispatchlab
from dispatchlab.cli import main
from tests.json_schema import errors

_FILE = Path(dispatchlab.__file__).parent / "commands" / "json_schemas.json"
_SCHEMAS = json.loads(_FILE.read_text(encoding="utf-8"))


def run(*arguments: str) -> Result:
    """Run the command line: errors are text and an exit code."""
    result = CliRunner().invoke(main, list(arguments), prog_name="dispatchlab")
    if "json" in arguments and result.exit_code in (0, 1, 3, 4) and result.stdout.startswith("{"):
        check_json(arguments, result.stdout)
    return result


def check_json(arguments: Sequence[str], text: str) -> None:
    """Compare what a command printed as JSON with its published schema; it has no other fields than that."""
    command = next(word for word in arguments if word in _SCHEMAS)
    for value in [json.loads(text)] if text.startswith("{\n") else map(json.loads, text.splitlines()):
        variants = _closed(_SCHEMAS[command])["anyOf"]
        found = [
            errors(value, {**one, "$defs": {"key_set": _closed(_SCHEMAS[command]["$defs"]["key_set"])}})
            for one in variants
        ]
        assert [] in found, f"{' '.join(arguments)}: {min(found, key=len)[:5]}"


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that allows no field that it does not name; the published one leaves room for new ones."""
    closed = dict(schema)
    if "anyOf" in schema:
        closed["anyOf"] = [_closed(one) for one in schema["anyOf"]]
    for name in ("items", "additionalProperties"):
        if name in schema:
            closed[name] = _closed(schema[name])
    if "properties" in schema:
        closed["properties"] = {name: _closed(one) for name, one in schema["properties"].items()}
        closed.setdefault("additionalProperties", False)
    return closed


def run_raising(name: str, *arguments: str) -> Result:
    """Run one command by itself: errors are raised."""
    with main.make_context("dispatchlab", ["--no-color", name], resilient_parsing=True) as context:
        command = main.get_command(context, name)
    assert command is not None
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)
