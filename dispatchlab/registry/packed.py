"""Files of packed parts: a head, a directory and parts, unpacked within declared sizes and looked at value by value.

A registry file and the bundle of registries are laid out so; see Note [The file of a registry].
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from dispatchlab.bounded_read import ReadError, json_value
from dispatchlab.registry.file_format import HEAD, RegistryFileError, digest


class Texts(NamedTuple):
    """What errors call a file.

    Args:
        kind: its kind with an article.
        made_by: how such a file is made, a clause.
        again: how one of another version is replaced.
    """

    kind: str
    made_by: str
    again: str


class Part(NamedTuple):
    """A packed part of a file: where it starts, its sizes packed and plain, and its CRC."""

    start: int
    packed_size: int
    plain_size: int
    crc: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + self.packed_size


class PackedFile:
    """The bytes of a file of packed parts.

    Args:
        data: the bytes.
        path: what errors call it.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self.path = data, path

    def __eq__(self, other: object) -> bool:
        return self._data == other._data if isinstance(other, PackedFile) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # two are compared, and neither is looked up

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self._data)

    def directory(
        self, magic: bytes, versions: int | tuple[int, ...], largest: int, limit: int, texts: Texts
    ) -> Directory:
        """The directory, which comes after the head.

        Args:
            magic: what the file starts with.
            versions: the version that is read, or each of them, the newest last.
            largest: the most bytes that a file may have.
            limit: the most bytes that the directory may have.
            texts: what errors say.

        Raises:
            RegistryFileError: it is no such file, not a whole one, or its directory is not a table.
        """
        known = (versions,) if isinstance(versions, int) else versions
        packed_size, plain_size = self._sizes_of_directory(magic, known, largest, texts)
        plain = self._unpacked(HEAD.size, packed_size, plain_size, limit, "the directory")
        return Directory(self, self._table(plain, "the directory"), HEAD.size + packed_size, plain_size)

    def table(self, plain: bytes, what: str) -> Fields:
        """The table in the plain bytes of a part.

        Raises:
            RegistryFileError: it is none.
        """
        return Fields(self, self._table(plain, what))

    def _table(self, plain: bytes, what: str) -> dict[str, object]:
        value = self.decoded(plain, what)
        if not isinstance(value, dict):
            raise self.damaged(f"{what.replace('the', 'its', 1)} is not a table")
        return value

    def _sizes_of_directory(
        self, magic: bytes, versions: tuple[int, ...], largest: int, texts: Texts
    ) -> tuple[int, int]:
        data = self._data
        if not data or data[: len(magic)] != magic[: len(data)]:
            found = f"starts with {data[: len(magic)]!r}" if data else "is empty"
            raise self.refused(
                f"it is not {texts.kind}: one starts with {magic!r} and this file {found}; {texts.made_by}"
            )
        if len(data) < HEAD.size:
            raise self.refused(
                f"it is cut short: it has {len(data)} bytes, not even the head of a registry; get a new copy"
            )
        _, found_version, size, packed_size, plain_size, declared = HEAD.unpack_from(data)
        if found_version not in versions:
            read = f"{'' if len(versions) == 1 else 's'} {' and '.join(map(str, versions))}"
            raise self.refused(
                f"it is {texts.kind} of version {found_version} and this dispatchlab reads version{read}: "
                f"install the dispatchlab that wrote it, {texts.again}"
            )
        if len(data) > largest:
            raise self.refused(f"it has more than {largest:,} bytes, the most that a registry can have")
        if len(data) != size:
            verb = "is cut short" if len(data) < size else "goes on after its end"
            raise self.refused(f"it {verb}: it declares {size:,} bytes and has {len(data):,}; get a new copy")
        if digest(data) != declared:
            raise self.refused("it was altered after it was written: its checksum differs; get a new copy")
        return packed_size, plain_size

    def rest(self, start: int) -> bytes:
        """The bytes from a place on."""
        return self._data[start:]

    def part(self, part: Part, limit: int, what: str) -> bytes:
        """The plain bytes of a part.

        Raises:
            RegistryFileError: it has more bytes than the limit or than it declares, or is damaged.
        """
        plain = self._unpacked(part.start, part.packed_size, part.plain_size, limit, what)
        if zlib.crc32(plain) != part.crc:
            raise self.damaged(f"the checksum of {what} differs")
        return plain

    def _unpacked(self, start: int, packed_size: int, plain_size: int, limit: int, what: str) -> bytes:
        if plain_size > limit or start + packed_size > len(self._data):
            raise self.damaged(f"{what} declares {packed_size:,} bytes that unpack to {plain_size:,}")
        unpacker = zlib.decompressobj()
        try:
            plain = unpacker.decompress(self._data[start : start + packed_size], plain_size + 1)
        except zlib.error:
            raise self.damaged(f"{what} cannot be unpacked") from None
        if len(plain) != plain_size or not unpacker.eof or unpacker.unused_data:
            raise self.damaged(f"{what} does not unpack to the {plain_size:,} bytes that it declares")
        return plain

    def decoded(self, plain: bytes, what: str) -> object:
        """The value of a part's JSON text.

        Raises:
            RegistryFileError: it is none.
        """
        try:
            return json_value(plain, self.path)
        except ReadError:
            raise self.damaged(f"{what} cannot be read") from None

    def damaged(self, reason: str) -> RegistryFileError:
        """The error of a file with something in it that is never written."""
        return self.refused(f"it is damaged: {reason}; get a new copy")

    def refused(self, reason: str) -> RegistryFileError:
        """The error of this file."""
        return RegistryFileError(self.path, reason)


class Fields:
    """A table of a file; every value is looked at when it is read.

    Args:
        file: the file.
        fields: the table.
    """

    def __init__(self, file: PackedFile, fields: dict[str, object]) -> None:
        self._file, self._fields = file, fields

    def field(self, name: str) -> object:
        """A field; raises RegistryFileError if there is none."""
        if name not in self._fields:
            raise self._file.damaged(f"its directory has no {name!r}")
        return self._fields[name]

    def has(self, name: str) -> bool:
        """Whether there is a field of this name."""
        return name in self._fields

    def list(self, name: str) -> list[object]:
        """A field that is a list; raises RegistryFileError if it is none."""
        found = self.field(name)
        if not isinstance(found, list):
            raise self._file.damaged(f"{name!r} of its directory is not a list")
        return found

    def text(self, name: str, default: str | None = None) -> str:
        """A field that is a text; raises RegistryFileError if it is none."""
        return self._text(self.field(name) if default is None else self._fields.get(name, default))

    def texts(self, name: str) -> tuple[str, ...]:
        """A field that is a list of texts; raises RegistryFileError if it is none."""
        found = self.list(name)
        if {*map(type, found)} - {str}:
            raise self._file.damaged(f"{name!r} of its directory is not a list of texts")
        return tuple(map(str, found))

    def number(self, name: str, most: int) -> int:
        """A field that is a number, not a negative one; raises RegistryFileError if it is none."""
        return self._number(self.field(name), most)

    def numbers(self, name: str, most: int) -> tuple[int, ...]:
        """A field that is a list of numbers, none of them negative; raises RegistryFileError if it is none."""
        return tuple([self._number(value, most) for value in self.list(name)])

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise self._file.damaged(f"its directory has {value!r:.40} where a text belongs")
        return value

    def _number(self, value: object, most: int) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise self._file.damaged(f"its directory has {value!r:.40} where a number up to {most:,} belongs")
        return value


class Directory(Fields):
    """The directory of a file.

    Args:
        file: the file.
        fields: the table.
        end: where it ends in the file.
        plain_size: how many bytes it has unpacked.
    """

    def __init__(self, file: PackedFile, fields: dict[str, object], end: int, plain_size: int) -> None:
        super().__init__(file, fields)
        self.end, self.plain_size = end, plain_size

    def parts(self, name: str, start: int) -> tuple[Part, ...]:
        """A field that lists parts, which lie one behind the other; raises RegistryFileError if it does not."""
        parts = []
        for entry in self.list(name):
            if not isinstance(entry, list) or len(entry) != 3:
                raise self._file.damaged(f"its list of {name} cannot be read")
            packed_size, plain_size, crc = entry
            most = 0xFFFFFFFF
            sizes = self._number(packed_size, most), self._number(plain_size, most), self._number(crc, most)
            parts.append(Part(start, *sizes))
            start += sizes[0]
        return tuple(parts)
