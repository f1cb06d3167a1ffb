"""Which compiled libraries are loaded, and whether one has to do with PyTorch: `knows_torch`."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_CORE = b"c10"


def knows_torch(path: str | os.PathLike[str]) -> bool:
    """Whether a file names PyTorch's core library or a symbol of its namespace; False when it cannot be read.

    Args:
        path: of a compiled library; it is mapped, not read, since some have gigabytes.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_CORE) >= 0
    except (OSError, ValueError):
        return False


def shared_libraries() -> frozenset[str] | None:
    """The shared libraries that are loaded; None where that cannot be found out."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    return frozenset(line.split(maxsplit=5)[5] for line in lines if ".so" in line)
