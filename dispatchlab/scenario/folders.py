"""Find scenario files below a folder, for the command line and for pytest.

A YAML file is a scenario unless it is recognised as something else that dispatchlab writes. Files and
folders whose names begin with a dot are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from dispatchlab.errors import RequestError, first_of
from dispatchlab.files import FileContent, FileKind, content_of

SUFFIXES = (".yaml", ".yml")
"""How the names of scenario files end."""


class Found(NamedTuple):
    """The YAML files below a folder, in the order of their paths.

    Args:
        scenarios: the scenarios, and unknown files, which are errors when they are read.
        others: the other files, with their kinds.
    """

    scenarios: tuple[Path, ...]
    others: tuple[tuple[Path, FileContent], ...]


def scenarios_below(folder: str | os.PathLike[str]) -> Found:
    """Return the scenarios below a folder, and the other YAML files there."""
    scenarios: list[Path] = []
    others: list[tuple[Path, FileContent]] = []
    for path in sorted(_yaml_files(folder)):
        found = content_of(path)
        if found is None or found.kind is FileKind.SCENARIO:
            scenarios.append(path)
        else:
            others.append((path, found))
    return Found(tuple(scenarios), tuple(others))


def is_scenario_below(path: Path, folder: Path) -> bool:
    """Return whether `scenarios_below` finds a file below a folder."""
    if path.suffix not in SUFFIXES or any(map(is_left_out, path.relative_to(folder).parts)):
        return False
    found = content_of(path)
    return found is None or found.kind is FileKind.SCENARIO


def is_left_out(name: str) -> bool:
    """Return whether a file or folder with this name is left out of a folder of scenarios."""
    return name.startswith(".")


def _yaml_files(folder: str | os.PathLike[str]) -> list[Path]:
    files: list[Path] = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_left_out(name)]
        files += [Path(at, name) for name in names if name.endswith(SUFFIXES) and not is_left_out(name)]
    return [path for path in files if path.is_file() or not path.exists()]  # a link that leads nowhere is an error


# -- those that a command is given


def scenario_files(paths: Iterable[str], *, report: Callable[[str], None] | None = None) -> tuple[str, ...]:
    """Return the files to read; a folder stands for all scenarios below it, in the order of their paths.

    Args:
        paths: files and folders.
        report: a function that gets a sentence for each folder with files that are not scenarios.

    Raises:
        RequestError: there is none below a folder.
    """
    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        found = scenarios_below(path)
        shown = first_of([f"{other} is {content}" for other, content in found.others], 3)
        verb = "is" if len(found.others) == 1 else "are"
        others = f"{len(found.others)} of the files below {path} {verb} left out: {shown}" if found.others else ""
        if not found.scenarios:
            what = f"{path}: there is no scenario below this folder: expected files that end in .yaml"
            raise RequestError(f"{what}; {others}" if others else what)
        if others and report is not None:
            report(f"note: {others}")
        files += map(str, found.scenarios)
    return tuple(dict.fromkeys(files))
