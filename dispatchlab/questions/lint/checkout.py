"""Find files of a checkout by the paths in debug texts, which start at a package or at a build folder."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path

from dispatchlab.registries.debug_text import is_absolute
from dispatchlab.views.source_locations import located

# Note [Paths that a forge resolves]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A debug text names a file as the process saw it: `pkg/ops.py`, below a folder of `sys.path`, which may be the `src` of
# a checkout, an editable installation or site-packages; or a whole path, for C++ that of the machine that built it. A
# forge wants the path from the root of the checkout. So the file is looked for there: at the path itself, below the
# folders in which packages are usually kept, and then anywhere, by the longest end of the path that exactly one file
# has. One component alone is no end, for every package has an `ops.py`.

_SOURCE_FOLDERS = ("", "src", "lib", "python", "source")
_SKIPPED = frozenset(("__pycache__", "build", "dist", "node_modules", "site-packages", "venv"))
_MOST_FILES = 200_000


class Checkout:
    """A folder under version control, or a folder that is used like one.

    Args:
        root: the folder of relative paths.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()

    def find(self, path: str) -> str | None:
        """Return the path of a file from the root, with slashes; None if the checkout does not have it.

        See Note [Paths that a forge resolves].
        """
        path = path.replace("\\", "/")
        if is_absolute(path):
            try:
                inside = Path(path).resolve().relative_to(self.root)
            except (OSError, ValueError):
                return self._by_end(path)
            return inside.as_posix() if (self.root / inside).is_file() else None
        for folder in _SOURCE_FOLDERS:
            if (self.root / folder / path).is_file():
                return f"{folder}/{path}" if folder else path
        return self._by_end(path)

    def file(self, path: str) -> Path | None:
        """Return the file of a path, in the checkout or in a folder of modules."""
        found = self.find(path)
        files = [self.root / found] if found is not None else [Path(folder, path) for folder in sys.path]
        return next((file for file in files if file.is_file()), None)

    def shown(self, path: str) -> str:
        """Return a path relative to this folder, which can be clicked, if the checkout has the file; else the path."""
        file = self.file(path)
        is_own = file is not None and self.root in file.resolve().parents and "site-packages" not in file.parts
        for piece in located(f"{path}:1") if file is None else ():
            return piece.text.removesuffix(":1") if piece.is_pytorch else path  # without the folder of its build
        return path if file is None or not is_own else os.path.relpath(file)

    def _by_end(self, path: str) -> str | None:
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        for start in range(len(parts) - 1):
            found = self._by_name.get(parts[-1], ())
            end = "/" + "/".join(parts[start:])
            fitting = [one for one in found if f"/{one}".endswith(end)]
            if fitting:
                return fitting[0] if len(fitting) == 1 else None
        return None

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """The files of the checkout by their last component, without hidden and build folders."""
        found: dict[str, list[str]] = {}
        count = 0
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(
                name
                for name in folders
                if not name.startswith(".")
                and name not in _SKIPPED
                and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            )
            inside = Path(folder).relative_to(self.root)
            for name in files:
                found.setdefault(name, []).append((inside / name).as_posix())
            count += len(files)
            if count > _MOST_FILES:
                break
        return found


def checkout_of(folder: str | os.PathLike[str]) -> Checkout:
    """Return the checkout of a folder: the nearest folder above it with a `.git`, else the folder itself."""
    here = Path(folder).resolve()
    return Checkout(next((one for one in (here, *here.parents) if (one / ".git").exists()), here))
