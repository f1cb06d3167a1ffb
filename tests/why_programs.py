"""Run many failing programs quickly: one process imports PyTorch, and each program runs in a fork of it.

python -m tests.why_programs FILE ANSWERS

A file holds programs, each below its heading:

### WHY104 never_defined
#cause flashkit::rope is not defined, nothing has registered
#fix import

`#cause` lists what the first line of the answer must hold, `#fix` what one of its fixes must; `#file PATH` begins
another file beside the program. A program whose heading is `### right NAME` must end well.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Variation:
    """A program, and what must be said of it."""

    code: str
    name: str
    cause: tuple[str, ...]
    fix: str
    files: dict[str, str]


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


def answers(path: Path) -> Iterator[tuple[str, int, dict[str, object] | None]]:
    """Run each program of a file in a fork; return its exit code and its answer."""
    import torch
    import torch._dynamo
    import torch.utils.backend_registration  # noqa: F401

    from dispatchlab.questions.why import child

    for variation in variations(path):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in variation.files.items():
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            process = os.fork()
            if process == 0:
                code = 99
                try:
                    os.chdir(folder)
                    silent = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(silent, 1)
                    os.dup2(silent, 2)
                    code = child.main([f"{folder}/answer.json", "program.py"])
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            answer = Path(folder, "answer.json")
            yield variation.name, code, json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else None


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(list(answers(Path(sys.argv[1])))), encoding="utf-8")
