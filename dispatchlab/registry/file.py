"""Read and write registry files, and open the bundled ones by name; equal registries give the same bytes.

The layout of a file and of its rows is in file_format.py.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from functools import cache

from dispatchlab.atomic_write import write_file
from dispatchlab.bounded_read import ReadError, json_value, read_file
from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.file_kinds import FileKind, instead
from dispatchlab.model.names import OperatorName
from dispatchlab.registry.file_format import (
    HEAD,
    MAGIC,
    MAX_BLOCK,
    MAX_DIRECTORY,
    MAX_FILE,
    MAX_KERNELS,
    MAX_OPERATORS,
    MAX_PLAIN,
    PER_BLOCK,
    SUFFIX,
    VERSION,
    Damaged,
    RegistryFileError,
    RegistryTooLargeError,
    Tables,
    digest,
    fallback_row,
    impossible_name,
    operator_row,
    read_fallback,
    read_operator,
    sealed,
)
from dispatchlab.registry.model import Recorded, RecordedFallback, RecordedOperator, Registry


def registry_bytes(recorded: Recorded) -> bytes:
    """The file of a registry; see Note [The file of a registry].

    Raises:
        RegistryTooLargeError: a reader would refuse it for its size.
    """
    tables = Tables.of(recorded)
    rows = [operator_row(operator, tables) for operator in recorded]
    kernels = sum(len(operator.kernels) for operator in recorded)
    plain = [_json(rows[at : at + PER_BLOCK]) for at in range(0, len(rows), PER_BLOCK)]
    packed = [zlib.compress(block, 9) for block in plain]
    directory = _json(
        {
            "torch": recorded.torch,
            "imports": list(recorded.imports),
            **({"privateuse1": recorded.privateuse1} if recorded.privateuse1 else {}),
            "operators": list(recorded.names),
            "kernels": kernels,
            "per_block": PER_BLOCK,
            "sources": list(tables.sources),
            "inferred": list(tables.inferred),
            "tags": list(tables.tags),
            "fallbacks": [fallback_row(fallback, tables) for fallback in recorded.fallbacks],
            "blocks": [[len(short), len(long), zlib.crc32(long)] for short, long in zip(packed, plain, strict=True)],
        }
    )
    packed_directory = zlib.compress(directory, 9)
    body = packed_directory + b"".join(packed)
    size = HEAD.size + len(body)
    for what, found, limit in (
        ("the operators", len(rows), MAX_OPERATORS),
        ("the kernels", kernels, MAX_KERNELS),
        ("the bytes of the directory", len(directory), MAX_DIRECTORY),
        ("the bytes of a block", max(map(len, plain), default=0), MAX_BLOCK),
        ("the bytes of everything", len(directory) + sum(map(len, plain)), MAX_PLAIN),
        ("the bytes of the file", size, MAX_FILE),
    ):
        if found > limit:
            raise RegistryTooLargeError(what, found, limit)
    return sealed(HEAD.pack(MAGIC, VERSION, size, len(packed_directory), len(directory), bytes(32)) + body)


def save_registry(recorded: Recorded, path: str | os.PathLike[str]) -> int:
    """Write a registry to a file, which is replaced as a whole or not at all.

    Returns:
        The size of the file in bytes.

    Raises:
        RegistryTooLargeError: a reader would refuse it.
        WriteError: the file could not be written.
    """
    data = registry_bytes(recorded)
    write_file(path, data)
    return len(data)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def open_registry(path: str | os.PathLike[str]) -> RegistryFile:
    """The registry in a file; an operator is read on first use.

    Raises:
        RegistryFileError: the file cannot be read, is of another version, is cut short, or was altered.
    """
    try:
        data = read_file(path, limit=MAX_FILE, what="recorded registries")
    except OSError as error:
        raise RegistryFileError(str(path), f"it cannot be read: {error.strerror or error}") from None
    except ReadError as error:
        raise RegistryFileError(str(path), error.reason) from None
    other = instead(data, str(path), FileKind.REGISTRY)
    if other is not None:
        raise RegistryFileError(str(path), "; ".join(other))
    return RegistryFile(data, str(path))


def load_registry(path: str | os.PathLike[str]) -> Registry:
    """All of the registry in a file.

    Raises:
        RegistryFileError: as for `open_registry`.
    """
    return open_registry(path).load()


def is_registry_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts as a registry does; False for one that cannot be read, and for a pipe or a device."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


class RegistryFile:
    """The registry in a file's bytes; it is a `Recorded`.

    Args:
        data: the bytes of the file.
        path: what errors call it.

    Raises:
        RegistryFileError: these bytes are not a registry, or not a whole one. What is amiss in a block in spite of a
            right digest is found when the block is read, with the same error.
    """

    def __init__(self, data: bytes, path: str = "the registry") -> None:
        self.path = path
        self._data = data
        packed_size, plain_size = self._sizes_of_directory()
        plain = self._unpacked(HEAD.size, packed_size, plain_size, MAX_DIRECTORY, "the directory")
        directory = self._decoded(plain, "the directory")
        if not isinstance(directory, dict):
            raise self._damaged("its directory is not a table")
        self._directory: dict[str, object] = directory
        self.torch = self._text(self._field("torch"))
        self.imports = self._texts("imports")
        self.privateuse1 = self._text(self._directory.get("privateuse1", ""))
        self.names = self._texts("operators")
        self.kernel_count = self._number(self._field("kernels"), MAX_KERNELS)
        self._per_block = self._number(self._field("per_block"), MAX_OPERATORS)
        self._tables = Tables(self._texts("sources"), self._texts("inferred"), self._texts("tags"))
        self._index = {name: at for at, name in enumerate(self.names)}
        if (wrong := impossible_name(self.names)) is not None:
            raise self._damaged(f"it has an operator called {wrong!r:.60}, which no dispatcher can have")
        if not _is_text(self._tables):
            raise self._damaged("one of its texts has half of a surrogate pair")
        if list(self._index) != sorted(self.names) or len(self.names) > MAX_OPERATORS:
            raise self._damaged("its operators are not in order, or too many")
        self.fallbacks = self._read_fallbacks()
        self._blocks = self._find_blocks(HEAD.size + packed_size, plain_size)
        self._last: tuple[int, list[object]] = (-1, [])

    def __repr__(self) -> str:
        return f"<RegistryFile {self.path}: PyTorch {self.torch}, {len(self):,} operators>"

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[RecordedOperator]:
        for block in range(len(self._blocks)):
            for at, row in enumerate(self._rows(block), start=block * self._per_block):
                yield self._operator(at, row)

    def operator(self, name: OperatorName | str) -> RecordedOperator | None:
        """One operator, for which one block is read; None when there is none of that name.

        Raises:
            RegistryFileError: the block is damaged.
        """
        at = self._index.get(str(name))
        if at is None:
            return None
        block, place = divmod(at, self._per_block)
        last = self._last
        if last[0] != block:
            last = self._last = block, self._rows(block)
        return self._operator(at, last[1][place])

    def is_copy(self, other: RegistryFile) -> bool:
        """Whether another file holds the same bytes, so that every operator is equal."""
        return self._data == other._data

    def load(self) -> Registry:
        """All of it.

        Raises:
            RegistryFileError: a block is damaged, or there are not as many kernels as the file says.
        """
        operators, kernels = [], 0
        for operator in self:
            operators.append(operator)
            kernels += len(operator.kernels)
            if kernels > self.kernel_count:
                break
        if kernels != self.kernel_count:
            raise self._damaged(f"it does not have the {self.kernel_count:,} kernels that it declares")
        return Registry(self.torch, tuple(operators), self.fallbacks, self.imports, self.privateuse1)

    def _sizes_of_directory(self) -> tuple[int, int]:
        data = self._data
        if not data or data[: len(MAGIC)] != MAGIC[: len(data)]:
            found = f"starts with {data[: len(MAGIC)]!r}" if data else "is empty"
            raise self._refused(
                f"it is not a recorded registry: one starts with {MAGIC!r} and this file {found}; record one with: "
                "dispatchlab record --all -o FILE"
            )
        if len(data) < HEAD.size:
            raise self._refused(
                f"it is cut short: it has {len(data)} bytes, not even the head of a registry; get a new copy"
            )
        _, version, size, packed_size, plain_size, declared = HEAD.unpack_from(data)
        if version != VERSION:
            raise self._refused(
                f"it is a recorded registry of version {version} and this dispatchlab reads version {VERSION}: "
                "install the dispatchlab that wrote it, or record it again"
            )
        if len(data) > MAX_FILE:
            raise self._refused(f"it has more than {MAX_FILE:,} bytes, the most that a registry can have")
        if len(data) != size:
            verb = "is cut short" if len(data) < size else "goes on after its end"
            raise self._refused(f"it {verb}: it declares {size:,} bytes and has {len(data):,}; get a new copy")
        if digest(data) != declared:
            raise self._refused("it was altered after it was written: its checksum differs; get a new copy")
        return packed_size, plain_size

    def _read_fallbacks(self) -> tuple[RecordedFallback, ...]:
        try:
            fallbacks = tuple(read_fallback(row, self._tables) for row in self._list("fallbacks"))
        except Damaged as error:
            raise self._damaged(f"a fallback is {error}") from None
        keys = [fallback.key for fallback in fallbacks]
        if keys != sorted(set(keys)):
            raise self._damaged("its fallbacks are not in order")
        return fallbacks

    def _find_blocks(self, start: int, plain: int) -> list[tuple[int, int, int, int]]:
        """Where each block starts, its two sizes and its CRC."""
        blocks = []
        for entry in self._list("blocks"):
            if not isinstance(entry, list) or len(entry) != 3:
                raise self._damaged("its list of blocks cannot be read")
            packed_size, plain_size, crc = (self._number(part, 0xFFFFFFFF) for part in entry)
            blocks.append((start, packed_size, plain_size, crc))
            start += packed_size
            plain += plain_size
        if self._per_block < 1 or len(blocks) != -(-len(self.names) // self._per_block) or start != len(self._data):
            raise self._damaged("its blocks do not make up its operators")
        if plain > MAX_PLAIN:
            raise self._damaged(f"it declares {plain:,} bytes unpacked, and {MAX_PLAIN:,} is the most")
        return blocks

    def _rows(self, block: int) -> list[object]:
        start, packed_size, plain_size, crc = self._blocks[block]
        what = f"its block {block}"
        plain = self._unpacked(start, packed_size, plain_size, MAX_BLOCK, what)
        if zlib.crc32(plain) != crc:
            raise self._damaged(f"the checksum of {what} differs")
        rows = self._decoded(plain, what)
        wanted = min(self._per_block, len(self.names) - block * self._per_block)
        if not isinstance(rows, list) or len(rows) != wanted:
            raise self._damaged(f"{what} does not hold the {wanted} operators that belong there")
        return rows

    def _operator(self, at: int, row: object) -> RecordedOperator:
        try:
            return read_operator(self.names[at], row, self._tables)
        except Damaged as error:
            raise self._damaged(f"the record of {self.names[at]!r} is {error}") from None

    def _unpacked(self, start: int, packed_size: int, plain_size: int, limit: int, what: str) -> bytes:
        if plain_size > limit or start + packed_size > len(self._data):
            raise self._damaged(f"{what} declares {packed_size:,} bytes that unpack to {plain_size:,}")
        unpacker = zlib.decompressobj()
        try:
            plain = unpacker.decompress(self._data[start : start + packed_size], plain_size + 1)
        except zlib.error:
            raise self._damaged(f"{what} cannot be unpacked") from None
        if len(plain) != plain_size or not unpacker.eof or unpacker.unused_data:
            raise self._damaged(f"{what} does not unpack to the {plain_size:,} bytes that it declares")
        return plain

    def _decoded(self, plain: bytes, what: str) -> object:
        try:
            return json_value(plain, self.path)
        except ReadError:
            raise self._damaged(f"{what} cannot be read") from None

    def _field(self, name: str) -> object:
        if name not in self._directory:
            raise self._damaged(f"its directory has no {name!r}")
        return self._directory[name]

    def _list(self, name: str) -> list[object]:
        found = self._field(name)
        if not isinstance(found, list):
            raise self._damaged(f"{name!r} of its directory is not a list")
        return found

    def _texts(self, name: str) -> tuple[str, ...]:
        return tuple(map(self._text, self._list(name)))

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise self._damaged(f"its directory has {value!r:.40} where a text belongs")
        return value

    def _number(self, value: object, most: int) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise self._damaged(f"its directory has {value!r:.40} where a number up to {most:,} belongs")
        return value

    def _damaged(self, reason: str) -> RegistryFileError:
        return self._refused(f"it is damaged: {reason}; get a new copy")

    def _refused(self, reason: str) -> RegistryFileError:
        return RegistryFileError(self.path, reason)


def _is_text(tables: Tables) -> bool:
    """Whether every text of the tables can be written out."""
    try:
        for texts in (tables.sources, tables.inferred, tables.tags):
            "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


# A text, since importing pathlib would cost `dump` a part of its start-up.
_DATA = os.path.join(os.path.dirname(__file__), "data")

DEFAULT = "torch-2.13"
"""The registry that is meant when none is named."""


class UnknownRegistryError(DispatchLabError):
    """No bundled registry has this name, and there is no file of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        known = bundled_names()
        return (
            f"there is no registry {self.text!r}: expected a file, or the name of one that comes with dispatchlab, "
            f"{' or '.join(known)}{did_you_mean(self.text, known)}"
        )


@cache
def bundled_names() -> tuple[str, ...]:
    """The names of the bundled registries, such as `torch-2.13`."""
    return tuple(sorted(name.removesuffix(SUFFIX) for name in os.listdir(_DATA) if name.endswith(SUFFIX)))


def open_bundled(name: str = DEFAULT) -> RegistryFile:
    """A bundled registry; the same value for the same name, since nothing changes one.

    Raises:
        UnknownRegistryError: none has this name.
        RegistryFileError: the file is damaged.
    """
    if name not in bundled_names():
        raise UnknownRegistryError(name)
    return _bundled(name)


@cache
def _bundled(name: str) -> RegistryFile:
    return open_registry(os.path.join(_DATA, f"{name}{SUFFIX}"))


def open_named(text: str) -> RegistryFile:
    """A bundled registry by its name, or a file by its path; a bundled one wins.

    Raises:
        UnknownRegistryError: it is neither.
        RegistryFileError: the file cannot be read, or is damaged.
    """
    if text in bundled_names():
        return open_bundled(text)
    if not os.path.exists(text):
        raise UnknownRegistryError(text)
    return open_registry(text)
