"""Commands where something is missing that they count on: files, memory, a disk, a home, a folder, streams, a terminal.

Each ends with a documented exit code that is not our own 70, without a traceback, and says why in a sentence where it
has not done what was asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.scenario_texts import many

ROOT: Final = Path(__file__).parents[1]
DOCUMENTED: Final = frozenset((0, 1, 2, 3, 4, 5, 74, 124, 141))
"""The exit codes that a command may end with here: nothing interrupts it, and nothing of it is a defect."""

_NATIVE: Final = """\
- func: foo(Tensor self) -> Tensor
  dispatch:
    CPU: foo_cpu
"""
_PROGRAM: Final = "from dispatchlab import Dispatcher\nprint(Dispatcher())\n"


class Limit(NamedTuple):
    """What is missing.

    Args:
        shell: what a shell does before it becomes the command, and around it; `$@` is the command.
        environment: what is in its environment.
        ends_early: Python itself may end before the first line of ours, with its own words.
    """

    shell: str = 'exec "$@"'
    environment: tuple[tuple[str, str], ...] = ()
    ends_early: bool = False


LIMITS: Final = {
    "6 open files": Limit('ulimit -n 6; exec "$@"', ends_early=True),
    "10 open files": Limit('ulimit -n 10; exec "$@"'),
    "16 open files": Limit('ulimit -n 16; exec "$@"'),
    "little memory": Limit('ulimit -v 400000; exec "$@"', (("OPENBLAS_NUM_THREADS", "1"),), ends_early=True),
    "no file can grow": Limit('ulimit -f 0; exec "$@" < /dev/null | cat; exit "${PIPESTATUS[0]}"'),
    "no file can grow beyond 1 KiB": Limit('ulimit -f 1; exec "$@" < /dev/null | cat; exit "${PIPESTATUS[0]}"'),
    "a full disk behind stdout": Limit('exec "$@" > /dev/full'),
    "a full disk behind both": Limit('exec "$@" > /dev/full 2> /dev/full'),
    "no home": Limit(environment=(("HOME", "/nowhere/at/all"), ("XDG_CACHE_HOME", ""))),
    "a home that is no folder": Limit(environment=(("HOME", "/dev/null"), ("XDG_CACHE_HOME", "/dev/null/x"))),
    "no folder for temporary files": Limit(environment=(("TMPDIR", "/nowhere"), ("TEMP", "/nowhere"))),
    "the current folder is gone": Limit('mkdir gone; cd gone; rmdir "$PWD"; exec "$@"'),
    "ASCII alone": Limit(environment=(("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0"))),
    "no stdin": Limit('exec "$@" <&-'),
    "no stdout": Limit('exec "$@" >&-'),
    "no stderr": Limit('exec "$@" 2>&-'),
    "no streams": Limit('exec "$@" <&- >&- 2>&-'),
    "the smallest terminal": Limit(
        environment=(("COLUMNS", "1"), ("LINES", "1"), ("FORCE_COLOR", "1"), ("TERM", "xterm"))
    ),
}
"""By name."""

COMMANDS: Final = {
    "permute": ("permute", "{folder}/a.yaml"),
    "permute --jobs": ("permute", "{folder}/a.yaml", "{folder}/b.yaml", "--jobs", "2"),
    "permute --checkpoint": ("permute", "{folder}/a.yaml", "--checkpoint", "{folder}/new.ck"),
    "permute --save": ("permute", "{folder}/violated.yaml", "--save", "{folder}/new.replay"),
    "permute --walk sample": ("permute", "{folder}/a.yaml", "--walk", "sample", "--samples", "20"),
    "dump": ("dump", "test::foo", "--from", "{folder}/a.yaml"),
    "explain": ("explain", "test::foo", "--from", "{folder}/a.yaml"),
    "coverage": ("coverage", "CPU", "--from", "{folder}/a.yaml"),
    "diff": ("diff", "{folder}/a.yaml", "{folder}/b.yaml"),
    "lint": ("lint", "{folder}/violated.yaml"),
    "lint --write-baseline": ("lint", "{folder}/violated.yaml", "--write-baseline", "{folder}/new.json"),
    "certify": ("certify", "{folder}/a.yaml", "--report", "{folder}/new.html"),
    "certify --checkpoint": ("certify", "{folder}/a.yaml", "--jobs", "2", "--checkpoint", "{folder}/new.ck"),
    "codegen": ("codegen", "{folder}/native.yaml", "-o", "{folder}/new"),
    "trace": ("trace", "{folder}/program.py"),
    "explore": ("explore", "{folder}/a.yaml"),
    "init": ("init", "json", "--ci", "github"),
    "demo": ("demo",),
    "schema": ("schema",),
    "completion": ("completion", "bash"),
    "--help": ("--help",),
    "--version": ("--version",),
}
"""The arguments of commands that need no PyTorch."""

LIVE: Final = {
    "record": ("record", "json", "-o", "{folder}/new.yaml"),
    "imports": ("imports", "json", "csv"),
    "readiness": ("readiness", "json"),
    "check": ("check", "json"),
    "profile": ("profile", "-o", "{folder}/new.json"),
    "doctor": ("doctor",),
    "lint live": ("lint", "live"),
}
"""Those that do."""


def prepare(folder: Path) -> None:
    """Write the files that the commands read."""
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(many(4))
    (folder / "violated.yaml").write_text(
        "claim: Two kernels at one key.\nregistrations:\n"
        "  - {impl: foo, dispatch: CPU, debug: one}\n  - {impl: foo, dispatch: CPU, debug: two}\n"
    )
    (folder / "native.yaml").write_text(_NATIVE)
    (folder / "program.py").write_text(_PROGRAM)


def finding(command: str, limit: str, folder: Path) -> str | None:
    """What is wrong with how a command ends under a limit; None for nothing."""
    arguments = [each.format(folder=folder) for each in (COMMANDS | LIVE)[command]]
    shell, environment, ends_early = LIMITS[limit]
    for path in folder.glob("new*"):
        if path.is_file():
            path.unlink()
    given = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS", "LINES")}
    done = subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, "-m", "dispatchlab", *arguments],
        cwd=folder,
        env=given | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **dict(environment)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    errors = done.stderr.decode(errors="replace")
    if ends_early and done.returncode in (1, 127) and not done.stdout and "dispatchlab: " not in errors:
        return None
    if done.returncode not in DOCUMENTED:
        return f"exit code {done.returncode}: {errors[-300:]!r}"
    if "Traceback" in errors or "Exception ignored" in errors or "Fatal" in errors:
        return f"exit code {done.returncode} and a traceback: {errors[-500:]!r}"
    can_say = "stderr" not in limit and "streams" not in limit and "both" not in limit
    if can_say and done.returncode in (2, 74) and not (errors.strip() or done.stdout.strip()):
        return f"exit code {done.returncode} and not a word"
    return None
