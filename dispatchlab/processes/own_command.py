"""What a command of this dispatchlab prints, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from dispatchlab.cli import main; main()"


def printed_by(command: tuple[str, ...], variables: dict[str, str], limit_s: float) -> tuple[bytes, str]:
    """What a command prints; or nothing, and why.

    Args:
        command: its name and its arguments.
        variables: environment variables that it has besides those of this process.
        limit_s: how long it may take.
    """
    path = json.dumps([entry or os.getcwd() for entry in sys.path])
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _BOOT, path, *command],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False,
            env={**os.environ, **variables},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return b"", str(error)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return b"", last[0] if last else f"exit code {done.returncode}"
    return done.stdout, ""
