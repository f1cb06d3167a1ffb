"""The ini options that pytest reads in a folder, and the lines that set dispatchlab's options."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from pathlib import Path
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.files import ReadError, read_configuration

RECORDS = "dispatchlab_records"
_FILES = {
    "pytest.ini": "pytest",
    "pyproject.toml": "tool.pytest.ini_options",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}


class PytestConfigError(DispatchLabError):
    """A file of pytest's configuration cannot be read."""

    path: str
    reason: str

    template = "{path} cannot be read: {reason}"


def pytest_options(root: Path) -> Mapping[str, Any]:
    """Return the ini options of a folder, from the first file that has some.

    Raises:
        PytestConfigError: a file cannot be read.
    """
    for name, section in _FILES.items():
        path = root / name
        if path.is_file() and (found := _section(path, section)):
            return found
    return {}


def option_lines(root: Path, options: Mapping[str, str | Sequence[str]]) -> tuple[str, tuple[str, ...]]:
    """Return the place that should set options, and the lines to add to it: a file, or its existing section."""
    if (root / "pyproject.toml").is_file() and not (root / "pytest.ini").is_file():
        texts = {name: f'"{value}"' if isinstance(value, str) else str(list(value)) for name, value in options.items()}
        lines = tuple(f"{name} = {text}".replace("'", '"') for name, text in texts.items())
        return _place(root, "pyproject.toml", f"[{_FILES['pyproject.toml']}]", lines)
    texts = {name: value if isinstance(value, str) else " ".join(value) for name, value in options.items()}
    return _place(root, "pytest.ini", "[pytest]", tuple(f"{name} = {text}" for name, text in texts.items()))


def _place(root: Path, file: str, header: str, lines: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    text = (root / file).read_text(encoding="utf-8-sig") if (root / file).is_file() else ""
    if header in (line.partition("#")[0].strip() for line in text.splitlines()):
        return f"{header} in {file}", lines
    return file, (header, *lines)


def _section(path: Path, section: str) -> Mapping[str, Any]:
    try:
        text = read_configuration(path).decode("utf-8-sig")
        if path.suffix == ".toml":
            table: Any = tomllib.loads(text)
            for part in section.split("."):
                table = table.get(part, {})
            return table if isinstance(table, dict) else {}
        parser = ConfigParser(interpolation=None, strict=False, allow_no_value=True)
        parser.read_string(text)
        return dict(parser.items(section)) if parser.has_section(section) else {}
    except ReadError as error:
        raise PytestConfigError(str(path), error.reason) from None
    except (OSError, ValueError, AttributeError, IniError) as error:
        raise PytestConfigError(str(path), str(error).splitlines()[0]) from None


def folders_of(value: object) -> Sequence[str]:
    """Return the paths in an ini option of the type `paths`."""
    return [str(each) for each in value] if isinstance(value, list) else str(value).split()
