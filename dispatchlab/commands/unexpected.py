"""The last resort: an unexpected error, as one sentence and a file with the details."""

from __future__ import annotations

import errno
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

_BAD_INPUT: Final = 2
_REFUSED: Final = 74
_REFUSALS: Final = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENOMEM, errno.EAGAIN),
    *(errno.EACCES, errno.EPERM),
)
_NO_FOLDER: Final = "No usable temporary directory found"  # of `tempfile`
_NO_THREAD: Final = "can't start new thread"  # of `threading`
_LONGEST = 200
_MOST_DETAILS = 2**20


def report_unexpected(error: BaseException) -> int:
    """Write one sentence to standard error, and the traceback to a new file; nothing that happens here is raised.

    Returns:
        The exit code. What the system refuses, or a current folder that is gone, is no defect of dispatchlab.
    """
    trouble, code = _of_the_system(error)
    if trouble:
        with suppress(Exception):
            from dispatchlab.commands.output import warn

            warn(f"dispatchlab: {trouble}")
        return code
    with suppress(Exception):
        from dispatchlab.commands.output import warn

        details = _details(error)
        try:
            where = f"the details are in {_write(details)}"
        except OSError:
            where = f"the details could not be written to a file:\n{details}"
        warn(f"dispatchlab: unexpected {_summary(error)}: this is a defect of dispatchlab, not a verdict; {where}")
    return UNEXPECTED


def _of_the_system(error: BaseException) -> tuple[str, int]:
    """What the system would not do, and the exit code for that; empty for any other error."""
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return "the system refused what this command needs: another thread; nothing was decided", _REFUSED
    if not isinstance(error, OSError):
        return "", UNEXPECTED
    if isinstance(error, FileNotFoundError):
        try:
            os.getcwd()
        except OSError:
            return "the current folder is gone: change into one that is there", _BAD_INPUT
    if error.errno == errno.ENAMETOOLONG:
        return f"a name is too long for the system: {_shown_name(error)}: shorten it", _BAD_INPUT
    if error.errno not in _REFUSALS and not str(error.strerror).startswith(_NO_FOLDER):
        return "", UNEXPECTED
    about = f" ({_shown_name(error)})" if isinstance(error.filename, str | bytes) else ""
    return f"the system refused what this command needs: {error.strerror}{about}; nothing was decided", _REFUSED


def _shown_name(error: OSError) -> str:
    return one_line(os.fsdecode(error.filename or ""))[:_LONGEST]


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
