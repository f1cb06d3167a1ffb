"""`dispatchlab schema`: the JSON Schema of scenario files."""

from __future__ import annotations

import json

from dispatchlab.commands.output import out
from dispatchlab.scenario.load import json_schema


def print_schema() -> None:
    """Print it."""
    out(json.dumps(json_schema(), indent=2) + "\n")
