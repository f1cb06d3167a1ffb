"""Files that a user names: read with a size limit, written completely or not at all, recognised by their beginning.

A file is never recognised by its name: a saved counterexample may be called `found.yaml`, and a registry `today`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from errno import EISDIR
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import NamedTuple

from dispatchlab.errors import DispatchLabError, RequestError, nearest


class ReadError(DispatchLabError):
    """A file was not read, or its content does not fit its format.

    Args:
        path: the file.
        reason: a clause about the content, the expected content and what to do.
        line: the line in the file, from 1; 0 for the whole file.
        column: the character of the line, from 1.
    """

    path: str
    reason: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{where}: {self.reason}"


_OPEN_ALREADY = ("/dev/", "/proc/")
"""The folders of pipes that a shell makes for a running command."""


def read_file(path: str | os.PathLike[str], *, limit: int, what: str) -> bytes:
    """Return the content of a file, or of a pipe that is open.

    Args:
        path: the file.
        limit: the most bytes that it may have.
        what: the name of such files, in the plural, for the error about a larger one.

    Raises:
        OSError: the system cannot open or read it.
        ReadError: it is larger, or it is a device or a named pipe, which may have no end.
    """
    name = os.fspath(path)
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and name not in (os.devnull, "/dev/stdin")):
            raise ReadError(name, "it is a device, which may have no end: name a file or a pipe")
        if stat.S_ISFIFO(mode) and not name.startswith(_OPEN_ALREADY):
            raise ReadError(name, "it is a named pipe, which may have no writer: name a file, or write to /dev/stdin")
        with open(name, "rb") as stream:
            data = stream.read(limit + 1)
    except ValueError as error:  # Python 3.13 says it in other words
        raise ReadError(name, f"the file cannot be read: {'embedded null byte' if chr(0) in name else error}") from None
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
    """Return the text of bytes in UTF-8, without a byte order mark.

    Raises:
        ReadError: it is not text; the error has the line and the column of the first wrong byte.
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


def file_in(folder: str | os.PathLike[str], *endings: str) -> str:
    """Return the advice to name a file in a folder, with an example that has one of these endings, if any."""
    names = sorted(name for name in os.listdir(folder) if name.endswith(endings) and not name.startswith("."))
    return "name a file in it" + (f", such as {os.path.join(folder, names[0])}" if names else "")


def modules_in(folder: str | os.PathLike[str]) -> list[str]:
    """Return the modules in a folder: its packages, and its files of Python."""
    if not os.path.isdir(folder):
        return []
    files = (os.path.splitext(entry.name) for entry in os.scandir(folder) if not entry.name.startswith((".", "_")))
    return sorted(
        name for name, suffix in files if suffix == ".py" or os.path.isfile(os.path.join(folder, name, "__init__.py"))
    )


def module_spec(name: str) -> ModuleSpec | None:
    """Return where Python finds a module, without its import; None for no module, and for one such as `__main__`."""
    with suppress(ImportError, ValueError):
        return find_spec(name)
    return None


def no_module(path: str) -> RequestError:
    """Return the error that there is no module at a path."""
    folder, name = os.path.split(os.path.splitext(path.rstrip(os.sep))[0])
    modules = modules_in(folder)
    near = " or ".join(os.path.join(folder, module) for module in nearest(name, modules, count=3))
    has = f"; {folder or os.curdir} has {', '.join(modules[:3])}" if modules else ""
    return RequestError(f"{path}: there is no such file or folder{f'; did you mean {near}?' if near else has}")


def json_value(data: bytes, path: str) -> object:
    """Return the value of JSON text in UTF-8.

    Raises:
        ReadError: it is not text or not JSON, is nested too deep, or has a number with too many digits.
    """
    text = decoded(data, path)
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReadError(path, f"it is not JSON: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise ReadError(path, "this JSON cannot be read: a value is nested too deep") from None
    except ValueError:
        raise ReadError(path, "this JSON cannot be read: a number has too many digits") from None
    return value


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
        WriteError: the path is a folder, or its folder does not exist.
    """
    if os.path.isdir(path):
        raise WriteError(os.fspath(path), os.strerror(EISDIR))
    if not os.path.isdir(os.path.dirname(os.path.realpath(path))):
        raise WriteError(os.fspath(path), f"there is no folder {os.path.dirname(path)}; make it, or name another one")


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file, or make it; a device or a pipe is written into.

    Args:
        path: the file; a link stays a link, and its target is written.
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


def write_folder(folder: str | os.PathLike[str], contents: Mapping[str, str | bytes]) -> None:
    """Replace or make files in a folder, which is made if it is not there.

    Args:
        folder: the folder.
        contents: the contents to write, by file name.

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


REGISTRY_START = b'{"dispatchlab":"registry",'
"""How the text of a recorded registry begins, which is compressed."""

MARK = "Written by dispatchlab. Remove this line to protect the file from being written over."
"""The first line, as a comment, of a file that could otherwise have been written by hand."""

_HEAD = 64 * 2**10  # no file says what it is later than here


class FileKind(Enum):
    """A kind of file: its name with an article, and advice about such a file."""

    SCENARIO = "a scenario", "explore it with: dispatchlab permute {file}"
    REGISTRY = "a recorded registry", "look into it with: dispatchlab dump OP --from {file}"
    BASELINE = "a baseline of check", "give it as: dispatchlab check --baseline {file}"
    PROFILE = "a profile of a PyTorch", "use it with: dispatchlab permute SCENARIO --semantics {file}"
    GOLDEN = "a golden file", "pytest compares a scenario with it"
    REPORT = "a report", "a command of dispatchlab printed it"
    PAGE = "a report to keep", "open it in a browser"
    PROGRAM = "a Python program", "run it with: python {file}"
    GENERATED = "generated code", "`dispatchlab codegen` wrote it"
    NATIVE_FUNCTIONS = "a file of native functions", "generate its operators with: dispatchlab codegen {file} -o DIR"

    def __init__(self, label: str, usage: str) -> None:
        self.label = label
        self.usage = usage

    def __repr__(self) -> str:
        return f"FileKind.{self.name}"


class FileContent(NamedTuple):
    """The recognised content of a file.

    Args:
        kind: its kind.
        is_written: whether only dispatchlab writes such files, or the file has its mark.
    """

    kind: FileKind
    is_written: bool = True

    def __str__(self) -> str:
        return self.kind.label

    def usage(self, file: str) -> str:
        """Return the advice for the file."""
        return self.kind.usage.format(file=file)


class OtherFileError(DispatchLabError):
    """A file is of another kind than the expected one.

    Args:
        path: the file.
        found: its kind.
        wanted: the kinds that would have been right.
    """

    path: str
    found: FileContent
    wanted: tuple[FileKind, ...]

    def __str__(self) -> str:
        kinds = " or ".join(kind.label for kind in self.wanted)
        return f"{self.path}: expected {kinds} but found {self.found}; {self.found.usage(self.path)}"


class OverwriteError(DispatchLabError):
    """A write would replace a file that dispatchlab did not write, or a file of another kind.

    Args:
        path: the file.
        found: its recognised kind; None for unknown content.
        wanted: the kind of file to write.
    """

    path: str
    found: FileContent | None
    wanted: FileKind

    def __str__(self) -> str:
        what = "exists" if self.found is None else f"is {self.found}"
        if self.found is None or not self.found.is_written:
            what += ", and dispatchlab did not write it"
        return f"{self.path} {what}: write {self.wanted.label} to another file, or remove this one"


def recognised(content: bytes) -> FileContent | None:
    """Return the kind of a file's content; None for a file that dispatchlab neither reads nor writes."""
    if is_registry(content):
        return FileContent(FileKind.REGISTRY)
    text = content[:_HEAD].decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    first = text.partition("\n")[0]
    if text.lstrip().startswith("{"):
        return _json(text.lstrip())
    generated = first.startswith(("# Generated by `dispatchlab codegen", "// Generated by `dispatchlab codegen"))
    marked = generated or MARK in first
    if marked and text.partition("\n")[2].startswith("<!DOCTYPE html>"):
        return FileContent(FileKind.PAGE)
    if marked and not generated and text.partition("\n")[2].startswith(('"""', "import ", "from ")):
        return FileContent(FileKind.PROGRAM)
    fields = dict(re.findall(r"^([a-z_]+):[ \t]*(.*)$", text, re.MULTILINE))
    if "verdict" in fields and {"claim", "expected"} <= fields.keys():
        return FileContent(FileKind.REPORT if "engine" in fields else FileKind.GOLDEN)
    if "registrations" in fields and "claim" in fields:
        return FileContent(FileKind.SCENARIO, is_written=marked)
    return FileContent(FileKind.GENERATED) if generated else None


def is_registry(content: bytes) -> bool:
    """Return whether a file that begins with this content is a recorded registry."""
    if not content.startswith(b"\xfd7zXZ\0"):
        return False
    from lzma import LZMADecompressor, LZMAError  # costs start-up, and few files are compressed

    try:
        return LZMADecompressor().decompress(content, len(REGISTRY_START)) == REGISTRY_START
    except LZMAError:
        return False


def _json(text: str) -> FileContent | None:
    for kind, beginning in _BEGINNINGS.items():
        if re.match(beginning, text):
            return FileContent(kind)
    return None


_BEGINNINGS = {
    FileKind.BASELINE: r'\{\s*"version": \d+,\s*"findings": \[',
    FileKind.PROFILE: r'\{\s*"profile": \d+,\s*"torch": "',
    FileKind.REPORT: r'\{\s*"version": \d+,',
}
"""How each kind of JSON begins."""


def content_of(path: str | os.PathLike[str]) -> FileContent | None:
    """Return the recognised content of a file; None if it cannot be read or is not a regular file."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as stream:
            return recognised(stream.read(_HEAD))
    except (OSError, ValueError):
        return None


def instead(content: bytes, file: str, *wanted: FileKind) -> tuple[str, str] | None:
    """Return the kind of a file, and advice about it; None if it may have the wanted kind.

    Args:
        content: of the file, or its beginning.
        file: the name of the file.
        wanted: the kinds that are accepted.
    """
    found = recognised(content)
    if found is None or found.kind in wanted:
        return None
    return f"expected {' or '.join(kind.label for kind in wanted)} but found {found}", found.usage(file)


def check_output(path: str | os.PathLike[str], kind: FileKind) -> None:
    """Make sure, before work is done for it, that a file can be written.

    Args:
        path: the file.
        kind: the kind of file to write.

    Raises:
        WriteError: the path is a folder, or its folder does not exist.
        OverwriteError: the file has other content.
    """
    check_target(path)
    check_overwrite(path, kind)


def check_overwrite(path: str | os.PathLike[str], kind: FileKind) -> None:
    """Make sure that a file may be overwritten: it is missing, empty, or a written file of this kind.

    A device, a pipe or a descriptor may always be written into.

    Raises:
        OverwriteError: the file has other content.
    """
    try:
        if not os.path.isfile(path) or os.fspath(path).startswith("/dev/") or os.path.getsize(path) == 0:
            return
    except OSError:
        return
    found = content_of(path)
    if found is None or found.kind is not kind or not found.is_written:
        raise OverwriteError(os.fspath(path), found, kind)


def marked(text: str, kind: FileKind) -> str:
    """Return the text with the mark of a written file at its beginning, if its kind needs a mark.

    Args:
        text: the content.
        kind: its kind.
    """
    match kind:
        case FileKind.SCENARIO | FileKind.PROGRAM:
            return f"# {MARK}\n{text}"
        case FileKind.PAGE:
            return f"<!-- {MARK} -->\n{text}"
        case _:
            return text
