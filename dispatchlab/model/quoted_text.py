"""Restore a text that a terminal, a log or an e-mail changed."""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import suppress
from importlib.resources import files
from itertools import pairwise
from typing import Final

_LEAD: Final = re.compile(
    r"^((?:>|\[[^\]\n]+\]:?|\d[\d:.,TZ/+-]*|[A-Z]{4,8}:?|[EWI]\d{4}|\S+\.py:\d+\]|[\w-]+ +\||-"
    r"|[\w.-]+/[\w.-]+(?= )|std(?:out|err) [FP](?= )|[\w.]+:(?= Traceback \()) ?)+"
    r"(?=Traceback \(|[\w.]+(?:Error|Exception|Unsupported)\b)",
    re.MULTILINE,
)
"""The start of a line in an e-mail or a log."""

_ERROR: Final = r"(?:\w+\.)*\w*(?:Error|Exception|Unsupported)\b"
_OF_PYTEST: Final = tomllib.loads((files(__package__) / "pytest_report.toml").read_text(encoding="utf-8"))["form"]
"""How the frames and exceptions of pytest's report become those that Python prints."""

_STARTS: Final = re.compile(r"^(?:Traceback \(most recent call last\)|_{3,} .+ _{3,}$)", re.MULTILINE)
_LINKED: Final = re.compile(
    r'(?:another exception occurred|of the following exception|the following error|subprocess|""")\W*$'
)


def unquoted(text: str) -> str:
    """Return a text without JSON, colours, the start of a line of an e-mail or a log, and cuts in lines of frames."""
    plain = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", re.sub(r"^\{.*\}$", _of_record, text, flags=re.MULTILINE))
    lead = _LEAD.search(plain)
    shape = re.sub(r"\d+", r"\\d+", re.escape(lead[0]).replace(r"\ ", " ?")) if lead is not None else ""
    plain = re.sub(f"^{shape}", "", plain, flags=re.MULTILINE) if shape else plain
    is_cut = re.search(r'^ *File(?: "[^"\n]+",(?:.* in| line)?)? ?$', plain, re.MULTILINE)
    plain = unwrapped(plain) if is_cut else plain
    for form in _OF_PYTEST:
        plain = re.sub(form["find"].replace("ERROR", _ERROR), form["put"], plain, flags=re.MULTILINE)
    if not re.search(rf"^{_ERROR}", plain, re.MULTILINE):  # the summary of pytest alone
        return re.sub(rf"^FAILED \S+ - (?={_ERROR})", "Traceback (most recent call last):\n", plain, flags=re.MULTILINE)
    return re.sub(r"^(?:FAILED|ERROR) \S+(?: - .*)?\n|^=+ .+ =+\n", "", plain, flags=re.MULTILINE)


def _of_record(line: re.Match[str]) -> str:
    """Return the longest text in a log's record, which is a line of JSON."""
    with suppress(ValueError):
        return max((value for value in json.loads(line[0]).values() if isinstance(value, str)), key=len, default="")
    return line[0]


def unwrapped(text: str) -> str:
    """Return a text with its long lines joined to the next, as they were before an e-mail wrapped them."""
    text = re.sub(r"^( *File) ?\n", r"\1 ", text, flags=re.MULTILINE)
    return re.sub(r"(?<=[^\n]{40}) ?\n(?! |Traceback|File|[\w.]+(?:Error|Exception)\b)", " ", text)


def tracebacks(text: str) -> list[str]:
    """Return the parts of a text, each with a traceback and those before it that led to its exception."""
    starts = [
        at for at in map(re.Match.start, _STARTS.finditer(text)) if not _LINKED.search(text[max(0, at - 99) : at])
    ]
    return [text[start:end] for start, end in pairwise([0, *starts[1:], len(text)])]
