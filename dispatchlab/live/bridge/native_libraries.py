"""Whether a compiled library uses PyTorch: `knows_torch`."""

from __future__ import annotations

import mmap
import os

_CORE = b"c10"


def knows_torch(path: str | os.PathLike[str]) -> bool:
    """Return whether a file names PyTorch's core library or a symbol of its namespace; False when it cannot be read.

    Args:
        path: a compiled library; it is mapped, not read, because some libraries are very large.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_CORE) >= 0
    except (OSError, ValueError):
        return False
