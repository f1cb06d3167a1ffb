"""Programs of the files in `why_programs/`, and the answers of `dispatchlab why` about them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.questions.why.run import answer_of

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """A program with what is right to say of it.

    Args:
        name: what it shows.
        code: the cause; `right` for a program that ends well.
        words: what the sentence and the fixes must name.
        text: the program.
    """

    name: str
    code: str
    words: tuple[str, ...]
    text: str


def programs(name: str) -> list[Program]:
    """Return the programs of a file: `#### name | code | word | word`, then the program, and so on."""
    found = []
    for part in (FOLDER / "why_programs" / f"{name}.txt").read_text(encoding="utf-8").split("\n#### ")[1:]:
        head, _, text = part.partition("\n")
        title, code, *words = (word.strip() for word in head.split(" | "))
        found.append(Program(title, code, tuple(words), text))
    return found


@cache
def _server() -> subprocess.Popen[str]:
    command = [sys.executable, str(FOLDER / "why_server.py")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def outcome_of(program: Program, folder: Path) -> tuple[int, Answer | None]:
    """Return the exit code of a program under `dispatchlab why`, and the answer where it failed."""
    (folder / "program.py").write_text(program.text, encoding="utf-8")
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{folder}\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    answer = folder / "answer.json"
    return code, answer_of(json.loads(answer.read_text(encoding="utf-8"))) if answer.exists() else None
