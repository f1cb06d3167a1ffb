"""Generated files on a disk: written all at once or not at all, or compared with what is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from dispatchlab.errors import DispatchLabError


class UnwrittenError(DispatchLabError):
    """The files could not be written; what was there before is as it was.

    Args:
        path: the folder.
        told: why.
    """

    def __init__(self, path: str, told: str) -> None:
        super().__init__(path, told)
        self.path, self.told = path, told

    def __str__(self) -> str:
        return f"nothing was written to {self.path}: {self.told}"


def write_files(folder: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    """Write files into a folder, which is made if it is not there; those that are right already are left alone.

    All of them are written beside the folder's files first, and moved into their places when all are there.

    Returns:
        The names of those that changed.

    Raises:
        UnwrittenError: one of them cannot be written.
    """
    changed = differing(folder, files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".codegen-", dir=folder) as beside:
            made = Path(beside)
            for name in changed:
                (made / name).write_bytes(files[name].encode())
            for name in changed:
                os.replace(made / name, folder / name)
    except OSError as error:
        raise UnwrittenError(str(folder), error.strerror or str(error)) from None
    return changed


def differing(folder: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the files that are not in the folder, or not with this text."""
    return tuple(name for name, text in files.items() if not _is_there(folder / name, text))


def generated_before(folder: Path, first_line: str) -> tuple[str, ...]:
    """The names of the files in a folder that begin with this line, in their order; none when there is no folder."""
    return tuple(sorted(path.name for path in folder.glob("*") if _begins_with(path, first_line)))


def _begins_with(path: Path, first_line: str) -> bool:
    try:
        with path.open("rb") as file:
            return file.readline().rstrip() == first_line.encode()
    except OSError:
        return False


def _is_there(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False
