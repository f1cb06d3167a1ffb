"""Run the command line on a terminal of its own, as someone who sits at it does."""

from __future__ import annotations

import os
import pty
import sys
import time
from collections.abc import Mapping
from pathlib import Path


def run_on_terminal(
    folder: Path, arguments: tuple[str, ...], environment: Mapping[str, str], *, keys: str = "", when: str = ""
) -> tuple[int, str]:
    """The exit code of a command, and what its terminal is given by both of its streams.

    Args:
        folder: where it runs.
        arguments: those of the command.
        environment: the whole of it.
        keys: what is typed, once `when` is shown.
        when: see `keys`.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-m", "dispatchlab", *arguments], environment)
    data = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        if not more:
            break
        data += more
        if keys and when.encode() in data:
            time.sleep(0.2)
            os.write(terminal, keys.encode())
            keys = ""
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), data.decode("utf-8")
