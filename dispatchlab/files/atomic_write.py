"""Write files as a whole or not at all: one file, or several in a folder.

A write that fails changes nothing: the old file stays, and no partial file is beside it.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from errno import EEXIST, EISDIR
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from pathlib import Path


_MOST_NAMES = 1000


class WriteError(DispatchLabError):
    """A file or a folder could not be written; the old content is unchanged.

    Args:
        path: the file or folder.
        reason: why.
    """

    path: str
    reason: str

    template = "{path} could not be written: {reason}"


# Note [Leftovers of a killed writer]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A writer that is killed leaves its file beside the target, whose name has the number of the process. The next one that
# writes the target removes it, when there is no process of that number any more and nobody holds the lock on the file:
# a writer in another container or on another machine has a number that means nothing here, and holds the lock.

# Note [What is written into]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A file is written beside its place and moved there, so that a write that fails changes nothing. A device or a pipe
# must not be moved over: `--save /dev/null` would take /dev/null away from the machine. A link keeps leading where it
# leads: the file at its end is replaced. And /dev/stdout is a link to whatever the shell opened, which can be a regular
# file: that one is not replaced either, since the shell goes on with the old one. It is written through its
# descriptor, behind what was printed before.


def check_target(path: str | os.PathLike[str]) -> None:
    """Make sure that a file can be at a path, before work is done for it.

    Raises:
        WriteError: there is a folder, or nothing that it could be in.
    """
    if os.path.isdir(path):
        raise WriteError(os.fspath(path), os.strerror(EISDIR))
    if "\0" in os.fspath(path):
        raise WriteError(os.fspath(path), "embedded null byte")
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise WriteError(os.fspath(path), f"there is no folder {os.path.dirname(path)}; make it, or name another one")


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file, or make it; a device, a pipe or a descriptor is written into. See Note [What is written into].

    A new file has the mode that the umask leaves, and one that is replaced keeps its mode.

    Args:
        path: the file.
        content: bytes, or text, which is written as UTF-8.

    Raises:
        WriteError: it could not be written.
    """
    from pathlib import Path  # costs start-up, and most commands write no file

    data = _bytes(content)
    try:
        descriptor = _descriptor(os.fspath(path))
        if descriptor is not None:
            _write_through(descriptor, data)
            return
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        made: list[Path] = []
        try:
            _write_beside(target, data, made)
            made[-1].replace(target)
            made.clear()  # another thread may have the name by now
        finally:
            _remove(made)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WriteError(os.fspath(path), reason) from None


def is_replaced(path: str | os.PathLike[str]) -> bool:
    """Whether `write_file` would replace what is there: a regular file, and no descriptor of this process."""
    try:
        return os.path.isfile(path) and _descriptor(os.fspath(path)) is None
    except ValueError:
        return False


_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = r"(?:/dev|/proc/([^/]+))/fd/(\d{1,9})"
_MOST_LINKS = 40


def _descriptor(path: str) -> int | None:
    """The descriptor of this process that a path leads to, links followed; None for any other path."""
    at = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        if at in _STREAMS:
            return _STREAMS[at]
        found = re.fullmatch(_DESCRIPTOR, at)
        if found is not None and found[1] in (None, "self", "thread-self", str(os.getpid())):
            return int(found[2])
        if not os.path.islink(at):
            return None
        at = os.path.abspath(os.path.join(os.path.dirname(at), os.readlink(at)))
    return None


def _write_through(descriptor: int, data: bytes) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    while data:
        data = data[os.write(descriptor, data) :]


def write_folder(folder: str | os.PathLike[str], contents: Mapping[str, str | bytes]) -> None:
    """Replace or make files in a folder, which is made if it is not there.

    All of them are written beside the folder's files first, and moved into their places when all are there.

    Args:
        folder: the folder.
        contents: what to write, by the names of the files; a link keeps leading where it leads.

    Raises:
        WriteError: one of them could not be written, or is a device, a pipe or a folder.
    """
    from pathlib import Path

    target = Path(folder)
    made: list[Path] = []
    places: list[Path] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            place = Path(os.path.realpath(target / name))
            if place.exists() and not place.is_file():
                raise FileExistsError(EEXIST, f"{name} is not a regular file")
            place.parent.mkdir(parents=True, exist_ok=True)
            _write_beside(place, _bytes(content), made)
            places.append(place)
        for place in reversed(places):
            made[-1].replace(place)
            made.pop()  # as above
    except OSError as error:
        raise WriteError(str(folder), error.strerror or str(error)) from None
    finally:
        _remove(made)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


# Note [An interrupt behind open]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Python runs the handler of a signal between a call and the assignment of what it returned. So a file may be there
# whose name nobody holds, if it was the call that makes the file. The name is kept before that call, and taken from the
# list again when the file turns out to be another one's.


def _write_beside(target: Path, data: bytes, made: list[Path]) -> None:
    """Make a file with this content beside the target; of its mode, or of the mode that the umask leaves.

    Args:
        target: the file that it is to replace.
        data: the content.
        made: gets its path, before it is there. See Note [An interrupt behind open].
    """
    _remove_leftovers(target)
    for number in range(_MOST_NAMES):
        beside = target.with_name(f".{target.name}.{os.getpid()}.{number}")
        made.append(beside)
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
            break
        except FileExistsError:
            made.pop()
    else:
        raise FileExistsError(EEXIST, "there is no free name beside it")
    with open(descriptor, "wb") as stream:
        _lock(descriptor)
        stream.write(data)
    with suppress(FileNotFoundError):
        beside.chmod(stat.S_IMODE(target.stat().st_mode))


def _remove(made: list[Path]) -> None:
    for beside in made:
        beside.unlink(missing_ok=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what writers of this target left that were killed. See Note [Leftovers of a killed writer]."""
    from dispatchlab.processes.parent import is_alive

    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d{{1,10}})\.\d{{1,4}}")
    with suppress(OSError):
        for path in target.parent.iterdir():
            found = pattern.fullmatch(path.name)
            if found is not None and path.is_file() and not is_alive(int(found[1])):
                with suppress(OSError), open(path, "rb") as stream:
                    if _lock(stream.fileno()):
                        path.unlink()


def _lock(descriptor: int) -> bool:
    """Lock a file for as long as it is open; whether that could be done."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
