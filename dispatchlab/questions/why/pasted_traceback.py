"""Read a traceback from text: a pasted report, a log of CI, what a process printed before it died."""

from __future__ import annotations

import re
from typing import Final

from dispatchlab.model.failure import Position, Raised

_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (.+))?$')
_ERROR: Final = re.compile(
    r"^(?:E\s+)?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Warning|Interrupt|Exit|Unsupported|"
    r"Failed|Node|NotImplemented))(?:: (.*))?$"
)
_WHAT: Final = re.compile(r"^\s*what\(\):\s*(.*)$")
_RANK: Final = re.compile(r"^\[rank\d+\]:\s?", re.MULTILINE)
_BACKTRACE: Final = re.compile(r"^(?:Exception raised from |frame #\d+: )")


def read_traceback(text: str) -> tuple[tuple[Raised, ...], tuple[Position, ...]]:
    """Return the exceptions of a text, the last first, and the frames that are not of installed packages."""
    lines = _RANK.sub("", text).splitlines()
    chain: list[Raised] = []
    frames: list[Position] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        frame = _FRAME.match(line)
        error = _ERROR.match(line) or None
        what = _WHAT.match(line)
        if frame is not None:
            file, number, function = frame.groups()
            following = lines[index + 1].strip() if index + 1 < len(lines) else ""
            if "site-packages" not in file and not file.startswith(("torch/", "<")) and "/lib/python" not in file:
                frames.append(Position(file, int(number), function or "", following))
        elif error is not None or what is not None:
            kind = error[1] if error is not None else "RuntimeError"
            head = (error[2] or "") if error is not None else (what[1] if what is not None else "")
            message, index = _message(lines, index + 1)
            chain.append(Raised(kind if "." in kind else f"builtins.{kind}", "\n".join([head, *message]).strip()))
            continue
        index += 1
    if not chain and text.strip():
        chain.append(Raised("builtins.RuntimeError", text.strip()[-8000:]))
    return tuple(reversed(chain)), tuple(frames)


def _message(lines: list[str], index: int) -> tuple[list[str], int]:
    """Return the lines of a message that goes on, and where it ends."""
    kept: list[str] = []
    while index < len(lines):
        line = lines[index]
        if line.startswith(("Traceback (", "The above exception", "During handling")) or _ERROR.match(line):
            break
        if _BACKTRACE.match(line):
            while index < len(lines) and (not lines[index].strip() or _BACKTRACE.match(lines[index])):
                index += 1
            break
        kept.append(line)
        index += 1
    return kept, index
