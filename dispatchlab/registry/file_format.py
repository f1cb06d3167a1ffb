"""The format of a registry file: its layout and bounds, rows of operators, and what can be wrong with it.

A row is `[arguments and returns, source, line, alias kind, [tag...], [[key, source, line, inferred, flags]...]]`.
A number of -1 stands for none; a source with line -1 is the whole text, with another the text is `source:line`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeVar

from dispatchlab.errors import DispatchLabError
from dispatchlab.file_kinds import REGISTRY_MAGIC
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.registry.model import (
    Recorded,
    RecordedFallback,
    RecordedKernel,
    RecordedOperator,
    Registry,
    name_of,
)


class RegistryFileError(DispatchLabError):
    """A file is not a recorded registry, not a whole one, or not one that can be read here.

    Args:
        path: the file.
        reason: a clause that says what was found, what was wanted and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class RegistryTooLargeError(DispatchLabError):
    """A registry has more in it than a file may hold.

    Args:
        what: the part that is too large.
        size: its size.
        limit: the largest size that is read back.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.what, self.size, self.limit = what, size, limit

    def __str__(self) -> str:
        return (
            f"the registry cannot be written, for no file of it would be read: {self.what} come to {self.size:,}, "
            + (f"and {self.limit:,} is the most")
        )


# Note [The file of a registry]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A head of 60 bytes: eight that no text starts with, the version, the size of the whole file, the sizes of the
# directory packed and plain, and the SHA-256 of all that is not the digest itself. Then the directory and the blocks,
# each JSON packed by zlib. The directory has the names of all operators, the tables of the texts that repeat (where
# kernels come from, inferred schemas, tags), the fallbacks, and for each block its packed size, plain size and CRC. A
# block holds `PER_BLOCK` operators in the order of the names, a row each. So one operator costs the
# directory and one block.
# Nothing is unpacked before its declared size is within bounds, and no more than declared is unpacked: a file of a few
# bytes can declare gigabytes. The digest finds what happens to files by accident; a file made up on purpose can have a
# right one, so every value is looked at all the same. The bounds below keep the largest file that passes them, read as
# a whole, under one gigabyte of memory; PyTorch 2.13 needs about a twentieth of each.
# A file with a Python layer has version 2, and the layer behind the blocks: a whole file of its own, whose size is in
# the directory. See Note [The file of Python layers].

MAGIC = REGISTRY_MAGIC

SUFFIX = ".dlreg"
"""How the names of registry files end."""

VERSION = 1
"""The version of the format; it changes whenever an older reader would misread a file."""

VERSION_WITH_PYTHON = 2
"""The version of a file that has a Python layer; it is read as well."""

HEAD = struct.Struct("<8sIQII32s")
"""Magic, version, size of the file, size of the directory packed and plain, digest."""

PER_BLOCK = 64

MAX_FILE = 32 << 20
MAX_DIRECTORY = 8 << 20
MAX_BLOCK = 4 << 20
MAX_PLAIN = 32 << 20
MAX_OPERATORS = 100_000
MAX_KERNELS = 400_000
MAX_SOURCE = 512
"""The longest text that a line number is added to; a longer one is kept whole, and once."""


def digest(data: bytes) -> bytes:
    """The digest of a file: of everything but the place of the digest itself."""
    hashed = sha256(data[: HEAD.size - 32])
    hashed.update(data[HEAD.size :])
    return hashed.digest()


def sealed(data: bytes) -> bytes:
    """The file with its digest in place."""
    return data[: HEAD.size - 32] + digest(data) + data[HEAD.size :]


_LONGEST_NAME = 1024
_NAME = re.compile(
    rf"[^\s:\x00-\x1f\x7f-\x9f\ud800-\udfff][^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{{0,{_LONGEST_NAME - 1}}}"
)


_UNUSUAL = re.compile(r"[^!-~\n]")


def impossible_name(names: Sequence[str]) -> str | None:
    """The first of the texts that is no name of an operator: with blanks or control characters, or far too long."""
    lines = "\n".join(names)
    if not names or (
        max(map(len, names)) <= _LONGEST_NAME
        and lines.count("\n") == len(names) - 1
        and not _UNUSUAL.search(lines)
        and lines[:1] != ":"
        and "\n:" not in lines
        and all("::" in name for name in names)
    ):
        return None  # they are looked at one by one only where one may be wrong, for it takes long
    return next((name for name in names if "::" not in name or not _NAME.fullmatch(name)), None)


T = TypeVar("T")

NONE = -1

_ALIASES = tuple(AliasKind)
_FLAGS = tuple(KernelFlags)
_KEYS = {int(key): key for key in DispatchKey if key is not DispatchKey.Undefined}  # it never has a kernel
_WITH_LINE = re.compile(r"(.*):(0|[1-9][0-9]{0,8})", re.DOTALL)


class Damaged(Exception):
    """A row is not one that is ever written; the text says what of it, for the error of the file."""


def source_and_line(debug: str) -> tuple[str, int]:
    """A debug text as the two numbers of a row have it: what repeats, and the line."""
    match = _WITH_LINE.fullmatch(debug)
    if match is None or len(match[1]) > MAX_SOURCE:
        return debug, NONE
    return match[1], int(match[2])


@dataclass(frozen=True, slots=True)
class Tables:
    """The texts that rows name by number.

    Args:
        sources: where kernels and defs come from, without their lines.
        inferred: inferred schemas.
        tags: names of tags.
    """

    sources: Sequence[str]
    inferred: Sequence[str]
    tags: Sequence[str]
    numbers: dict[str, dict[str, int]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, recorded: Recorded) -> Tables:
        """The tables that a registry needs, each sorted."""
        sources = {source_and_line(fallback.debug)[0] for fallback in recorded.fallbacks}
        inferred: set[str] = set()
        tags: set[str] = set()
        for operator in recorded:
            sources.add(source_and_line(operator.debug)[0])
            tags |= operator.tags
            for kernel in operator.kernels:
                sources.add(source_and_line(kernel.debug)[0])
                if kernel.inferred is not None:
                    inferred.add(kernel.inferred)
        return cls.sorted(sources=sources, inferred=inferred, tags=tags)

    @classmethod
    def sorted(cls, *, sources: Iterable[str], inferred: Iterable[str], tags: Iterable[str]) -> Tables:
        """The tables of these texts, each once and sorted."""
        texts = {"sources": sorted({*sources}), "inferred": sorted({*inferred}), "tags": sorted({*tags})}
        numbers = {name: {text: at for at, text in enumerate(table)} for name, table in texts.items()}
        return cls(**texts, numbers=numbers)

    def place(self, debug: str) -> tuple[int, int]:
        """The two numbers of a debug text."""
        source, line = source_and_line(debug)
        return self.numbers["sources"][source], line

    def debug(self, source: object, line: object) -> str:
        """The debug text of two numbers; raises Damaged."""
        text = _at(self.sources, source, "a source")
        if type(line) is not int or not NONE <= line < 10**9:
            raise Damaged("wrong in a line number")
        if line == NONE:
            return text
        if len(text) > MAX_SOURCE:
            raise Damaged("wrong in a source")
        return f"{text}:{line}"


def operator_row(operator: RecordedOperator, tables: Tables) -> list[object]:
    """The row of an operator."""
    return [
        None if operator.schema is None else operator.schema[len(str(operator.name)) :],
        *tables.place(operator.debug),
        NONE if operator.alias is None else _ALIASES.index(operator.alias),
        [tables.numbers["tags"][tag] for tag in sorted(operator.tags)],
        [
            [int(kernel.key), *tables.place(kernel.debug), *kernel_numbers(kernel, tables)]
            for kernel in operator.kernels
        ],
    ]


def kernel_numbers(kernel: RecordedKernel, tables: Tables) -> tuple[int, int]:
    """The inferred schema and the flags of a kernel, as a row has them."""
    inferred = NONE if kernel.inferred is None else tables.numbers["inferred"][kernel.inferred]
    return inferred, _FLAGS.index(kernel.flags)


def read_operator(name: str, row: object, tables: Tables) -> RecordedOperator:
    """The operator of a row.

    Raises:
        Damaged: a value is not one that a row can have there.
    """
    schema, source, line, alias, tags, kernels = _row(row, 6)
    operator = name_of(name)
    if schema is not None and not (type(schema) is str and schema.startswith("(")):
        raise Damaged("wrong in its schema")
    if not isinstance(tags, list) or not isinstance(kernels, list):
        raise Damaged("wrong in its tags or kernels")
    if str(operator) != name or len(kernels) > MAX_KERNELS:
        raise Damaged("wrong in its name or in the number of its kernels")
    previous, seen, read = -1, set(), []
    for entry in kernels:
        key, at, number, inferred, flags = _row(entry, 5)
        if type(key) is not int or key not in _KEYS or (key != previous and key in seen):
            raise Damaged("wrong in a key")
        text = (
            None if inferred == NONE and type(inferred) is int else _at(tables.inferred, inferred, "an inferred schema")
        )
        kernel_flags = _at(_FLAGS, flags, "flags")
        read.append(RecordedKernel(_KEYS[key], tables.debug(at, number), text, kernel_flags, key != previous))
        previous = key
        seen.add(key)
    return RecordedOperator(
        operator,
        None if schema is None else f"{name}{schema}",
        tables.debug(source, line),
        None if alias == NONE and type(alias) is int else _at(_ALIASES, alias, "an alias kind"),
        frozenset(_at(tables.tags, tag, "a tag") for tag in tags),
        tuple(read),
    )


def fallback_row(fallback: RecordedFallback, tables: Tables) -> list[object]:
    """The row of a fallback: `[key, source, line, fallthrough]`."""
    return [int(fallback.key), *tables.place(fallback.debug), int(fallback.fallthrough)]


def read_fallback(row: object, tables: Tables) -> RecordedFallback:
    """The fallback of a row.

    Raises:
        Damaged: a value is not one that a row can have there.
    """
    key, source, line, fallthrough = _row(row, 4)
    if type(key) is not int or key not in _KEYS:
        raise Damaged("wrong in its key")
    return RecordedFallback(_KEYS[key], _at((False, True), fallthrough, "a fallthrough"), tables.debug(source, line))


def read_fallbacks(rows: Iterable[object], tables: Tables) -> tuple[RecordedFallback, ...]:
    """The fallbacks of the rows of one registry.

    Raises:
        Damaged: a value is not one that a row can have there, or the rows are not sorted by key.
    """
    fallbacks = tuple(read_fallback(row, tables) for row in rows)
    keys = [fallback.key for fallback in fallbacks]
    if keys != sorted(set(keys)):
        raise Damaged("not in its place by key")
    return fallbacks


def read_whole(recorded: Recorded, kernels: int) -> Registry:
    """All of a registry that is read an operator at a time; reading ends at the first kernel too many.

    Args:
        recorded: the registry.
        kernels: how many kernels its file declares.

    Raises:
        Damaged: it has another number of kernels.
    """
    operators, found = [], 0
    for operator in recorded:
        operators.append(operator)
        found += len(operator.kernels)
        if found > kernels:
            break
    if found != kernels:
        raise Damaged(f"does not have the {kernels:,} kernels it declares")
    return Registry(recorded.torch, tuple(operators), recorded.fallbacks, recorded.imports, recorded.privateuse1)


def _row(row: object, length: int) -> list[object]:
    if not isinstance(row, list) or len(row) != length:
        raise Damaged(f"not a row of {length}")
    return row


def _at(table: Sequence[T], at: object, what: str) -> T:
    if type(at) is not int or not 0 <= at < len(table):
        raise Damaged(f"wrong in {what}")
    return table[at]
