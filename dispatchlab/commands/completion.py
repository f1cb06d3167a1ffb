"""What a shell offers when somebody presses Tab, and the script that makes it ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_DISPATCHLAB_COMPLETE"


def script(command: click.Command, shell: str) -> str:
    """The script for a shell that is known to click."""
    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(command, {}, "dispatchlab", _VARIABLE)
    return completion.source_template % completion.source_vars() + "\n"


def candidates(kind: str, incomplete: str, params: Mapping[str, object]) -> list[str]:
    """The values of a kind that begin as `incomplete` does.

    Args:
        kind: `operator`, `row`, `scenario` or `semantics`.
        incomplete: what was typed.
        params: what was given before; operators are those of `--from`.
    """
    return sorted(value for value in _values(kind, incomplete, params) if value.startswith(incomplete))


def _values(kind: str, incomplete: str, params: Mapping[str, object]) -> Iterable[str]:
    match kind:
        case "operator":
            return _operators(params.get("source"))
        case "row":
            from dispatchlab.model.keys import RUNTIME_KEYS

            return [key.name for key in RUNTIME_KEYS]
        case "semantics":
            from dispatchlab.scenario.value import SEMANTICS

            return SEMANTICS
        case _:
            return _files(incomplete)


def _operators(source: object) -> list[str]:
    """The operators of a scenario; none when it cannot be read, since a completion has nowhere to say so."""
    from dispatchlab.commands.sources import operators_in
    from dispatchlab.errors import DispatchLabError
    from dispatchlab.scenario.load import load_scenario

    if not isinstance(source, str):
        return []
    try:
        return [str(name) for name in operators_in(load_scenario(source))]
    except DispatchLabError:
        return []


def _files(incomplete: str) -> list[str]:
    """The folders and YAML files that begin as `incomplete` does; a folder ends in a slash."""
    folder = incomplete.rpartition("/")[0] + "/" if "/" in incomplete else ""
    try:
        entries = sorted(Path(folder or ".").iterdir())
    except OSError:
        return []
    return [
        f"{folder}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if (entry.is_dir() or entry.suffix in (".yaml", ".yml"))
        and (not entry.name.startswith(".") or incomplete.rpartition("/")[2].startswith("."))
    ]
