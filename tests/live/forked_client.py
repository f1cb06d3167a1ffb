"""Ask a process of `forked` to run a program: `python -I forked_client.py ADDRESS -m MODULE [ARGUMENT]...`.

It starts in no time, since it imports nothing of these tests, and stands for Python in scripts.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence

_MODULE = "import runpy, sys; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
_FILE = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def ask(
    address: str,
    line: Sequence[str],
    streams: Sequence[int],
    *,
    folder: str,
    environment: Mapping[str, str],
    path: Sequence[str] = ("",),
) -> int:
    """Run what a command line of Python names: `-c` and a program, `-m` and a module, or a file.

    Args:
        address: where the process listens.
        line: the command line.
        streams: its standard input, output and error.
        folder: where it runs.
        environment: all of its environment variables, PYTHONPATH among them.
        path: what is on the path before PYTHONPATH.

    Returns:
        its exit code, negative for a signal.
    """
    match line:
        case "-c", program, *arguments:
            pass
        case "-m", *arguments:
            program = _MODULE
        case [*arguments]:
            program = _FILE
    request = {
        "program": program,
        "arguments": arguments,
        "folder": folder,
        "environment": {**environment},
        "path": [*path],
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"\n"], [*streams])
        server.sendall(json.dumps(request).encode() + b"\n")
        return int(server.recv(16))


if __name__ == "__main__":
    code = ask(sys.argv[1], sys.argv[2:], (0, 1, 2), folder=os.getcwd(), environment=os.environ, path=())
    sys.exit(128 - code if code < 0 else code)
