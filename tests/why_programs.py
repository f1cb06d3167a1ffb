"""Run many failing programs quickly: a server imports PyTorch once, and each program runs in a fork of it.

A file of variations holds programs, each below its heading:

### WHY104 never_defined
#cause flashkit::rope is not defined, nothing has registered
#fix import

`#cause` lists what the first line of the answer must hold, `#fix` what one of its fixes must; `#file PATH` begins
another file beside the program. A program whose heading is `### right NAME` must end well.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dispatchlab.questions.why.diagnose import Answer


@dataclass(frozen=True)
class Variation:
    """A program, and what must be said of it."""

    code: str
    name: str
    cause: tuple[str, ...]
    fix: str
    files: Mapping[str, str]


def variations(path: Path) -> Iterator[Variation]:
    """Read a file of programs."""
    for part in re.split(r"^### ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        code, _, name = heading.partition(" ")
        cause = re.search(r"^#cause (.*)\n", body, re.MULTILINE)
        fix = re.search(r"^#fix (.*)\n", body, re.MULTILINE)
        text = re.sub(r"^#(?:cause|fix) .*\n", "", body, flags=re.MULTILINE)
        pieces = re.split(r"^#file (\S+)\n", text, flags=re.MULTILINE)
        files = {"program.py": pieces[0], **dict(zip(pieces[1::2], pieces[2::2], strict=True))}
        yield Variation(code, name, tuple(cause[1].split(", ")) if cause else (), fix[1] if fix else "", files)


def why(folder: Path, files: Mapping[str, str], *arguments: str) -> tuple[int, Answer | None]:
    """Write files and run `why ARGUMENTS` in a fork of the server; return its exit code and its answer."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([str(folder), *arguments]) + "\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    answer = folder / "answer"
    return code, pickle.loads(answer.read_bytes()) if answer.exists() else None


@cache
def _server() -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.why_programs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    )


def _serve() -> None:
    """Run each program of a line, and print its exit code."""
    import torch
    import torch._dynamo
    import torch.utils.backend_registration  # noqa: F401

    from dispatchlab.questions.why import child

    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        process = os.fork()
        if process == 0:
            code = 99
            try:
                os.chdir(folder)
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                code = child.main([f"{folder}/answer", *arguments])
            except SystemExit as ended:  # as Python ends with it
                given = ended.code
                code = given if isinstance(given, int) else int(given is not None)
            finally:
                os._exit(code)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
