"""Run the programs of docs/defects on PyTorchs, and keep what they find in tests/data/defect_programs.json.

Run it from the root of the checkout, with the Python of each environment that has a PyTorch:
`python tools/defect_programs.py .venv/bin/python ~/torch-2.9/bin/python`. The pages of defects say what was found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "docs" / "defects"
OUTCOMES = ROOT / "tests" / "data" / "defect_programs.json"
HAS, FIXED = "defect", "fixed"
"""What a program can find; any other outcome is why it could not run to its end."""

# Each program runs in a copy of a process that has imported torch, and needs nothing of this project.
_IN_COPIES = r"""
import json, os, re, runpy, signal, sys, tempfile, torch
found = {}
for path in sys.argv[1:]:
    with tempfile.TemporaryFile("w+") as said:
        if not (child := os.fork()):
            signal.alarm(300)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            code = 2
            try:
                runpy.run_path(path)
                code = 0
            except SystemExit as error:
                code = 1 if str(error).startswith("defect: ") else 2
                print(error)
            except BaseException as error:
                print(type(error).__name__, error)
            sys.stdout.flush()
            os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        last = (said.read().splitlines() or [f"ended with {status}"])[-1]
        last = re.sub(r" \(?/\S+", "", last)[:200]  # paths of this machine
    found[path] = {0: "fixed", 1: "defect"}.get(status, last)
print(json.dumps([torch.__version__, found]))
"""


def programs() -> dict[str, Path]:
    """The name of each defect that has a program -> the program."""
    return {path.stem: path for path in sorted(PROGRAMS.rglob("*.py"))}


def run(
    paths: Sequence[Path], python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> tuple[str, dict[str, str]]:
    """Run programs on the PyTorch of a Python.

    Args:
        paths: the programs.
        python: the Python.
        environment: variables that it has besides those of this process.

    Returns:
        The version of its PyTorch, and what each program finds.
    """
    done = subprocess.run(
        [python, "-W", "ignore", "-c", _IN_COPIES, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    version, found = json.loads(done.stdout.splitlines()[-1])
    return version, {Path(path).stem: outcome for path, outcome in found.items()}


@cache
def outcomes() -> dict[str, dict[str, str]]:
    """The name of each defect -> the versions, oldest first -> what its program finds."""
    measured: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return {name: {version: found[name] for version, found in measured.items() if name in found} for name in programs()}


def main(pythons: Sequence[str]) -> None:
    """Run all programs on each PyTorch, and keep the outcomes."""
    for python in pythons:
        version, found = run([*programs().values()], python)
        measured = json.loads(OUTCOMES.read_text(encoding="utf-8"))
        measured[".".join(version.split(".")[:2])] = found
        measured = dict(sorted(measured.items(), key=lambda item: [int(part) for part in item[0].split(".")]))
        OUTCOMES.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
