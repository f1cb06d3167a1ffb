"""Where a command writes: results to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Literal, TypeAlias

from dispatchlab.errors import DispatchLabError

Format: TypeAlias = Literal["rich", "text", "json"]


class OutputClosed(Exception):
    """Nobody reads standard output any more."""


class OutputFailed(DispatchLabError):
    """Standard output cannot be written, as on a full disk."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told

    def __str__(self) -> str:
        return f"the output could not be written: {self.told}"


def chosen_format(asked: Format | None) -> Format:
    """The format that was asked for; else `rich` on a terminal and `text` anywhere else."""
    return asked or ("rich" if sys.stdout.isatty() else "text")


def out(text: str) -> None:
    """Write to standard output, at once.

    Raises:
        OutputClosed: its reader has gone; standard output leads nowhere from now on.
        OutputFailed: it cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        raise OutputClosed from None
    except OSError as error:
        abandon_stdout()
        raise OutputFailed(error.strerror or str(error)) from None


def abandon_stdout() -> None:
    """Lead standard output nowhere, so that Python does not stumble over it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  lives as long as the process
    finally:
        os.close(nowhere)


def note(text: str) -> None:
    """Write a line to standard error; nothing happens when that is closed."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        pass


def tolerate_encodings() -> None:
    """Let a stream that cannot say a character spell it out; nothing ends with an encoding error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
