"""Read and write registry files, and open the bundled ones by name; equal registries give the same bytes.

The layout of a file and of its rows is in file_format.py.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from dispatchlab.atomic_write import write_file
from dispatchlab.bounded_read import ReadError, read_file
from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.file_kinds import FileKind, instead
from dispatchlab.model.names import OperatorName
from dispatchlab.registry.bundle import Bundle, BundledRegistry
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
    VERSION,
    VERSION_WITH_PYTHON,
    Damaged,
    RegistryFileError,
    RegistryTooLargeError,
    Tables,
    fallback_row,
    impossible_name,
    operator_row,
    read_fallbacks,
    read_operator,
    read_whole,
    sealed,
)
from dispatchlab.registry.model import Recorded, RecordedFallback, RecordedOperator, Registry
from dispatchlab.registry.packed import Directory, PackedFile, Part, Texts

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonLayer
    from dispatchlab.registry.python_parts import PythonLayers, StoredPythonLayer

_TEXTS = Texts("a recorded registry", "record one with: dispatchlab record --all -o FILE", "or record it again")


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
    python = _python_part(recorded)
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
            **({"python": len(python)} if python else {}),
        }
    )
    packed_directory = zlib.compress(directory, 9)
    body = packed_directory + b"".join(packed) + python
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
    version = VERSION_WITH_PYTHON if python else VERSION
    return sealed(HEAD.pack(MAGIC, version, size, len(packed_directory), len(directory), bytes(32)) + body)


def _python_part(recorded: Recorded) -> bytes:
    """The Python layer of a registry as a part of its file; nothing where it was not recorded."""
    layer = python_layer_of(recorded)
    if layer is None:
        return b""
    from dispatchlab.registry.python_parts import python_layers_bytes  # costs start-up, and reading needs none of it

    return python_layers_bytes({"": layer})


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
        self._file = packed = PackedFile(data, path)
        self._directory = directory = packed.directory(
            MAGIC, (VERSION, VERSION_WITH_PYTHON), MAX_FILE, MAX_DIRECTORY, _TEXTS
        )
        self.torch = directory.text("torch")
        self.imports = directory.texts("imports")
        self.privateuse1 = directory.text("privateuse1", "")
        self.names = directory.texts("operators")
        self.kernel_count = directory.number("kernels", MAX_KERNELS)
        self._per_block = directory.number("per_block", MAX_OPERATORS)
        self._tables = Tables(directory.texts("sources"), directory.texts("inferred"), directory.texts("tags"))
        self._index = {name: at for at, name in enumerate(self.names)}
        if (wrong := impossible_name(self.names)) is not None:
            raise self._file.damaged(f"it has an operator called {wrong!r:.60}, which no dispatcher can have")
        if not _is_text(self._tables):
            raise self._file.damaged("one of its texts has half of a surrogate pair")
        if list(self._index) != sorted(self.names) or len(self.names) > MAX_OPERATORS:
            raise self._file.damaged("its operators are not in order, or too many")
        self.fallbacks = self._read_fallbacks()
        self._python_size = directory.number("python", MAX_FILE) if directory.has("python") else 0
        self._blocks = self._find_blocks(directory)
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

    @cached_property
    def python(self) -> StoredPythonLayer | None:
        """What Python had registered; None for a recording without it.

        Raises:
            RegistryFileError: this part of the file is damaged.
        """
        if not self._python_size:
            return None
        from dispatchlab.registry.python_parts import PythonLayers  # costs start-up, and most questions need none of it

        layers = PythonLayers(self._file.rest(self._file.size - self._python_size), self.path)
        if layers.names != ("",):
            raise self._file.damaged("its Python layer is that of another file")
        return layers.layer("")

    def is_copy(self, other: RegistryFile) -> bool:
        """Whether another file holds the same bytes, so that every operator is equal."""
        return self._file == other._file

    def load(self) -> Registry:
        """All of it.

        Raises:
            RegistryFileError: a block is damaged, or there are not as many kernels as the file says.
        """
        try:
            return replace(read_whole(self, self.kernel_count), python=self.python)
        except Damaged as error:
            raise self._file.damaged(f"it {error}") from None

    def _read_fallbacks(self) -> tuple[RecordedFallback, ...]:
        try:
            return read_fallbacks(self._directory.list("fallbacks"), self._tables)
        except Damaged as error:
            raise self._file.damaged(f"a fallback is {error}") from None

    def _find_blocks(self, directory: Directory) -> tuple[Part, ...]:
        blocks = directory.parts("blocks", directory.end)
        end = blocks[-1].end if blocks else directory.end
        if (
            self._per_block < 1
            or len(blocks) != -(-len(self.names) // self._per_block)
            or (end + self._python_size != self._file.size)
        ):
            raise self._file.damaged("its blocks do not make up its operators")
        plain = directory.plain_size + sum(block.plain_size for block in blocks)
        if plain > MAX_PLAIN:
            raise self._file.damaged(f"it declares {plain:,} bytes unpacked, and {MAX_PLAIN:,} is the most")
        return blocks

    def _rows(self, block: int) -> list[object]:
        what = f"its block {block}"
        rows = self._file.decoded(self._file.part(self._blocks[block], MAX_BLOCK, what), what)
        wanted = min(self._per_block, len(self.names) - block * self._per_block)
        if not isinstance(rows, list) or len(rows) != wanted:
            raise self._file.damaged(f"{what} does not hold the {wanted} operators that belong there")
        return rows

    def _operator(self, at: int, row: object) -> RecordedOperator:
        try:
            return read_operator(self.names[at], row, self._tables)
        except Damaged as error:
            raise self._file.damaged(f"the record of {self.names[at]!r} is {error}") from None


def _is_text(tables: Tables) -> bool:
    """Whether every text of the tables can be written out."""
    try:
        for texts in (tables.sources, tables.inferred, tables.tags):
            "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


# A text, since importing pathlib would cost `dump` a part of its start-up.
_BUNDLE = os.path.join(os.path.dirname(__file__), "data", "registries.dlregs")

_PYTHON = os.path.join(os.path.dirname(__file__), "data", "python_layers.dlregs")

_OTHER_NAMES = {"torch-2.13-cuda": "torch-2.13"}
"""Names that registries had before; they still mean the same registries."""


class UnknownRegistryError(DispatchLabError):
    """No bundled registry has this name, and there is no file of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        known = bundled_names()
        return (
            f"there is no registry {self.text!r}: expected a file, or the name of one that comes with dispatchlab, "
            f"{known[0]} to {known[-1]}{did_you_mean(self.text, known)}"
        )


@cache
def bundled() -> Bundle:
    """The bundle that comes with dispatchlab.

    Raises:
        RegistryFileError: it is damaged.
    """
    try:
        data = read_file(_BUNDLE, limit=MAX_FILE, what="bundles of registries")
    except OSError as error:
        raise RegistryFileError(_BUNDLE, f"it cannot be read: {error.strerror or error}") from None
    except ReadError as error:
        raise RegistryFileError(_BUNDLE, error.reason) from None
    return Bundle(data, _BUNDLE)


@cache
def bundled_python() -> PythonLayers | None:
    """The Python layers of the bundled registries; None when there are none.

    Raises:
        RegistryFileError: their file is damaged.
    """
    if not os.path.exists(_PYTHON):
        return None
    try:
        data = read_file(_PYTHON, limit=MAX_FILE, what="Python layers")
    except OSError as error:
        raise RegistryFileError(_PYTHON, f"it cannot be read: {error.strerror or error}") from None
    except ReadError as error:
        raise RegistryFileError(_PYTHON, error.reason) from None
    from dispatchlab.registry.python_parts import PythonLayers  # as above

    return PythonLayers(data, _PYTHON)


def python_layer_of(recorded: Recorded) -> PythonLayer | None:
    """What Python had registered in the PyTorch of a registry; None when that was not recorded.

    Raises:
        RegistryFileError: it is in a file that is damaged.
    """
    match recorded:
        case Registry() | RegistryFile():
            return recorded.python
        case BundledRegistry(path=path, name=name) if path == _BUNDLE:
            layers = bundled_python()
            return layers.layer(name) if layers is not None and name in layers.names else None
    return None


def bundled_names() -> tuple[str, ...]:
    """The names of the bundled registries, such as `torch-2.13`, the oldest version first."""
    return bundled().names


def bundled_name(text: str) -> str | None:
    """The name of the bundled registry that a text means; None when it means none."""
    if not text.startswith("torch-"):  # so that nothing is read for a file of another name
        return None
    name = _OTHER_NAMES.get(text, text)
    return name if name in bundled_names() else None


def newest_bundled() -> str:
    """The name of the bundled registry of the newest PyTorch."""
    return bundled_names()[-1]


def open_bundled(name: str) -> BundledRegistry:
    """A bundled registry; the same value for the same name, since nothing changes one.

    Raises:
        UnknownRegistryError: none has this name.
        RegistryFileError: the bundle is damaged.
    """
    known = bundled_name(name)
    if known is None:
        raise UnknownRegistryError(name)
    return bundled().registry(known)


def open_named(text: str) -> RegistryFile | BundledRegistry:
    """A bundled registry by its name, or a file by its path; a bundled one wins.

    Raises:
        UnknownRegistryError: it is neither.
        RegistryFileError: the file cannot be read, or is damaged.
    """
    if bundled_name(text) is not None:
        return open_bundled(text)
    if not os.path.exists(text):
        raise UnknownRegistryError(text)
    return open_registry(text)
