"""Run programs in copies of this process, which has imported PyTorch, and say what each raised."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
from collections.abc import Sequence

from dispatchlab.live.bridge.torch import torch


def run_programs(sources: Sequence[str], seconds: float) -> tuple[str, list[str]]:
    """Run programs, each in a copy of this process.

    Args:
        sources: the programs.
        seconds: how long one may take.

    Returns:
        The version of PyTorch, and what each program raised; empty where it came to its end.
    """
    return str(torch().__version__), [_raised(source, seconds) for source in sources]


def _raised(program: str, seconds: float) -> str:
    """What a program raises in a copy of this process; empty when it comes to its end."""
    inward, outward = os.pipe()
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()
            silent = os.open(os.devnull, os.O_RDWR)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            exec(compile(program, "<program>", "exec"), {"torch": torch()})
            os.write(outward, b"-")
        except BaseException as error:
            os.write(outward, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(0)
    os.close(outward)
    with os.fdopen(inward, "rb") as file:
        ready, _, _ = select.select([inward], [], [], seconds)
        if not ready:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        said = file.read().decode(errors="replace")
    if not ready:
        return f"it did not end within {seconds:g} s"
    if os.WIFSIGNALED(status):
        return f"it ended the process with {signal.Signals(os.WTERMSIG(status)).name}"
    return "" if said == "-" else said or "it ended the process"
