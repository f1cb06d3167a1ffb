"""Call a function in a fork of this process: nothing here changes, and nothing here ends when it crashes."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any


def in_a_fork(function: Callable[[], Any], *, longest_s: float) -> Any:
    """Return what a function returns in a fork; None when it raises or crashes, or where nothing forks.

    Raises:
        TimeoutError: it does not come back.
    """
    if not hasattr(os, "fork"):
        return None
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        os.close(reader)
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
            os.write(writer, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], longest_s)
    data = b""
    if ready:
        while part := os.read(reader, 65536):
            data += part
    else:
        os.kill(process, signal.SIGKILL)
    os.close(reader)
    os.waitpid(process, 0)
    if not ready:
        raise TimeoutError
    return json.loads(data) if data else None
