"""Write files as a whole or not at all: one file, or several in a folder.

A write that fails changes nothing: the old file stays, and no partial file is beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from pathlib import Path


class WriteError(DispatchLabError):
    """A file or a folder could not be written; the old content is unchanged.

    Args:
        path: the file or folder.
        reason: why.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path} could not be written: {self.reason}"


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file, or make it; what is no file, such as a pipe, is written to as it is.

    Args:
        path: the file.
        content: bytes, or text, which is written as UTF-8.

    Raises:
        WriteError: it could not be written.
    """
    from pathlib import Path  # costs start-up, and most commands write no file

    target, data = Path(path), _bytes(content)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        beside = _write_beside(target.parent, target.name, data)
        try:
            beside.replace(target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise WriteError(str(path), error.strerror or str(error)) from None


def write_folder(folder: str | os.PathLike[str], contents: Mapping[str, str | bytes]) -> None:
    """Replace or make files in a folder, which is made if it is not there.

    All of them are written beside the folder's files first, and moved into their places when all are there.

    Args:
        folder: the folder.
        contents: what to write, by the names of the files.

    Raises:
        WriteError: one of them could not be written.
    """
    from pathlib import Path

    target = Path(folder)
    made: dict[str, Path] = {}
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            made[name] = _write_beside(target, name, _bytes(content))
        for name, beside in made.items():
            beside.replace(target / name)
    except OSError as error:
        raise WriteError(str(folder), error.strerror or str(error)) from None
    finally:
        for beside in made.values():
            beside.unlink(missing_ok=True)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _write_beside(folder: Path, name: str, data: bytes) -> Path:
    """A new file with this content, of the mode that a file of this process has."""
    from pathlib import Path
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile(dir=folder, prefix=f".{name}.", delete=False) as stream:
        beside = Path(stream.name)
        try:
            stream.write(data)
            stream.flush()
            umask = os.umask(0)
            os.umask(umask)
            beside.chmod(0o666 & ~umask)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    return beside
