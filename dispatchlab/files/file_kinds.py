"""The kinds of files that dispatchlab reads and writes, each recognised by how its content begins.

A file is never recognised by its name: a saved counterexample may be called `found.yaml`, and a registry `today`.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.atomic_write import check_target, is_replaced

REGISTRY_MEMBER = "dispatchlab-registry.json"
"""The first member of the archive of a recorded registry."""

BUNDLE_MEMBER = "dispatchlab-bundle.json"
"""The first member of a bundle of registries."""

INPUTS_FORMAT = "dispatchlab-readiness-1"
"""What the header of a file of captured inputs, which is one of safetensors, says first."""

MARK = "Written by dispatchlab. Remove this line to protect the file from being written over."
"""The first line, as a comment, of a file that could otherwise have been written by hand."""

_HEAD = 64 * 2**10  # no file says what it is later than here


class FileKind(Enum):
    """What a file can be: its name with an article, and what to do with such a file."""

    SCENARIO = "a scenario", "explore it with: dispatchlab permute {file}"
    REPLAY = "a replay", "run it with: dispatchlab permute --replay {file}"
    REGISTRY = "a recorded registry", "look into it with: dispatchlab dump OP --from {file}"
    BUNDLE = "a bundle of registries", "name one of those that are bundled: dispatchlab dump OP --from torch-2.13"
    BASELINE = "a baseline of lint", "give it as: dispatchlab lint --baseline {file}"
    KNOWN_FAILURES = "a baseline of readiness", "give it as: dispatchlab readiness PACKAGE --baseline {file}"
    INPUTS = "captured inputs", "give it as: dispatchlab readiness PACKAGE --inputs {file}"
    PROFILE = "a profile of a PyTorch", "use it with: dispatchlab permute SCENARIO --semantics {file}"
    GOLDEN = "a golden file", "pytest compares a scenario with it"
    CERTIFICATE = "a certificate, as JSON", "`dispatchlab certify` printed it"
    REPORT = "a report", "a command of dispatchlab printed it"
    PAGE = "a report to keep", "open it in a browser"
    SARIF = "a SARIF report", "it is for a forge or an editor"
    JSON_SCHEMA = "the JSON Schema of scenarios", "it is for an editor"
    STATE_GRAPH = "a picture of a state graph", "`dispatchlab permute --graph` drew it"
    TRACE = "a trace for Perfetto", "open it at https://ui.perfetto.dev"
    PROGRAM = "a Python program", "run it with: python {file}"
    GENERATED = "generated code", "`dispatchlab codegen` wrote it"
    NATIVE_FUNCTIONS = "a file of native functions", "generate its operators with: dispatchlab codegen {file} -o DIR"

    def __init__(self, label: str, usage: str) -> None:
        self.label = label
        self.usage = usage

    def __repr__(self) -> str:
        return f"FileKind.{self.name}"


class FileContent(NamedTuple):
    """What the content of a file is recognised as.

    Args:
        kind: its kind.
        of: what it was made for, such as the scenario of a replay; often empty.
        is_written: only dispatchlab writes such a file, or the file has the mark of one that it wrote.
    """

    kind: FileKind
    of: str = ""
    is_written: bool = True

    def __str__(self) -> str:
        return f"{self.kind.label} of {self.of}" if self.of else self.kind.label

    def usage(self, file: str) -> str:
        """What to do with the file."""
        return self.kind.usage.format(file=file)


class OtherFileError(DispatchLabError):
    """A file is something else than what was wanted.

    Args:
        path: the file.
        found: what it is.
        wanted: the kinds that would have been right.
    """

    path: str
    found: FileContent
    wanted: tuple[FileKind, ...]

    def __str__(self) -> str:
        kinds = " or ".join(kind.label for kind in self.wanted)
        return f"{self.path}: expected {kinds} but found {self.found}; {self.found.usage(self.path)}"


class OverwriteError(DispatchLabError):
    """A file was to be written over that dispatchlab did not write, or that holds something of another kind.

    Args:
        path: the file.
        found: what it is recognised as; None for an unknown content.
        wanted: what was to be written there.
    """

    path: str
    found: FileContent | None
    wanted: FileKind

    def __str__(self) -> str:
        what = "exists" if self.found is None else f"is {self.found}"
        if self.found is None or not self.found.is_written:
            what += ", and dispatchlab did not write it"
        return f"{self.path} {what}: write {self.wanted.label} to another file, or write over this one with --force"


def recognised(content: bytes) -> FileContent | None:
    """What the content of a file is; None for what dispatchlab neither reads nor writes."""
    if is_archive(content, REGISTRY_MEMBER):
        return FileContent(FileKind.REGISTRY)
    if is_archive(content, BUNDLE_MEMBER):
        return FileContent(FileKind.BUNDLE)
    if content.startswith(f'{{"__metadata__": {{"format": "{INPUTS_FORMAT}",'.encode(), 8):
        return FileContent(FileKind.INPUTS)
    text = content[:_HEAD].decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    first = text.partition("\n")[0]
    if text.lstrip().startswith("{"):
        return _json(text.lstrip())
    generated = first.startswith(("# Generated by `dispatchlab codegen", "// Generated by `dispatchlab codegen"))
    marked = generated or MARK in first
    if marked and text.partition("\n")[2].startswith("<!DOCTYPE html>"):
        return FileContent(FileKind.PAGE)
    if marked and not generated and first.startswith(("//", "<!--")):
        return FileContent(FileKind.STATE_GRAPH)
    if marked and not generated and text.partition("\n")[2].startswith(('"""', "import ", "from ")):
        return FileContent(FileKind.PROGRAM)
    fields = dict(re.findall(r"^([a-z_]+):[ \t]*(.*)$", text, re.MULTILINE))
    if "replay" in fields and "digest" in fields:
        return FileContent(FileKind.REPLAY, fields.get("scenario", "").strip("\"'"))
    if "verdict" in fields and {"claim", "expected"} <= fields.keys():
        return FileContent(FileKind.REPORT if "engine" in fields else FileKind.GOLDEN)
    if "registrations" in fields and "claim" in fields:
        return FileContent(FileKind.SCENARIO, is_written=marked)
    return FileContent(FileKind.GENERATED) if generated else None


def is_archive(content: bytes, member: str) -> bool:
    """Whether a content is that of a zip archive whose first member has this name."""
    return content.startswith(b"PK\x03\x04") and content.startswith(member.encode(), 30)


def _json(text: str) -> FileContent | None:
    fields = set(re.findall(r'"(\$?\w+)":', text))
    if re.match(r'\{\s*"version": \d+,\s*"findings": \[', text):
        return FileContent(FileKind.BASELINE)
    if re.match(r'\{\s*"version": \d+,\s*"failures": \[', text):
        return FileContent(FileKind.KNOWN_FAILURES)
    if re.match(r'\{\s*"profile": \d+,\s*"torch": "', text):
        return FileContent(FileKind.PROFILE)
    if re.match(r'\{\s*"traceEvents": \[', text):
        return FileContent(FileKind.TRACE, is_written=", traced by dispatchlab" in text)
    if "$schema" in fields:
        if '"title": "dispatchlab scenario"' in text:
            return FileContent(FileKind.JSON_SCHEMA)
        return FileContent(FileKind.SARIF) if '"name": "dispatchlab"' in text else None
    if not re.match(r'\{\s*"version": \d+,', text):
        return None
    if {"registry", "certificates"} <= fields:
        return FileContent(FileKind.CERTIFICATE)
    return FileContent(FileKind.REPORT) if fields & {"verdict", "operators", "counts", "before", "sources"} else None


def content_of(path: str | os.PathLike[str]) -> FileContent | None:
    """What a file is recognised as; None for one that cannot be read, and for what is no regular file."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as stream:
            return recognised(stream.read(_HEAD))
    except (OSError, ValueError):
        return None


def instead(content: bytes, file: str, *wanted: FileKind) -> tuple[str, str] | None:
    """What a file is in place of what was wanted, and what to do with it; None when it may be what was wanted.

    Args:
        content: of the file, or its beginning.
        file: what the file is called.
        wanted: the kinds that are accepted.
    """
    found = recognised(content)
    if found is None or found.kind in wanted:
        return None
    return f"expected {' or '.join(kind.label for kind in wanted)} but found {found}", found.usage(file)


def check_output(path: str | os.PathLike[str], kind: FileKind, *, force: bool) -> None:
    """Make sure, before work is done for it, that a file can be written.

    Args:
        path: the file.
        kind: what will be written there.
        force: write over whatever is there.

    Raises:
        WriteError: there is a folder, or nothing that the file could be in.
        OverwriteError: the file holds something else.
    """
    check_target(path)
    if not force:
        check_overwrite(path, kind)


def check_overwrite(path: str | os.PathLike[str], kind: FileKind) -> None:
    """Make sure that a file may be written over: it is not there, is empty, or is one of this kind that was written.

    A device, a pipe or a descriptor may always be written into.

    Raises:
        OverwriteError: it holds something else.
    """
    try:
        if not is_replaced(path) or os.path.getsize(path) == 0:
            return
    except OSError:
        return
    found = content_of(path)
    if found is None or found.kind is not kind or not found.is_written:
        raise OverwriteError(os.fspath(path), found, kind)


def marked(text: str, kind: FileKind, path: str = "") -> str:
    """The text with the mark of a written file in front, where its kind needs one.

    Args:
        text: the content.
        kind: its kind.
        path: the file; its ending decides how a picture says it.
    """
    match kind:
        case FileKind.SCENARIO | FileKind.PROGRAM:
            return f"# {MARK}\n{text}"
        case FileKind.PAGE:
            return f"<!-- {MARK} -->\n{text}"
        case FileKind.STATE_GRAPH if path.endswith(".svg"):
            return f"<!-- {MARK} -->\n{text}"
        case FileKind.STATE_GRAPH:
            return f"// {MARK}\n{text}"
        case _:
            return text
