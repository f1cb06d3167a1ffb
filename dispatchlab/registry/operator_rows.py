"""Rows of operators in a packed file: what many versions have of one operator is one line, which is read by itself."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TypeVar

from dispatchlab.registry.file_format import (
    HEAD,
    MAX_BLOCK,
    MAX_DIRECTORY,
    MAX_FILE,
    MAX_OPERATORS,
    MAX_PLAIN,
    NONE,
    Damaged,
    RegistryTooLargeError,
    sealed,
)
from dispatchlab.registry.locations import read_columns
from dispatchlab.registry.packed import Directory, PackedFile, Part

# Note [Rows in blocks]
# ~~~~~~~~~~~~~~~~~~~~~
# The bundle of registries and the file of Python layers are laid out alike. The parts are two for each version, a table
# of what is its own and its columns of locations (32-bit numbers, the sources first), and then blocks of rows, a line
# each. One operator of one version costs the directory, two parts, one block and one row of it; the same operator of
# every other version is in that row.

PER_BLOCK = 64

MAX_LOCATIONS = 1_000_000

T = TypeVar("T")


class OperatorRows:
    """The rows of a file. See Note [Rows in blocks].

    Args:
        file: the file.
        directory: its directory.
        operators: the operators, sorted; a row for each.
        versions: how many versions each row is about.
        width: how many parts a row has.
        versions_are: what errors call the versions.
        row_is: what errors call a row, before the name of its operator.

    Raises:
        RegistryFileError: the parts of the file do not make this up, or are too large.
    """

    def __init__(
        self,
        file: PackedFile,
        directory: Directory,
        operators: Sequence[str],
        versions: int,
        *,
        width: int,
        versions_are: str,
        row_is: str,
    ) -> None:
        self.file, self.operators, self._width, self._row_is = file, operators, width, row_is
        self._location_count = directory.number("locations", MAX_LOCATIONS)
        self._per_block = directory.number("per_block", MAX_OPERATORS)
        parts = directory.parts("parts", directory.end)
        self._parts, self._blocks = parts[: 2 * versions], parts[2 * versions :]
        # One value, so that a thread never sees the number of one block with the lines of another.
        self._last: tuple[int, Sequence[bytes]] = (-1, ())
        end = parts[-1].end if parts else directory.end
        wanted = -(-len(operators) // self._per_block) if self._per_block else NONE
        if len(self._parts) != 2 * versions or len(self._blocks) != wanted or end != file.size:
            raise file.damaged(f"its parts do not make up its {versions_are} and operators")
        plain = directory.plain_size + sum(part.plain_size for part in parts)
        if plain > MAX_PLAIN:
            raise file.damaged(f"it declares {plain:,} bytes unpacked, and {MAX_PLAIN:,} is the most")

    def parts_of(self, version: int) -> tuple[Part, Part]:
        """The parts of a version: the table of what is its own, and its columns."""
        own, columns = self._parts[2 * version : 2 * version + 2]
        return own, columns

    def columns(self, part: Part, version: str) -> tuple[Sequence[int], Sequence[int]]:
        """The source and the line of every location in one version.

        Raises:
            RegistryFileError: the part is damaged.
        """
        what, count = f"the columns of {version}", self._location_count
        plain = self.file.part(part, MAX_BLOCK, what)
        if len(plain) != 8 * count:
            raise self.file.damaged(f"{what} do not have the {count:,} locations that belong there")
        return read_columns(plain)

    def place(self, operator: str) -> int | None:
        """The number of an operator; None when no version has it."""
        at = bisect_left(self.operators, operator)
        return at if at < len(self.operators) and self.operators[at] == operator else None

    def row(self, at: int) -> list[list[object]]:
        """The row of an operator, by its number.

        Raises:
            RegistryFileError: the block is damaged, or the row is not one.
        """
        block, place = divmod(at, self._per_block)
        last = self._last
        if last[0] != block:
            last = self._last = block, self._lines(block)
        what = f"{self._row_is} {self.operators[at]!r}"
        row = self.file.decoded(last[1][place], what)
        try:
            return [as_list(part, "its parts") for part in as_list(row, "its parts", self._width)]
        except Damaged as error:
            raise self.file.damaged(f"{what} is {error}") from None

    def _lines(self, block: int) -> Sequence[bytes]:
        what = f"its block {block}"
        lines = self.file.part(self._blocks[block], MAX_BLOCK, what).split(b"\n")
        wanted = min(self._per_block, len(self.operators) - block * self._per_block)
        if len(lines) != wanted:
            raise self.file.damaged(f"{what} does not hold the {wanted} operators that belong there")
        return lines


def item(table: Sequence[T], at: object, what: str) -> T:
    """What a number of a row stands for; raises Damaged when it stands for nothing."""
    if type(at) is not int or not 0 <= at < len(table):
        raise Damaged(f"wrong in {what}")
    return table[at]


def as_list(value: object, what: str, length: int | None = None) -> list[object]:
    """A list of a row, of that length when one is given; raises Damaged when it is none."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise Damaged(f"wrong in {what}")
    return value


def number_in(values: list[object], value: object) -> int:
    """The number of a value in a list, to which it is added if it is not there."""
    if value not in values:
        values.append(value)
    return values.index(value)


def file_of_rows(
    magic: bytes,
    version: int,
    directory: Mapping[str, object],
    versions: Sequence[tuple[Mapping[str, object], bytes]],
    rows: Sequence[object],
    counts: Sequence[tuple[str, int, int]],
    of: str = "",
) -> bytes:
    """The bytes of a file with rows; equal arguments give the same bytes. See Note [Rows in blocks].

    Args:
        magic, version: of the format.
        directory: its fields, but for the parts.
        versions: the table and the columns of each version.
        rows: a row for each operator, in their order.
        counts: what has a bound, how much of it there is, and the bound.
        of: what errors add to the name of a part, ` of the Python layer`.

    Raises:
        RegistryTooLargeError: a reader would refuse it for its size.
    """
    lines = [_json(row) for row in rows]
    parts = [part for own, columns in versions for part in (_json(own), columns)]
    parts += [b"\n".join(lines[at : at + PER_BLOCK]) for at in range(0, len(lines), PER_BLOCK)]
    packed = [zlib.compress(part, 9) for part in parts]
    sizes = [[len(short), len(long), zlib.crc32(long)] for short, long in zip(packed, parts, strict=True)]
    plain = _json({**directory, "parts": sizes})
    packed_directory = zlib.compress(plain, 9)
    body = b"".join((packed_directory, *packed))
    size = HEAD.size + len(body)
    for what, found, limit in (
        (f"the operators{of}", len(rows), MAX_OPERATORS),
        *counts,
        (f"the bytes of the directory{of}", len(plain), MAX_DIRECTORY),
        (f"the bytes of a part{of}", max(map(len, parts), default=0), MAX_BLOCK),
        (f"the bytes of everything{of}", len(plain) + sum(map(len, parts)), MAX_PLAIN),
        (f"the bytes of the file{of}", size, MAX_FILE),
    ):
        if found > limit:
            raise RegistryTooLargeError(what, found, limit)
    return sealed(HEAD.pack(magic, version, size, len(packed_directory), len(plain), bytes(32)) + body)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
