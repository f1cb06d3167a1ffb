"""The ini options that pytest reads in a folder, and the text that sets dispatchlab's options."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from pathlib import Path
from typing import Any, NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.files import ReadError, read_configuration

RECORDS = "dispatchlab_records"
_OWN_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
"""The files that pytest reads before all others, also if they have no options."""

_FILES = (
    *((file, "pytest") for file in _OWN_FILES),
    ("pyproject.toml", "tool.pytest"),
    ("pyproject.toml", "tool.pytest.ini_options"),
    ("tox.ini", "pytest"),
    ("setup.cfg", "tool:pytest"),
)
"""The files with their sections, in the order of pytest."""


class PytestConfigError(DispatchLabError):
    """A file of pytest's configuration cannot be read."""

    path: str
    reason: str

    template = "{path} cannot be read: {reason}"


class Configuration(NamedTuple):
    """The file that pytest reads in a folder, or will read.

    Args:
        file: its name.
        section: the section with the options.
        text: its text; empty without a file.
        options: its options.
    """

    file: str
    section: str
    text: str
    options: Mapping[str, Any]


def pytest_configuration(root: Path) -> Configuration:
    """Return the file that has pytest's options in a folder, or else the file to write them to.

    Raises:
        PytestConfigError: a file cannot be read.
    """
    found = {}
    for file, section in _FILES:
        if (root / file).is_file():
            found[file] = one = Configuration(file, section, *_read(root / file, section))
            if one.options or file in _OWN_FILES:
                return one
    return found.get("pyproject.toml", Configuration("pytest.ini", "pytest", "", {}))


def with_options(configuration: Configuration, options: Mapping[str, str | Sequence[str]]) -> str | None:
    """Return the text of a file with more options, and with all its lines; None if the file has an unusual form."""
    file, section, before, known = configuration
    end, rows = "\r\n" if "\r\n" in before else "\n", before.splitlines()
    header, lines = f"[{section}]", option_lines(file, options)
    places = [number for number, row in enumerate(rows, 1) if row.partition("#")[0].strip() == header]
    if places:
        rows[places[0] : places[0]] = lines
    else:
        rows += [*([""] if rows else []), header, *lines]
    text = end.join([*rows, ""])
    try:
        added = _options_in(file, f"{header}\n" + "\n".join(lines), section)
        return text if _options_in(file, text, section) == {**known, **added} else None
    except (ValueError, IniError):
        return None


def option_lines(file: str, options: Mapping[str, str | Sequence[str]]) -> list[str]:
    """Return the lines that set options in a file."""
    if file.endswith(".toml"):
        return [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    texts = {name: value if isinstance(value, str) else " ".join(value) for name, value in options.items()}
    return [f"{name} = {text}" for name, text in texts.items()]


def _read(path: Path, section: str) -> tuple[str, Mapping[str, Any]]:
    try:
        text = read_configuration(path).decode()
        return text, _options_in(path.name, text, section)
    except ReadError as error:
        raise PytestConfigError(str(path), error.reason) from None
    except (OSError, ValueError, AttributeError, IniError) as error:
        raise PytestConfigError(str(path), str(error).splitlines()[0]) from None


def _options_in(file: str, text: str, section: str) -> Mapping[str, Any]:
    text = text.removeprefix("\ufeff")
    if file.endswith(".toml"):
        table: Any = tomllib.loads(text)
        for part in section.split("."):
            table = table.get(part, {})
        return (
            {name: value for name, value in table.items() if name != "ini_options"} if isinstance(table, dict) else {}
        )
    parser = ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    parser.read_string(text)
    return dict(parser.items(section)) if parser.has_section(section) else {}


def folders_of(value: object) -> Sequence[str]:
    """Return the paths in an ini option of the type `paths`."""
    return [str(each) for each in value] if isinstance(value, list) else str(value).split()
