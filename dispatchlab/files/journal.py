"""Journal: a file to which results are appended as they come, and from which the same command goes on.

A record is in the file as a whole or, after a crash, not at all: each has its length and a checksum, and what is behind
the last whole record is cut off. The first record names the run; a journal of another run is refused.
"""

# Note [What a journal holds]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Records are pickled, and a file may have come from anybody. So a reader makes nothing but plain values and the
# dataclasses, named tuples, enums and errors of this package, which do nothing when they are made: the name of any
# other class or function is refused, and nothing is called. What does not come back equal is not written, and is worked
# out again when the run is continued.

from __future__ import annotations

import io
import os
import pickle
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from struct import Struct
from typing import Any, BinaryIO, Final

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.atomic_write import WriteError, check_target, write_file
from dispatchlab.files.file_kinds import JOURNAL_MAGIC, FileKind, OtherFileError, OverwriteError, content_of

_HEAD: Final = Struct("<II")
_LONGEST: Final = 1 << 31
_LARGEST: Final = 1 << 28  # of a record that is unpacked; a larger one is as good as none
_RUN: Final = "run"
_DIGEST: Final = 64
_PLAIN: Final = {("builtins", name) for name in ("frozenset", "set", "bytearray", "complex", "range")}


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
            write_file(self.path, JOURNAL_MAGIC + _packed(_RUN, dict(run)))
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

    def records(self, name: str) -> list[Any]:
        """Every value that was kept under a name, oldest first."""
        return self._values.get(name, [])

    def add(self, name: str, value: object) -> bool:
        """Keep a value; false for one that would not come back, see Note [What a journal holds].

        Raises:
            WriteError: the disk is full, or gone.
        """
        record = _packed(name, value)
        try:
            _unpacked(record[_HEAD.size :])
        except Exception:
            return False
        try:
            self._file.write(record)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise WriteError(self.path, error.strerror or str(error)) from None
        self._values.setdefault(name, []).append(value)
        return True

    def close(self) -> None:
        """Close the file; it stays."""
        self._file.close()

    def remove(self) -> None:
        """Close the file and remove it."""
        self._file.close()
        with suppress(OSError):
            os.unlink(self.path)

    def _read(self, run: Mapping[str, str]) -> None:
        if self._file.read(len(JOURNAL_MAGIC)) != JOURNAL_MAGIC:
            found = content_of(self.path)
            if found is not None:
                raise OtherFileError(self.path, found, (FileKind.CHECKPOINT,))
            raise OverwriteError(self.path, None, FileKind.CHECKPOINT)
        end = self._file.tell()
        while (record := _next(self._file)) is not None:
            end = self._file.tell()
            name, value = record
            self._values.setdefault(name, []).append(value)
        was = self._values.pop(_RUN, [{}])[0]
        if not isinstance(was, dict):
            was = {}
        for what in [*run, *was]:
            if was.get(what, "") != run.get(what, ""):
                raise OtherRunError(self.path, str(what), str(was.get(what, "")), run.get(what, ""))
        self._file.seek(end)
        self._file.truncate()


def _packed(name: str, value: object) -> bytes:
    data = zlib.compress(pickle.dumps((name, value)), 1)
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def _next(file: BinaryIO) -> tuple[str, Any] | None:
    """The next whole record."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    if length > _LONGEST:
        return None
    data = file.read(length)
    if len(data) < length or zlib.crc32(data) != checksum:
        return None
    try:
        return _unpacked(data)
    except MemoryError:  # the record may be whole, and is not cut off
        raise
    except Exception:  # whatever somebody wrote there is not ours
        return None


def _unpacked(data: bytes) -> tuple[str, Any]:
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(data, _LARGEST)
    if unpacking.unconsumed_tail:
        raise pickle.UnpicklingError("a record is larger than any that is written")
    name, value = _Unpickler(io.BytesIO(content)).load()
    if not isinstance(name, str):
        raise pickle.UnpicklingError("a record has no name")
    return name, value


class _Unpickler(pickle.Unpickler):
    """See Note [What a journal holds]."""

    def find_class(self, module: str, name: str) -> Any:
        """A class that may be made."""
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module.startswith("dispatchlab.") and "." not in name:
            found = getattr(import_module(module), name, None)
            if isinstance(found, type) and (
                is_dataclass(found)
                or issubclass(found, Enum | DispatchLabError)
                or (issubclass(found, tuple) and hasattr(found, "_fields"))
            ):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not kept in a journal")


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
