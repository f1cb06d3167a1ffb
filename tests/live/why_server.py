"""Run programs under `dispatchlab why`, each in a fork of one process that has imported PyTorch."""

from __future__ import annotations

import os
import sys

import torch._dynamo  # noqa: F401  # imported once, for every program

from dispatchlab.questions.why.cause import causes
from dispatchlab.questions.why.child import main


def run(folder: str) -> int:
    """Run `program.py` of a folder in a fork, with the answer in `answer.json`, and return its exit code."""
    process = os.fork()
    if process == 0:
        code = 99
        try:
            os.chdir(folder)
            output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = main(["answer.json", "program.py"])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    causes()
    for line in sys.stdin:
        sys.stdout.write(f"{run(line.strip())}\n")
        sys.stdout.flush()
