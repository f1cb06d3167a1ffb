"""Writing a registry to a file: the same bytes for equal registries."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from dispatchlab.registry.errors import RegistryFileError, RegistryTooLargeError
from dispatchlab.registry.layout import (
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
    sealed,
)
from dispatchlab.registry.model import Recorded
from dispatchlab.registry.rows import Tables, fallback_row, operator_row


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


def save_registry(recorded: Recorded, path: Path | str) -> int:
    """Write a registry to a file, which is replaced as a whole or not at all.

    Returns:
        The size of the file in bytes.

    Raises:
        RegistryTooLargeError: a reader would refuse it.
        RegistryFileError: the file could not be written.
    """
    from tempfile import NamedTemporaryFile

    data, target = registry_bytes(recorded), Path(path)
    try:
        with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            try:
                stream.write(data)
                stream.flush()
                temporary.chmod(0o644)
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise RegistryFileError(str(path), f"it could not be written: {error.strerror or error}") from None
    return len(data)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
