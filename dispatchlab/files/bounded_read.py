"""Read files: every input goes through here, with a limit on its size."""

from __future__ import annotations

import json
import os
import stat

from dispatchlab.errors import DispatchLabError


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
    """Return the content of a file or a pipe.

    Args:
        path: the file.
        limit: the most bytes that it may have.
        what: what such files are called, in the plural, for the error of a larger one.

    Raises:
        OSError: the system cannot open or read it.
        ReadError: it is larger, or it is a device, which may have no end.
    """
    name = os.fspath(path)
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and name not in (os.devnull, "/dev/stdin")):
            raise ReadError(name, "it is a device, which may have no end: name a file or a pipe")
        with open(name, "rb") as stream:
            data = stream.read(limit + 1)
    except ValueError as error:
        raise ReadError(name, f"the file cannot be read: {error}") from None
    if len(data) > limit:
        raise ReadError(name, f"the file is larger than {limit // 2**20} MiB, the limit for {what}")
    return data


MAX_CONFIGURATION = 2**20
"""The most bytes of a configuration file, which a user writes by hand."""


def read_configuration(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a user's configuration file, such as pyproject.toml.

    Raises:
        OSError: the system cannot open or read it.
        ReadError: as for `read_file`.
    """
    return read_file(path, limit=MAX_CONFIGURATION, what="configuration files")


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
