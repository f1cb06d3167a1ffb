"""Write files: beside their place first, then moved there, so that a write that fails changes nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from errno import EISDIR

from dispatchlab.errors import DispatchLabError


class WriteError(DispatchLabError):
    """A file or a folder could not be written; the old content is unchanged.

    Args:
        path: the file or folder.
        reason: why.
    """

    path: str
    reason: str

    template = "{path} could not be written: {reason}"


def check_target(path: str | os.PathLike[str]) -> None:
    """Make sure that a file can be at a path, before work is done for it.

    Raises:
        WriteError: there is a folder, or nothing that it could be in.
    """
    if os.path.isdir(path):
        raise WriteError(os.fspath(path), os.strerror(EISDIR))
    if not os.path.isdir(os.path.dirname(os.path.realpath(path))):
        raise WriteError(os.fspath(path), f"there is no folder {os.path.dirname(path)}; make it, or name another one")


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file, or make it; a device or a pipe is written into.

    Args:
        path: the file; a link keeps leading where it leads.
        content: bytes, or text, which is written as UTF-8.

    Raises:
        WriteError: it could not be written.
    """
    data = content.encode() if isinstance(content, str) else content
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
            with open(target, "wb") as stream:
                stream.write(data)
            return
        descriptor, beside = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target))
        try:
            with open(descriptor, "wb") as stream:
                stream.write(data)
            os.chmod(beside, os.stat(target).st_mode if os.path.exists(target) else 0o666 & ~_umask())
            os.replace(beside, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside)
            raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WriteError(os.fspath(path), reason) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def is_replaced(path: str | os.PathLike[str]) -> bool:
    """Return whether `write_file` would replace what is there: a regular file."""
    return os.path.isfile(path) and not os.fspath(path).startswith("/dev/")


def write_folder(folder: str | os.PathLike[str], contents: Mapping[str, str | bytes]) -> None:
    """Replace or make files in a folder, which is made if it is not there.

    Args:
        folder: the folder.
        contents: what to write, by the names of the files.

    Raises:
        WriteError: one of them could not be written, or is a device, a pipe or a folder.
    """
    paths = {os.path.join(folder, name): content for name, content in contents.items()}
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            raise WriteError(path, "it is not a regular file")
    try:
        for path in paths:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise WriteError(os.fspath(folder), error.strerror or str(error)) from None
    for path, content in paths.items():
        write_file(path, content)
