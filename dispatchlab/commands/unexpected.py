"""The last resort: an error that nobody expected, as one sentence and a file with the details."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from contextlib import suppress
from traceback import format_exception
from typing import Final

from dispatchlab.escape import one_line

UNEXPECTED: Final = 70
"""The exit code, as EX_SOFTWARE of sysexits.h has it; 1 would read as "violated"."""

_LONGEST = 200
_MOST_DETAILS = 2**20


def report_unexpected(error: BaseException) -> None:
    """Write the traceback to a new file and one sentence to standard error; nothing that happens here is raised."""
    with suppress(Exception):
        from dispatchlab.commands.output import warn

        details = _details(error)
        try:
            where = f"the details are in {_write(details)}"
        except OSError:
            where = f"the details could not be written to a file:\n{details}"
        warn(f"dispatchlab: unexpected {_summary(error)}: this is a defect of dispatchlab, not a verdict; {where}")


def _summary(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    shown = one_line(text[:_LONGEST])
    return type(error).__name__ + (f" ({shown}{'...' if len(text) > _LONGEST else ''})" if shown else "")


def _details(error: BaseException) -> str:
    from dispatchlab import __version__

    head = f"dispatchlab {__version__}, Python {platform.python_version()}, {sys.platform}\n{sys.argv!r:.2000}\n\n"
    try:
        text = "".join(format_exception(error))
    except Exception:  # an error whose text cannot be made
        text = type(error).__name__
    if len(text) > _MOST_DETAILS:
        text = f"{text[: _MOST_DETAILS // 2]}\n...\n{text[-_MOST_DETAILS // 2 :]}"
    return head + text


def _write(details: str) -> str:
    descriptor, path = tempfile.mkstemp(prefix="dispatchlab-error-", suffix=".txt")
    with os.fdopen(descriptor, "wb") as file:
        file.write(details.encode("utf-8", "backslashreplace"))
    return path
