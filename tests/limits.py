"""Commands where something is missing that they count on: files, memory, a disk, a home, a folder, streams, a terminal.

Each ends with a documented exit code that is not our own 70, without a traceback, and says why in a sentence where it
has not done what was asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
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
_TORCH_PROGRAM: Final = "import torch\ntorch.ones(1) + 1\n"
_PROJECT: Final = '[project]\nname = "pack"\nversion = "1"\n'
_PACKAGE: Final = """\
import torch

lib = torch.library.Library("pack", "DEF")
lib.define("op(Tensor x) -> Tensor")
lib.impl("op", lambda x: x.clone(), "CPU")
"""
_RECORD: Final = """\
claim: What importing pack registers does not depend on its order.
namespace: pack
semantics: torch-2.13
packages: [pack]
registrations:
  - claim: pack
  - def: op(Tensor x) -> Tensor
  - impl: op
    dispatch: CPU
"""


class Limit(NamedTuple):
    """What is missing.

    Args:
        shell: what a shell does before it becomes the command, and around it; `$@` is the command.
        environment: what is in its environment.
        ends_early: Python itself may end before the first line of ours, with its own words.
        harmless: every command does what it is for all the same.
    """

    shell: str = 'exec "$@"'
    environment: tuple[tuple[str, str], ...] = ()
    ends_early: bool = False
    harmless: bool = False


LIMITS: Final = {
    "6 open files": Limit('ulimit -n 6; exec "$@"', ends_early=True),
    "10 open files": Limit('ulimit -n 10; exec "$@"'),
    "16 open files": Limit('ulimit -n 16; exec "$@"'),
    "little memory": Limit('ulimit -v 400000; exec "$@"', (("OPENBLAS_NUM_THREADS", "1"),), ends_early=True),
    "no file can grow": Limit('ulimit -f 0; exec "$@" < /dev/null | cat; exit "${PIPESTATUS[0]}"'),
    "no file can grow beyond 1 KiB": Limit('ulimit -f 1; exec "$@" < /dev/null | cat; exit "${PIPESTATUS[0]}"'),
    "a full disk behind stdout": Limit('exec "$@" > /dev/full'),
    "a full disk behind both": Limit('exec "$@" > /dev/full 2> /dev/full'),
    "no home": Limit(environment=(("HOME", "/nowhere/at/all"), ("XDG_CACHE_HOME", "")), harmless=True),
    "a home that is no folder": Limit(
        environment=(("HOME", "/dev/null"), ("XDG_CACHE_HOME", "/dev/null/x")), harmless=True
    ),
    "no folder for temporary files": Limit(environment=(("TMPDIR", "/nowhere"), ("TEMP", "/nowhere")), harmless=True),
    "the current folder is gone": Limit('mkdir gone; cd gone; rmdir "$PWD"; exec "$@"'),
    "ASCII alone": Limit(
        environment=(("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")), harmless=True
    ),
    "no stdin": Limit('exec "$@" <&-', harmless=True),
    "no stdout": Limit('exec "$@" >&-'),
    "no stderr": Limit('exec "$@" 2>&-', harmless=True),
    "no streams": Limit('exec "$@" <&- >&- 2>&-'),
    "the smallest terminal": Limit(
        environment=(("COLUMNS", "1"), ("LINES", "1"), ("FORCE_COLOR", "1"), ("TERM", "xterm")), harmless=True
    ),
}
"""By name."""


class Command(NamedTuple):
    """A command line.

    Args:
        arguments: what follows `dispatchlab`.
        code: the exit code where nothing is missing.
    """

    arguments: tuple[str, ...]
    code: int = 0


COMMANDS: Final = {
    "permute": Command(("permute", "{folder}/a.yaml")),
    "permute --jobs": Command(("permute", "{folder}/a.yaml", "{folder}/b.yaml", "--jobs", "2")),
    "permute --save": Command(("permute", "{folder}/violated.yaml", "--save", "{folder}/new.yaml"), 1),
    "permute --walk sample": Command(("permute", "{folder}/a.yaml", "--walk", "sample", "--samples", "20")),
    "dump": Command(("dump", "test::foo", "--from", "{folder}/a.yaml")),
    "explain": Command(("explain", "test::foo", "--arg", "cpu", "--from", "{folder}/defined.yaml")),
    "coverage": Command(("coverage", "{folder}/a.yaml", "--key", "CPU")),
    "diff": Command(("diff", "{folder}/a.yaml", "{folder}/violated.yaml", "--exit-code"), 1),
    "lint": Command(("lint", "{folder}/violated.yaml"), 1),
    "lint --write-baseline": Command(("lint", "{folder}/violated.yaml", "--write-baseline", "{folder}/new.json")),
    "certify": Command(("certify", "{folder}/a.yaml", "--report", "{folder}/new.html")),
    "codegen": Command(("codegen", "{folder}/native.yaml", "-o", "{folder}/new")),
    "trace": Command(("trace", "{folder}/program.py")),
    "explore": Command(("explore", "{folder}/a.yaml"), 2),  # there is no terminal
    "defects": Command(("defects", "stale_slots")),
    "demo": Command(("demo",)),
    "schema": Command(("schema",)),
    "completion": Command(("completion", "bash")),
    "--help": Command(("--help",)),
    "--version": Command(("--version",)),
}
"""Those that need no PyTorch."""

LIVE: Final = {
    "record": Command(("record", "pack", "-o", "{folder}/new.yaml")),
    "record --check": Command(("record", "--check", "{folder}/record.yaml")),
    "imports": Command(("imports", "pack", "json")),
    "check": Command(("check", "pack"), 1),
    "profile": Command(("profile", "-o", "{folder}/new.json")),
    "doctor": Command(("doctor",)),
    "lint live": Command(("lint", "live"), 1),
    "lint a package": Command(("lint", "pack"), 1),
    "permute --engine torch": Command(("permute", "{folder}/a.yaml", "--engine", "torch")),
    "permute --engine torch --jobs": Command(
        ("permute", "{folder}/a.yaml", "{folder}/b.yaml", "--engine", "torch", "--jobs", "2")
    ),
    "permute --conform": Command(("permute", "{folder}/a.yaml", "--engine", "torch", "--conform")),
    "dump --engine torch": Command(("dump", "aten::relu", "--engine", "torch")),
    "explain a package": Command(("explain", "pack::op", "--arg", "cpu", "--package", "pack")),
    "explain --engine torch": Command(("explain", "aten::relu", "--arg", "cpu", "--engine", "torch")),
    "coverage of a package": Command(("coverage", "pack", "--key", "CPU")),
    "diff live": Command(("diff", "torch-2.13", "live")),
    "diff with a package": Command(("diff", "live", "pack", "--exit-code"), 1),
    "certify a package": Command(("certify", "pack")),
    "trace --engine torch": Command(("trace", "--engine", "torch", "{folder}/torch_program.py")),
    "init a package": Command(("init", "pack", "--ci", "github")),
}
"""Those that do."""

_IN_EACH: Final = ("10 open files", "16 open files", "little memory")
_EVERY: Final = 5


def live_cells() -> list[tuple[str, str]]:
    """A share of the commands with PyTorch under a limit: each of them starts it, which takes seconds.

    Each command meets the limits on files and memory, which act where PyTorch is loaded and where processes are
    started, and every fifth of the rest, each time others. The rest acts on what all commands have in common.
    `python -m tests.limits [COMMAND]...` runs every cell.
    """
    rest = sorted(LIMITS.keys() - set(_IN_EACH), key=lambda limit: (LIMITS[limit].harmless, limit))
    return [
        (command, limit)
        for row, command in enumerate(LIVE)
        for limit in (*_IN_EACH, *(each for column, each in enumerate(rest) if (row + column) % _EVERY == 0))
    ]


def prepare(folder: Path) -> None:
    """Write the files that the commands read."""
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(many(4))
    (folder / "violated.yaml").write_text(
        "claim: Two kernels at one key.\nregistrations:\n"
        "  - {impl: foo, dispatch: CPU, debug: one}\n  - {impl: foo, dispatch: CPU, debug: two}\n"
    )
    (folder / "defined.yaml").write_text(
        "claim: An operator with a kernel.\nregistrations:\n"
        "  - {def: foo(Tensor x) -> Tensor}\n  - {impl: foo, dispatch: CPU, debug: one}\n"
    )
    for name, text in (
        ("native.yaml", _NATIVE),
        ("program.py", _PROGRAM),
        ("torch_program.py", _TORCH_PROGRAM),
        ("pack.py", _PACKAGE),
        ("pyproject.toml", _PROJECT),
        ("record.yaml", _RECORD),
    ):
        (folder / name).write_text(text)


def finding(command: str, limit: str, folder: Path) -> str | None:
    """What is wrong with how a command ends under a limit; None for nothing."""
    given_arguments, code = (COMMANDS | LIVE)[command]
    arguments = [each.format(folder=folder) for each in given_arguments]
    shell, environment, ends_early, harmless = LIMITS[limit]
    for path in folder.glob("new*"):
        if path.is_file():
            path.unlink()
    given = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS", "LINES")}
    done = subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, "-m", "dispatchlab", *arguments],
        cwd=folder,
        env=given | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1", **dict(environment)},
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
    if harmless and done.returncode != code:
        return f"exit code {done.returncode} and not {code}: {errors[-300:]!r}"
    if "Traceback" in errors or "Exception ignored" in errors or "Fatal" in errors:
        return f"exit code {done.returncode} and a traceback: {errors[-500:]!r}"
    can_say = "stderr" not in limit and "streams" not in limit and "both" not in limit
    if can_say and done.returncode in (2, 74) and not (errors.strip() or done.stdout.strip()):
        return f"exit code {done.returncode} and not a word"
    return None


def _main() -> int:
    """Run every command under every limit; the arguments are the names of commands, and all without."""
    named = sys.argv[1:] or [*COMMANDS, *LIVE]
    findings = cells = 0
    for command in named:
        used = sum(os.times()[2:4])
        for limit in LIMITS:
            with TemporaryDirectory() as folder:
                prepare(Path(folder))
                found = finding(command, limit, Path(folder))
            cells += 1
            if found is not None:
                findings += 1
                print(f"{command} | {limit} | {found}", flush=True)  # noqa: T201
        print(f"{command}: {sum(os.times()[2:4]) - used:.0f} s of the processor", flush=True)  # noqa: T201
    print(f"{cells} cells, {findings} findings")  # noqa: T201
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(_main())
