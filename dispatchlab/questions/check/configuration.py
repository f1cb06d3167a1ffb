"""The settings of a project for its check: `[tool.dispatchlab]` in pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.files import ReadError, read_configuration
from dispatchlab.questions.check.report import Question

_KEYS = ("packages", "fail", "baseline", "record", "select", "ignore", "per-operator-ignores", "inputs")


class SettingsError(DispatchLabError):
    """A settings file has an entry that the check does not know.

    Args:
        path: the file.
        reason: the entry, and the expected form.
    """

    path: str
    reason: str

    template = "{path}: {reason}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a project for its check.

    Args:
        packages: the packages to check if none is named.
        fail: the questions whose findings fail the check; None for all.
        baseline: the file of accepted findings.
        record: the files of the records to compare the packages with.
        select: the rules whose findings are shown; empty for all.
        ignore: the rules whose findings are not shown.
        by_operator: for a name or glob of operators, the rules whose findings about them are not shown.
        inputs: the file of inputs for the trials; empty for none.
    """

    packages: tuple[str, ...] = ()
    fail: tuple[Question, ...] | None = None
    baseline: str | None = None
    record: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    by_operator: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inputs: str = ""


def settings_of(root: Path) -> Settings:
    """Return the settings of the project in a folder; their paths are relative to the folder.

    Raises:
        SettingsError: pyproject.toml cannot be read, or has an unknown entry.
    """
    path = root / "pyproject.toml"
    if not path.is_file():
        return Settings()
    try:
        project: Any = tomllib.loads(read_configuration(path).decode().removeprefix("\ufeff"))
    except (OSError, ReadError, ValueError, RecursionError) as error:  # not TOML, not UTF-8, nested too deep
        raise SettingsError(str(path), f"it cannot be read: {error}".partition("\n")[0]) from None
    tools = project.get("tool", {})
    table = tools.get("dispatchlab", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise SettingsError(str(path), "expected a table of settings: [tool.dispatchlab]")
    try:
        return _settings(table, root)
    except ValueError as error:
        raise SettingsError(str(path), str(error)) from None


def _settings(table: Mapping[str, Any], root: Path) -> Settings:
    for key in table:
        if key not in _KEYS:
            raise ValueError(f"there is no setting {key!r}{did_you_mean(key, _KEYS)}; there are {', '.join(_KEYS)}")
    for key in ("baseline", "inputs"):
        if not isinstance(table.get(key, ""), str):
            raise ValueError(f"{key}: expected a path but found {table[key]!r:.80}")
    baseline, inputs = table.get("baseline"), table.get("inputs")
    names = [str(one) for one in Question]
    for one in _texts(table, "fail"):
        if one not in names:
            raise ValueError(
                f"fail: there is no question {one!r}{did_you_mean(one, names)}; there are {', '.join(names)}"
            )
    by_operator = table.get("per-operator-ignores", {})
    if not isinstance(by_operator, dict):
        raise ValueError(f"per-operator-ignores: expected a table of operators but found {by_operator!r:.80}")
    return Settings(
        _texts(table, "packages"),
        tuple(map(Question, _texts(table, "fail"))) if "fail" in table else None,
        None if baseline is None else str(root / baseline),
        tuple(str(root / one) for one in _texts(table, "record")),
        _texts(table, "select"),
        _texts(table, "ignore"),
        {glob: _texts(by_operator, glob) for glob in by_operator},
        str(root / inputs) if inputs else "",
    )


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a text, or a list of texts."""
    value = table.get(key, [])
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one.strip() for one in found):
        raise ValueError(f"{key}: expected a list of texts but found {value!r:.80}")
    return tuple(found)
