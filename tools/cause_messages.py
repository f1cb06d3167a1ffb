"""Run the failing program of each cause's page, and write its message for the site's search: cause_messages.json.

Run it after a page was added, and on a new PyTorch: `python tools/cause_messages.py`. It needs PyTorch and fork.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
from pathlib import Path

from dispatchlab.questions.why.cause import causes

FILE = Path(__file__).with_suffix(".json")
_LIMIT_S = 20
_LONGEST = 300
_PLACES = re.compile(r" at 0x\w+|(?<![\w:/])/[\w.-]+(/[\w.-]+)+")


def message_of(page: str) -> str:
    """The message of the exception that ends the failing program of a page; empty where there is none."""
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _run(program, write)
    os.close(write)
    with os.fdopen(read, encoding="utf-8", errors="replace") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return " ".join(_PLACES.sub("...", text).split())[:_LONGEST]


def _run(program: str, write: int) -> None:
    """Run a program in a forked process, and write what it raises."""
    signal.alarm(_LIMIT_S)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})
    except BaseException as error:
        os.write(write, f"{type(error).__name__}: {error}"[: 10 * _LONGEST].encode())
    os._exit(0)


def main() -> None:
    """Write the file."""
    importlib.import_module("torch._dynamo")  # once for all programs
    found = {cause.code: message_of(cause.page) for cause in causes() if cause.file.is_file()}
    FILE.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
