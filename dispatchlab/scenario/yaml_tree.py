"""YAML text as a tree of values that know their source location; the problems of a file in one error.

See Note [YAML as we read it].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import yaml

from dispatchlab._gc_pause import collector_paused
from dispatchlab.errors import DispatchLabError
from dispatchlab.files import ReadError, decoded
from dispatchlab.model.registration import SourceLocation

SHOWN = 60
"""How many characters of a user's text a message quotes at most."""


MOST_SHOWN = 50
"""How many problems the text of an error lists."""

MOST_PROBLEMS = 1_000
"""With this many problems, a file is read no further."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a file.

    Args:
        where: the source location, or only the file if it could not be read.
        message: the problem and the expectation.
        hint: what to do next, such as the nearest right name; may be empty.
        rule: the rule of the format that is broken, where its rules have names.
    """

    where: SourceLocation | str
    message: str
    hint: str = ""
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"; {self.hint}" if self.hint else "")


class YamlError(DispatchLabError):
    """A file cannot be used: all its problems as lines, `file:line:column: message`.

    Args:
        problems: at least one, in the order of the file.
    """

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:MOST_SHOWN]]
        left = len(self.problems) - len(lines)
        if left:
            least = "at least " if len(self.problems) >= MOST_PROBLEMS else ""
            lines.append(f"and {least}{left:,} more problem{'' if left == 1 else 's'}: fix these first")
        return "\n".join(lines)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems in the order of the file, each once."""

    def position(problem: Problem) -> tuple[int, int]:
        where = problem.where
        return (0, 0) if isinstance(where, str) else (where.line, where.column)

    return tuple(sorted(dict.fromkeys(problems), key=position))


def quoted(text: str) -> str:
    """Return the text as one printable line in quotes, shortened if it is long."""
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")


# Note [YAML as we read it]
# ~~~~~~~~~~~~~~~~~~~~~~~~~
# A scenario is text, lists and mappings. We take the events of PyYAML's parser and build the tree from them, because
# the layers above it do more than a scenario needs: the composer recurses as deep as the file nests, and C code that
# recurses ends the process; aliases make a small file stand for a huge tree; the resolver turns `no` into False and
# `2020-01-01` into a date. Here a scalar is the text that stands in the file, `debug: yes` is "yes" and `debug: 1` is
# "1"; nothing at all after a colon is no value, which is an error; and aliases and tags are errors.

_LOADER: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Scalar(NamedTuple):
    """Text; `raw` is how it is written, quotes included, and `plain` is true when it has none."""

    line: int
    column: int
    text: str
    raw: str
    plain: bool

    @property
    def is_missing(self) -> bool:
        """True if there is no text after the colon or the dash."""
        return self.plain and not self.text

    def column_of(self, at: int) -> int:
        """Return the column of character `at` of the text; of the whole scalar behind escapes or line breaks."""
        start = 0 if self.plain else 1
        exact = self.raw[start : start + at] == self.text[:at] and "\n" not in self.text[:at]
        return self.column + start + at if exact else self.column


class Listing(NamedTuple):
    """A list."""

    line: int
    column: int
    items: tuple[Node, ...]


class Mapping(NamedTuple):
    """A mapping; repeated keys are still there, and a key can be any node."""

    line: int
    column: int
    pairs: tuple[tuple[Node, Node], ...]


Node: TypeAlias = Scalar | Listing | Mapping


def compose(data: bytes | str, file: str) -> Node:
    """Return the tree of a file with one YAML document.

    Args:
        data: the content of the file.
        file: its name in source locations.

    Raises:
        YamlError: it is unreadable; the error has the problem.
    """
    text = _decode(data, file) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    if found := _UNPRINTABLE.search(text):
        at = found.start()
        place = SourceLocation(file, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        message = f"found the character U+{ord(found.group()):04X}, which YAML does not allow"
        raise YamlError((Problem(place, message),))
    try:
        with collector_paused():  # a million values are looked at again and again, and no cycle is among them
            return _build(yaml.parse(text, Loader=_LOADER), text, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = SourceLocation(file, mark.line + 1, mark.column + 1) if mark else file
        line = text.splitlines()[mark.line : mark.line + 1] if mark else []
        hint = "indent with blanks, not with tabs" if any("\t" in each for each in line) else ""
        if "mapping values" in (error.problem or ""):
            hint = "put a text with a colon in quotes"
        context = f" {error.context}" if error.context else ""
        if mark and error.context_mark and error.context_mark.line != mark.line:
            context += f" from line {error.context_mark.line + 1} on"
        raise YamlError((Problem(where, f"this is not YAML: {error.problem}{context}", hint),)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise YamlError((Problem(file, f"this is not YAML: {' '.join(str(error).split())}"),)) from None


def _decode(data: bytes, file: str) -> str:
    try:
        return decoded(data, file)
    except ReadError as error:
        message, _, hint = error.reason.partition("; ")
        raise YamlError((Problem(SourceLocation(file, error.line, error.column), message, hint),)) from None


class _Open(NamedTuple):
    line: int
    column: int
    is_list: bool
    nodes: list[Node]


def _build(events: Iterator[yaml.Event], text: str, file: str) -> Node:
    stack: list[_Open] = []
    root: Node | None = None
    for event in events:
        node: Node
        line, column = (mark.line + 1, mark.column + 1) if (mark := event.start_mark) else (1, 1)
        match event:
            case yaml.ScalarEvent():
                _refuse_tag(event, file)
                value = event.value
                if not value.isascii() and _SURROGATE.search(value):
                    raise _refused(event, file, "found half of a surrogate pair", "write the character itself")
                raw = text[mark.index : event.end_mark.index] if mark and event.end_mark else ""
                node = Scalar(line, column, value, raw, event.style in (None, ""))
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                _refuse_tag(event, file)
                stack.append(_Open(line, column, isinstance(event, yaml.SequenceStartEvent), []))
                continue
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                line, column, is_list, nodes = stack.pop()
                if is_list:
                    node = Listing(line, column, tuple(nodes))
                else:
                    node = Mapping(line, column, tuple(zip(nodes[::2], nodes[1::2], strict=True)))
            case yaml.AliasEvent():
                message = f"found the alias *{event.anchor}, which has no meaning here"
                raise _refused(event, file, message, "write the value out")
            case yaml.DocumentStartEvent() if root is not None:
                message = "found a second YAML document, but a file holds one"
                raise _refused(event, file, message, "give it a file of its own")
            case _:
                continue
        if stack:
            stack[-1].nodes.append(node)
        else:
            root = node
    return root if root is not None else Scalar(1, 1, "", "", plain=True)


def _refuse_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent, file: str) -> None:
    if event.tag is not None:
        message = f"found the tag {quoted(event.tag)}, which has no meaning here"
        raise _refused(event, file, message, "leave it out: every value is read as the text that stands there")


def _refused(event: yaml.Event, file: str, message: str, hint: str) -> YamlError:
    mark = event.start_mark
    where = SourceLocation(file, mark.line + 1, mark.column + 1) if mark else file
    return YamlError((Problem(where, message, hint),))
