"""The container of recorded registries: a zip archive of JSON members, read within bounds, with a digest of it all."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar, cast

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.bounded_read import ReadError, json_value

# Note [The archive of registries]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Any tool for zip archives lists and unpacks one. `zipfile` writes it, with the same dates and permissions every time,
# so that equal registries give equal bytes. The first member says by its name what the archive is, and the comment at
# the end is the SHA-256, in hexadecimal digits, of everything before it.
#
# It is read here, and not by `zipfile`: its import costs as much as the answer to a question about one operator, and
# it takes memory and time for what was never written: a central directory of a million members, other compressions
# with windows of gigabytes, archives of more than 4 GiB. Nothing is unpacked before its declared size is within bounds,
# and no more than declared is unpacked: a file of a few bytes can declare gigabytes. The digest finds what happens to
# files by accident; a file made up on purpose can have a right one, so every value is looked at all the same. The
# bounds keep the largest file that passes them, read as a whole, under one gigabyte of memory; PyTorch 2.13 needs about
# a twentieth of each.

MAX_FILE = 32 << 20
MAX_PLAIN = 32 << 20
MAX_MEMBER = 8 << 20

_DIGITS = 64
_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = 30
_DEFLATED = 8
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

T = TypeVar("T")


class RegistryFileError(DispatchLabError):
    """A file is not a recorded registry, not a whole one, or not one that can be read here.

    Args:
        path: the file.
        reason: a clause that says what was found, what was wanted and what to do.
    """

    path: str
    reason: str

    template = "{path}: {reason}"


class RegistryTooLargeError(DispatchLabError):
    """A registry has more in it than a file may hold.

    Args:
        what: the part that is too large.
        size: its size.
        limit: the largest size that is read back.
    """

    what: str
    size: int
    limit: int

    template = (
        "the registry cannot be written, for no file of it would be read: {what} come to {size:,}, "
        "and {limit:,} is the most"
    )


class Damaged(Exception):
    """A value is not one that is ever written there; the text says which, for the error of the file."""


class _Member(NamedTuple):
    start: int
    packed_size: int
    plain_size: int
    crc: int
    method: int


class Archive:
    """The members of an archive. See Note [The archive of registries].

    Args:
        data: the bytes of the file.
        path: what errors call it.

    Raises:
        RegistryFileError: the bytes are cut short or altered, or no archive as it is written here.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.path = data, path
        if len(data) > MAX_FILE:
            raise self.refused(f"it has more than {MAX_FILE:,} bytes, the most that a registry can have")
        if sealed(data) != data:
            raise self.refused("it was cut short or altered after it was written: its checksum differs; get a new copy")
        try:
            self._members = self._read_members()
        except (struct.error, UnicodeDecodeError):
            raise self.damaged("its list of members cannot be read") from None
        plain = sum(member.plain_size for member in self._members.values())
        if plain > MAX_PLAIN:
            raise self.damaged(f"it declares {plain:,} bytes unpacked, and {MAX_PLAIN:,} is the most")

    def _read_members(self) -> dict[str, _Member]:
        data, members = self.data, {}
        _, _, _, _, count, _, at, _ = _END.unpack_from(data, len(data) - _DIGITS - _END.size)
        for _ in range(count):
            *_, method, _, _, crc, packed, plain, length, _, _, _, _, _, start = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size + length
            members[data[at - length : at].decode("ascii")] = _Member(
                start + _LOCAL + length, packed, plain, crc, method
            )
        return members

    def member(self, name: str) -> bytes:
        """The plain bytes of a member.

        Raises:
            RegistryFileError: there is none, it has more bytes than it may have or declares, or it is damaged.
        """
        member = self._members.get(name)
        if member is None:
            raise self.damaged(f"it has no {name}")
        end, unpacker = member.start + member.packed_size, zlib.decompressobj(-zlib.MAX_WBITS)
        if member.plain_size > MAX_MEMBER or end > len(self.data) or member.method != _DEFLATED:
            raise self.damaged(f"{name} declares {member.packed_size:,} bytes that unpack to {member.plain_size:,}")
        try:
            plain = unpacker.decompress(self.data[member.start : end], member.plain_size + 1)
        except zlib.error:
            raise self.damaged(f"{name} cannot be unpacked") from None
        if len(plain) != member.plain_size or not unpacker.eof or unpacker.unused_data:
            raise self.damaged(f"{name} does not unpack to the {member.plain_size:,} bytes that it declares")
        if zlib.crc32(plain) != member.crc:
            raise self.damaged(f"the checksum of {name} differs")
        return plain

    def has(self, name: str) -> bool:
        """Whether there is a member of this name."""
        return name in self._members

    def table(self, name: str) -> dict[str, object]:
        """The table in a member.

        Raises:
            RegistryFileError: there is none.
        """
        value = self.value(self.member(name), name)
        if not isinstance(value, dict):
            raise self.damaged(f"{name} is not a table")
        return value

    def value(self, plain: bytes, what: str) -> object:
        """The value of JSON text.

        Raises:
            RegistryFileError: it is none, or one of its texts has half of a surrogate pair.
        """
        try:
            value = json_value(plain, self.path)
            if _SURROGATE.search(plain):
                json.dumps(value, ensure_ascii=False).encode()
        except ReadError:
            raise self.damaged(f"{what} cannot be read") from None
        except UnicodeEncodeError:
            raise self.damaged(f"one of the texts of {what} has half of a surrogate pair") from None
        return value

    def damaged(self, reason: object) -> RegistryFileError:
        """The error of a file with something in it that is never written."""
        return self.refused(f"it is damaged: {reason}; get a new copy")

    def refused(self, reason: str) -> RegistryFileError:
        """The error of this file."""
        return RegistryFileError(self.path, reason)


def archive_bytes(members: Mapping[str, bytes]) -> bytes:
    """The archive of these members; equal members in the same order give the same bytes.

    Raises:
        RegistryTooLargeError: a reader would refuse it for its size.
    """
    from io import BytesIO  # these cost start-up, and most commands write no registry
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

    with BytesIO() as stream:
        with ZipFile(stream, "w", ZIP_DEFLATED, compresslevel=9) as archive:
            for name, plain in members.items():
                if len(plain) > MAX_MEMBER:
                    raise RegistryTooLargeError(f"the bytes of {name}", len(plain), MAX_MEMBER)
                info = ZipInfo(name)
                info.compress_type, info.create_system, info.external_attr = ZIP_DEFLATED, 3, 0o644 << 16
                archive.writestr(info, plain)
            archive.comment = bytes(_DIGITS)
        data = sealed(stream.getvalue())
    for what, size, limit in (
        ("the bytes of everything", sum(map(len, members.values())), MAX_PLAIN),
        ("the bytes of the file", len(data), MAX_FILE),
    ):
        if size > limit:
            raise RegistryTooLargeError(what, size, limit)
    return data


def sealed(data: bytes) -> bytes:
    """The archive with its digest in place of the last bytes."""
    return data[:-_DIGITS] + sha256(data[:-_DIGITS]).hexdigest().encode()


def item(table: Sequence[T], at: object, what: str) -> T:
    """What a number stands for; raises Damaged when it stands for nothing."""
    if type(at) is not int or not 0 <= at < len(table):
        raise Damaged(f"wrong in {what}")
    return table[at]


def as_list(value: object, what: str, length: int | None = None) -> list[object]:
    """A list, of that length when one is given; raises Damaged when it is none."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise Damaged(f"wrong in {what}")
    return value


def as_text(value: object, what: str) -> str:
    """A text; raises Damaged when it is none."""
    if not isinstance(value, str):
        raise Damaged(f"wrong in {what}")
    return value


def as_texts(value: object, what: str) -> tuple[str, ...]:
    """A list of texts; raises Damaged when it is none."""
    texts = as_list(value, what)
    if {*map(type, texts)} - {str}:
        raise Damaged(f"wrong in {what}")
    return tuple(cast("list[str]", texts))


def as_number(value: object, what: str, most: int) -> int:
    """A number, not a negative one; raises Damaged when it is none."""
    if type(value) is not int or not 0 <= value <= most:
        raise Damaged(f"wrong in {what}")
    return value
