"""Set ini options of pytest in the file that pytest reads, without touching anything else in it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.bounded_read import ReadError, read_configuration

_BOM = "\ufeff"


class ConfigEditError(DispatchLabError):
    """A file of pytest's configuration cannot be edited; it is unchanged.

    Args:
        path: the file.
        reason: why.
        lines: what to write into it by hand.
    """

    path: str
    reason: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path} was not changed: {self.reason}; write into it\n" + "\n".join(
            f"  {line}" for line in self.lines
        )


@dataclass(frozen=True, slots=True)
class PytestConfig:
    """The file that pytest reads its ini options from.

    Args:
        path: the file, which need not exist.
        section: the section or table in it.
        text: what it holds.
    """

    path: Path
    section: str
    text: str

    @property
    def is_toml(self) -> bool:
        """Whether it is a TOML file."""
        return self.path.suffix == ".toml"

    def values(self) -> Mapping[str, Any]:
        """The ini options that are set."""
        return _values(self.path, self.section, self.text)

    def with_options(self, options: Mapping[str, str | list[str]]) -> str:
        """The text with these options besides, which are not set in it.

        Raises:
            ConfigEditError: there is no safe way to add them.
        """
        lines = tuple(self._line(name, value) for name, value in options.items())
        newline = "\r\n" if "\r\n" in self.text else "\n"
        header = re.search(_header(self.section, toml=self.is_toml), self.text, re.MULTILINE)
        if header is not None:
            at = header.end()
            start = "" if self.text[at - 1 : at] == "\n" else newline
            new = self.text[:at] + start + newline.join(lines) + newline + self.text[at:]
        elif self.values():
            raise ConfigEditError(str(self.path), f"its {self.section} is not written as a table", lines)
        else:
            gap = newline if self.text.strip() else ""
            end = "" if not self.text or self.text.endswith("\n") else newline
            new = f"{self.text}{end}{gap}[{self.section}]{newline}{newline.join(lines)}{newline}"
        self._check(new, options, lines)
        return new

    def _line(self, name: str, value: str | list[str]) -> str:
        if self.is_toml:
            texts = [f'"{each}"' for each in ([value] if isinstance(value, str) else value)]
            return f"{name} = {texts[0]}" if isinstance(value, str) else f"{name} = [{', '.join(texts)}]"
        return f"{name} = {value if isinstance(value, str) else ' '.join(value)}"

    def _check(self, new: str, options: Mapping[str, str | list[str]], lines: tuple[str, ...]) -> None:
        """Refuse a text that says anything but the old one and the options."""
        try:
            before, after = _everything(self.path, self.text), _everything(self.path, new)
        except (tomllib.TOMLDecodeError, IniError) as error:
            raise ConfigEditError(str(self.path), str(error).splitlines()[0], lines) from None
        table: Any = after
        for part in self.section.split(".") if self.is_toml else [self.section]:
            table = table.get(part, {})
        for name in options:
            table.pop(name, None)
        if _pruned(before) != _pruned(after):
            raise ConfigEditError(str(self.path), f"its {self.section} could not be found", lines)


def pytest_config(root: Path) -> PytestConfig:
    """The file that pytest reads in this folder; where it reads none, the one to write.

    Raises:
        ConfigEditError: a file cannot be read.
    """
    for name in ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"):
        if (root / name).is_file():
            return _config(root / name, "pytest")
    for name, sections in (
        ("pyproject.toml", ("tool.pytest.ini_options", "tool.pytest")),
        ("tox.ini", ("pytest",)),
        ("setup.cfg", ("tool:pytest",)),
    ):
        for section in sections:
            if (root / name).is_file() and _has(found := _config(root / name, section)):
                return found
    if (root / "pyproject.toml").is_file():
        return _config(root / "pyproject.toml", "tool.pytest.ini_options")
    return PytestConfig(root / "pytest.ini", "pytest", "")


def _config(path: Path, section: str) -> PytestConfig:
    try:
        config = PytestConfig(path, section, read_configuration(path).decode())
        config.values()
    except OSError as error:
        raise ConfigEditError(str(path), error.strerror or str(error), ()) from None
    except RecursionError:
        raise ConfigEditError(str(path), "it cannot be read (a value is nested too deep)", ()) from None
    except ReadError as error:
        raise ConfigEditError(str(path), error.reason, ()) from None
    except (ValueError, IniError) as error:
        raise ConfigEditError(str(path), f"it cannot be read ({str(error).splitlines()[0]})", ()) from None
    return config


def _has(config: PytestConfig) -> bool:
    return (
        bool(config.values())
        or re.search(_header(config.section, toml=config.is_toml), config.text, re.MULTILINE) is not None
    )


def _header(section: str, *, toml: bool) -> str:
    """The line that opens a section, with its end."""
    name = r"\s*\.\s*".join(map(re.escape, section.split("."))) if toml else re.escape(section)
    space = r"[ \t]*"
    return rf"^{space}\[{space}{name}{space}\]{space}(?:[#;].*)?(?:\r?\n|\Z)" if toml else rf"^\[{name}\].*(?:\r?\n|\Z)"


def _everything(path: Path, text: str) -> dict[str, Any]:
    text = text.removeprefix(_BOM)
    if path.suffix == ".toml":
        return tomllib.loads(text)
    parser = ConfigParser(interpolation=None, strict=False, allow_no_value=True, delimiters=("=", ":"))
    parser.read_string(text)
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _values(path: Path, section: str, text: str) -> Mapping[str, Any]:
    table: Any = _everything(path, text)
    for part in section.split(".") if path.suffix == ".toml" else [section]:
        table = table.get(part, {}) if isinstance(table, dict) else {}
    return table if isinstance(table, dict) else {}


def _pruned(value: Any) -> Any:
    """The same without empty tables, which the options may have been the first entries of."""
    if not isinstance(value, dict):
        return value
    kept = {key: _pruned(each) for key, each in value.items()}
    return {key: each for key, each in kept.items() if each != {}}


def folders_of(value: object) -> Sequence[str]:
    """The paths in an ini option of the type `paths`."""
    return [str(each) for each in value] if isinstance(value, list) else str(value).split()
