"""What a project says about its check: `[tool.dispatchlab]` in pyproject.toml, or dispatchlab.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.files import ReadError, read_configuration
from dispatchlab.questions.check.report import Question

OWN_FILE = "dispatchlab.toml"
_PROJECT_FILE = "pyproject.toml"
_HEADER = re.compile(r"^\s*\[\s*tool\s*\.\s*\"?dispatchlab\"?\s*\]", re.MULTILINE)
_KEYS = ("packages", "fail", "baseline", "record")
_AT = re.compile(r"\(at line (\d+), column \d+\)")


class SettingsError(DispatchLabError):
    """A file of settings says something that the check does not know.

    Args:
        path: the file.
        line: the line; 0 where it is not known.
        reason: what was found and what was expected.
    """

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a project says about its check.

    Args:
        packages: the packages that are checked, where none is named.
        fail: the questions whose findings fail the check; None for all.
        baseline: the file of the findings that are accepted.
        record: the files of the records that the packages are compared with.
    """

    packages: tuple[str, ...] = ()
    fail: tuple[Question, ...] | None = None
    baseline: str | None = None
    record: tuple[str, ...] = ()


def settings_of(root: Path) -> Settings:
    """The settings of the project in a folder; paths in them are relative to it.

    Raises:
        SettingsError: a file cannot be read, or says what the check does not know.
    """
    own, project = root / OWN_FILE, root / _PROJECT_FILE
    in_own = _Table.read(own, ()) if own.is_file() else None
    in_project = _Table.read(project, ("tool", "dispatchlab")) if project.is_file() else None
    if in_own is not None and in_project is not None and in_project.values:
        reason = f"{own} has settings, too: keep them in one of the two files"
        raise SettingsError(str(project), in_project.header, reason)
    table = in_own or in_project
    return Settings() if table is None else _settings(table, root)


@dataclass(frozen=True, slots=True)
class _Table:
    """The settings as they stand in a file."""

    path: str
    text: str
    values: Mapping[str, Any]
    header: int

    @classmethod
    def read(cls, path: Path, parts: tuple[str, ...]) -> _Table:
        try:
            text = read_configuration(path).decode().removeprefix("\ufeff")
            table: Any = tomllib.loads(text)
        except (OSError, ReadError) as error:
            raise SettingsError(str(path), 0, f"it cannot be read: {error}") from None
        except RecursionError:
            raise SettingsError(str(path), 0, "it cannot be read: a value is nested too deep") from None
        except ValueError as error:  # not TOML, not UTF-8, or a number of many digits
            first = str(error).splitlines()[0]
            at = _AT.search(first)
            raise SettingsError(str(path), int(at[1]) if at else 0, f"it cannot be read: {first}") from None
        for part in parts:
            table = table.get(part, {}) if isinstance(table, dict) else {}
        found = _HEADER.search(text) if parts else None
        header = 0 if found is None else text.count("\n", 0, found.end()) + 1
        if not isinstance(table, dict):
            raise SettingsError(str(path), header, "expected a table of settings: [tool.dispatchlab]")
        return cls(str(path), text, table, header)

    def line_of(self, key: str) -> int:
        """The line of a key; that of the table where it is not found."""
        lines = self.text.splitlines()
        parts = r"^\s*\[?\s*(?:tool\s*\.\s*)?(?:dispatchlab\s*\.\s*)?"
        start = re.compile(rf"{parts}[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
        return next(
            (at for at, line in enumerate(lines[self.header :], self.header + 1) if start.match(line)), self.header
        )

    def wrong(self, key: str, reason: str) -> SettingsError:
        return SettingsError(self.path, self.line_of(key), reason)

    def texts(self, key: str) -> tuple[str, ...]:
        """A text, or a list of texts."""
        value = self.values.get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(one, str) and one.strip() for one in found):
            raise self.wrong(key, f"{key}: expected a list of texts but found {value!r:.80}")
        return tuple(found)


def _settings(table: _Table, root: Path) -> Settings:
    for key in table.values:
        if key not in _KEYS:
            known = f"there are {', '.join(_KEYS)}"
            raise table.wrong(key, f"there is no setting {key!r}{did_you_mean(key, _KEYS)}; {known}")
    found = Settings(table.texts("packages"), record=tuple(str(root / one) for one in table.texts("record")))
    if "baseline" in table.values:
        if not isinstance(table.values["baseline"], str):
            raise table.wrong("baseline", f"baseline: expected a path but found {table.values['baseline']!r:.80}")
        found = replace(found, baseline=str(root / table.values["baseline"]))
    if "fail" not in table.values:
        return found
    names = [str(one) for one in Question]
    for one in table.texts("fail"):
        if one not in names:
            reason = f"fail: there is no question {one!r}{did_you_mean(one, names)}; there are {', '.join(names)}"
            raise table.wrong("fail", reason)
    return replace(found, fail=tuple(map(Question, table.texts("fail"))))
