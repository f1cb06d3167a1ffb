"""Read files: every input goes through here, with a limit on its size and on the wait for a pipe.

Regular files, pipes, terminals and the null device are read; other devices are refused, for they never end.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time

from dispatchlab.errors import DispatchLabError

LONGEST_WAIT = 120.0
"""How many seconds a pipe may be silent before reading it is given up."""

_CHUNK = 2**20


class ReadError(DispatchLabError):
    """A file was not read, or its content is not what its format allows.

    Args:
        path: the file.
        reason: a clause that says what was found, what was expected and what to do.
        line: where in the file, from 1; 0 for the file as a whole.
        column: the character of the line, from 1.
    """

    path: str
    reason: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{where}: {self.reason}"


def read_file(path: str | os.PathLike[str], *, limit: int, what: str) -> bytes:
    """The content of a file.

    Args:
        path: the file; a pipe, such as `/dev/stdin`, is read to its end.
        limit: the most bytes that it may have.
        what: what such files are called, in the plural, for the error of a larger one.

    Raises:
        OSError: the system cannot open or read it.
        ReadError: it is larger, is a device, or is a pipe into which nothing is written.
    """
    name = os.fspath(path)
    flags = os.O_RDONLY
    for wanted in ("O_BINARY", "O_CLOEXEC", "O_NOCTTY", "O_NONBLOCK"):  # without the last, a pipe may block here
        flags |= getattr(os, wanted, 0)
    try:
        descriptor = os.open(name, flags)
    except ValueError as error:  # a name with a NUL or with half of a surrogate pair
        reason = "embedded null byte" if "\0" in name else error  # Python 3.13 says it in other words
        raise ReadError(name, f"the file cannot be read: {reason}") from None
    try:
        return _content(descriptor, name, limit, what)
    finally:
        os.close(descriptor)


def _content(descriptor: int, name: str, limit: int, what: str) -> bytes:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    regular = stat.S_ISREG(status.st_mode)
    if not regular and not (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode) or os.isatty(descriptor)):
        if status.st_rdev == _null_device():
            return b""
        raise ReadError(name, "it is a device, which may have no end: name a file or a pipe")
    found: list[bytes] = []
    size = 0
    if regular and status.st_size > limit:
        raise _too_large(name, limit, what)
    while True:
        if not regular and not os.isatty(descriptor):
            _wait(descriptor, name)
        try:
            chunk = os.read(descriptor, min(_CHUNK, limit + 1 - size))
        except BlockingIOError:
            time.sleep(0.01)  # a terminal: its reader types
            continue
        if not chunk:
            return b"".join(found)
        found.append(chunk)
        size += len(chunk)
        if size > limit:
            raise _too_large(name, limit, what)


def _wait(descriptor: int, name: str) -> None:
    import select

    if not hasattr(select, "poll"):  # Windows, where a pipe has no name that a command line can give
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(LONGEST_WAIT * 1000):
        raise ReadError(name, f"nothing was written into this pipe for {LONGEST_WAIT:g} seconds: name a file")


def _null_device() -> int:
    try:
        return os.stat(os.devnull).st_rdev
    except OSError:
        return -1


def _too_large(name: str, limit: int, what: str) -> ReadError:
    return ReadError(name, f"the file is larger than {limit // 2**20} MiB, the limit for {what}")


MAX_CONFIGURATION = 2**20
"""The most bytes of a configuration file, which a user writes by hand."""


_MOST_PARTS = 1_000  # of one key, or of several that take as long


def read_configuration(path: str | os.PathLike[str]) -> bytes:
    """The content of a user's configuration file, such as pyproject.toml.

    Raises:
        OSError: the system cannot open or read it.
        ReadError: as for `read_file`; also for keys of very many parts, for each of which `tomllib` takes the square
            of them in time and memory.
    """
    data = read_file(path, limit=MAX_CONFIGURATION, what="configuration files")
    if sum(part.count(b".") ** 2 for part in re.split(rb"[=,{\[\n]", data)) > _MOST_PARTS**2:
        raise ReadError(os.fspath(path), f"keys have too many parts, such as {_MOST_PARTS:,} in one: shorten them")
    return data


def decoded(data: bytes, path: str) -> str:
    """The text of bytes in UTF-8, without a byte order mark.

    Raises:
        ReadError: with the line and the column of the first byte that is no text.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        hint = "save the file as UTF-8"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint += "; it looks like UTF-16"
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        byte = data[error.start]
        raise ReadError(
            path, f"found the byte 0x{byte:02x}, which is not text in UTF-8; {hint}", line, column
        ) from None


def json_value(data: bytes, path: str) -> object:
    """The value of JSON text in UTF-8.

    Raises:
        ReadError: it is no text, no JSON, nested too deep, or has a number with too many digits.
    """
    text = decoded(data, path)
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReadError(path, f"it is not JSON: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise ReadError(path, "it is not JSON that is read here: a value is nested too deep") from None
    except ValueError:
        raise ReadError(path, "it is not JSON that is read here: a number has too many digits") from None
    return value
