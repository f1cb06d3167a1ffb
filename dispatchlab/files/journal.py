"""Journal: a file to which results are appended as they come, and from which the same command goes on.

A record is in the file as a whole or, after a crash, not at all: each has its length and a checksum, and what is behind
the last whole record is cut off. The first record names the run; a journal of another run is refused.
"""

# Note [What a journal holds]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Records are plain data, see Note [Plain data] in processes/plain_data.py. Each has a digest of all records up to it,
# so one that was changed, moved or taken out ends what is read, and the work from there on is done again. What is no
# plain data is not written, and is worked out again when the run is continued.
#
# A digest is no signature: who writes a journal by hand can say of a walk what was not found.

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import takewhile
from struct import Struct
from typing import Any, BinaryIO, Final

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.atomic_write import WriteError, check_target, write_file
from dispatchlab.files.file_kinds import JOURNAL_MAGIC, FileKind, OtherFileError, OverwriteError, content_of
from dispatchlab.processes.plain_data import NotPlainError, PlainReader, fits, plain_bytes

_HEAD: Final = Struct("<I32s")
_LONGEST: Final = 1 << 26
_VALUES: Final = 2  # of the largest size; more than that is not read
_RUN: Final = "run"
_DIGEST: Final = 64


class OtherRunError(DispatchLabError):
    """A journal is of another run.

    Args:
        path: the file.
        what: in what the runs differ.
        was: what it was in the run of the journal.
        now: what it is in this run.
    """

    path: str
    what: str
    was: str
    now: str

    def __str__(self) -> str:
        if len(self.was) == len(self.now) == _DIGEST:
            return (
                f"{self.path} is the checkpoint of another run: {self.what} has changed since; name another file, or "
                "remove this one to begin anew"
            )
        return (
            f"{self.path} is the checkpoint of another run: {self.what} was {self.was or 'not given'} and is "
            f"{self.now or 'not given'}; name another file, or remove this one to begin anew"
        )


class JournalInUseError(DispatchLabError):
    """Another process writes a journal."""

    path: str

    template = "{path} is in use: another process goes on from this checkpoint; wait for it, or name another file"


class Journal:
    """Results by name, kept in a file.

    Args:
        path: the file; made when it is not there.
        run: what makes this run the same as another, in words, by name.

    Raises:
        OtherRunError: the file is of another run.
        JournalInUseError: another process has it open.
        OverwriteError: the file is something else.
        WriteError: it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, str]) -> None:
        self.path = os.fspath(path)
        check_target(self.path)
        if not os.path.exists(self.path) or not os.path.getsize(self.path):
            write_file(self.path, JOURNAL_MAGIC + _packed(_RUN, dict(run), b""))
        self._last = b""  # the digest of the last record
        self._values: dict[str, list[Any]] = {}
        try:
            self._file: BinaryIO = open(self.path, "r+b")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise WriteError(self.path, error.strerror or str(error)) from None
        try:
            _lock(self._file, self.path)
            self._read(run)
        except BaseException:
            self._file.close()
            raise

    def __repr__(self) -> str:
        return f"<Journal {self.path} with {sum(map(len, self._values.values()))} records>"

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def records(self, name: str, kind: Any) -> list[Any]:
        """Every value that was kept under a name, oldest first, up to one that is not of this type, an annotation."""
        return list(takewhile(lambda value: fits(value, kind), self._values.get(name, [])))

    def add(self, name: str, value: object) -> bool:
        """Keep a value; false for one that would not come back, see Note [What a journal holds].

        Raises:
            WriteError: the disk is full, or gone.
        """
        try:
            record = _packed(name, value, self._last)
        except NotPlainError:
            return False
        try:
            self._file.write(record)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise WriteError(self.path, error.strerror or str(error)) from None
        self._last = _HEAD.unpack_from(record)[1]
        self._values.setdefault(name, []).append(value)
        return True

    def close(self) -> None:
        """Close the file; it stays."""
        with suppress(OSError):  # what was kept is on the disk, and what could not be written was said
            self._file.close()

    def remove(self) -> None:
        """Close the file and remove it."""
        self.close()
        with suppress(OSError):
            os.unlink(self.path)

    def _read(self, run: Mapping[str, str]) -> None:
        if self._file.read(len(JOURNAL_MAGIC)) != JOURNAL_MAGIC:
            found = content_of(self.path)
            if found is not None:
                raise OtherFileError(self.path, found, (FileKind.CHECKPOINT,))
            raise OverwriteError(self.path, None, FileKind.CHECKPOINT)
        end = self._file.tell()
        reader = PlainReader(_VALUES)
        while (record := _next(self._file, self._last, reader)) is not None:
            end = self._file.tell()
            self._last, (name, value) = record
            self._values.setdefault(name, []).append(value)
        was: dict[str, str] = next(iter(self.records(_RUN, dict[str, str])), {})
        for what in [*run, *was]:
            if was.get(what, "") != run.get(what, ""):
                raise OtherRunError(self.path, str(what), str(was.get(what, "")), run.get(what, ""))
        self._file.seek(end)
        self._file.truncate()


def _packed(name: str, value: object, before: bytes) -> bytes:
    """A record behind the one that has the digest `before`.

    Raises:
        NotPlainError: the value is no plain data.
    """
    data = plain_bytes((name, value))
    return _HEAD.pack(len(data), sha256(before + data).digest()) + data


def _next(file: BinaryIO, before: bytes, reader: PlainReader) -> tuple[bytes, tuple[str, Any]] | None:
    """The digest and the content of the next whole record."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, digest = _HEAD.unpack(head)
    if length > _LONGEST:
        return None
    data = file.read(length)
    if len(data) < length or sha256(before + data).digest() != digest:
        return None
    try:
        return digest, reader.read(data, tuple[str, Any])
    except NotPlainError:  # whatever was written there is not ours
        return None


def _lock(file: BinaryIO, path: str) -> None:
    try:
        import fcntl
    except ImportError:  # Windows opens it twice
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalInUseError(path) from None
    except OSError:  # a file system without locks
        return
