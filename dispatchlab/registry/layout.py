"""How the file of a registry is laid out, and the bounds within which one is read."""

from __future__ import annotations

import struct
from hashlib import sha256

# Note [The file of a registry]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A head of 60 bytes: eight that no text starts with, the version, the size of the whole file, the sizes of the
# directory packed and plain, and the SHA-256 of all that is not the digest itself. Then the directory and the blocks,
# each JSON packed by zlib. The directory has the names of all operators, the tables of the texts that repeat (where
# kernels come from, inferred schemas, tags), the fallbacks, and for each block its packed size, plain size and CRC. A
# block holds `PER_BLOCK` operators in the order of the names, a row each (rows.py). So one operator costs the
# directory and one block.
# Nothing is unpacked before its declared size is within bounds, and no more than declared is unpacked: a file of a few
# bytes can declare gigabytes. The digest finds what happens to files by accident; a file made up on purpose can have a
# right one, so every value is looked at all the same. The bounds below keep the largest file that passes them, read as
# a whole, under one gigabyte of memory; PyTorch 2.13 needs about a twentieth of each.

SUFFIX = ".dlreg"
"""How the names of registry files end."""

VERSION = 1
"""The version of the format; it changes whenever an older reader would misread a file."""

MAGIC = b"\x89DLREG\r\n"
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
