"""Where scenarios and operators are found: files and folders, names and globs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError, nearest

if TYPE_CHECKING:
    from dispatchlab.model.names import OperatorName
    from dispatchlab.scenario.value import Scenario

_NEAR = 3


class NoScenarioError(DispatchLabError):
    """A folder has no scenario below it."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"{self.folder}: there is no scenario below this folder: expected files that end in .yaml"


class UnknownOperatorError(DispatchLabError):
    """No operator has this name, or matches this glob.

    Args:
        asked: the name or glob.
        known: the operators that there are.
        source: where they come from.
    """

    def __init__(self, asked: str, known: tuple[str, ...], source: str) -> None:
        super().__init__(asked, known, source)
        self.asked, self.known, self.source = asked, known, source

    def __str__(self) -> str:
        near = nearest(self.asked, self.known, count=_NEAR)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        elif self.known:
            more = f" and {len(self.known) - _NEAR} more" if len(self.known) > _NEAR else ""
            hint = f"it has {', '.join(self.known[:_NEAR])}{more}"
        else:
            hint = "it names no operator"
        return f"there is no operator {self.asked!r} in {self.source}; {hint}"


class AmbiguousOperatorError(DispatchLabError):
    """A name without overload stands for several operators."""

    def __init__(self, asked: str, found: tuple[str, ...]) -> None:
        super().__init__(asked, found)
        self.asked, self.found = asked, found

    def __str__(self) -> str:
        overloads = ", ".join(self.found)
        return f"{self.asked} has {len(self.found)} overloads: name one of {overloads}, or write '{self.asked}*'"


class TableRowError(DispatchLabError):
    """A dispatch key has no row in any table."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"{self.key} has no row in a table: name a runtime key, such as CPU or AutogradCPU"


def scenario_files(paths: Iterable[str]) -> tuple[str, ...]:
    """The files that are meant: a folder stands for all the scenarios below it, in the order of their paths.

    Raises:
        NoScenarioError: there is none below a folder.
    """
    files: list[str] = []
    for path in paths:
        if not Path(path).is_dir():
            files.append(path)
            continue
        found = sorted(str(file) for file in Path(path).rglob("*") if file.suffix in (".yaml", ".yml"))
        if not found:
            raise NoScenarioError(path)
        files += found
    return tuple(dict.fromkeys(files))


def operators_in(scenario: Scenario) -> tuple[OperatorName, ...]:
    """The operators that a scenario names or observes, each once."""
    from dispatchlab.scenario.value import operators_named_by

    return tuple(dict.fromkeys((*operators_named_by(scenario.registrations), *scenario.operators)))


def find_operators(
    asked: str, known: Sequence[OperatorName], *, namespace: str, source: str
) -> tuple[OperatorName, ...]:
    """The operators that are meant by a name, a name without overload, or a glob.

    Args:
        asked: `test::foo.out`, `test::foo`, `foo`, `test::*`.
        known: the operators that there are.
        namespace: that of names without one.
        source: where the operators come from, for the error.

    Raises:
        UnknownOperatorError: none of them is meant; tells the nearest.
        AmbiguousOperatorError: a name without overload has several.
    """
    wanted = asked if "::" in asked or not namespace else f"{namespace}::{asked}"
    if any(character in wanted for character in "*?["):
        matching = tuple(name for name in known if fnmatchcase(str(name), wanted))
    else:
        matching = tuple(name for name in known if str(name) == wanted)
        if not matching:
            matching = tuple(name for name in known if name.qualified == wanted)
            if len(matching) > 1:
                raise AmbiguousOperatorError(wanted, tuple(map(str, matching)))
    if not matching:
        raise UnknownOperatorError(wanted, tuple(map(str, known)), source)
    return matching


def table_rows(keys: Iterable[str]) -> tuple[str, ...]:
    """The names of table rows.

    Raises:
        UnknownKeyError: one is no dispatch key; tells the nearest.
        TableRowError: one is a key without a row, as an alias key is.
    """
    from dispatchlab.model.keys import parse_key

    found = []
    for text in keys:
        key = parse_key(text)
        if not key.is_runtime:
            raise TableRowError(text)
        found.append(str(key))
    return tuple(found)
