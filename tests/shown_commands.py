"""Commands that a page shows: they are run in a folder of their own, and what they print is compared.

- `<!-- write: scenarios/a.yaml -->` in front of a block: the reader writes this file;
- `<!-- run -->` in front of a block: the reader runs these commands, which end with 0; `<!-- run: 1 -->` with 1, and
  `<!-- run with PyTorch -->` where PyTorch is installed;
- `<!-- clone: dispatchlab -->` in front of a block: the reader has a clone of this project from there on, and is in it;
- `<!-- printed by it -->` in front of a block: what these commands print. Its last line may be `...`, for more lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.live import forked, forked_client
from tests.plugin_options import PLUGIN_OPTIONS

ROOT = Path(__file__).parents[1]
BASH = shutil.which("bash")
HOME = "/home/you/my_project"
"""What stands in pages for the folder that the commands run in."""
_BLOCK = re.compile(
    r"<!-- (?P<what>write|clone|run|run with PyTorch|printed by it)(?:: (?P<more>[^>]*?))? -->\n"
    r"```\w*(?: [^\n]*)?\n(?P<text>.*?)```\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Run:
    """Commands that were run.

    Args:
        script: the commands.
        wanted: the exit code that the page says.
        code: the exit code.
        stderr: what they printed to standard error.
    """

    script: str
    wanted: int
    code: int
    stderr: str


def environment(commands: Path, *modules: Path) -> dict[str, str]:
    """An environment in which the commands are this code, and the packages in some folders are installed.

    Args:
        commands: a folder that does not exist, for the commands.
        modules: the folders.
    """
    commands.mkdir()
    plugin = "" if find_spec("dispatchlab") is None else "".join(f"{option} " for option in PLUGIN_OPTIONS)
    copy = f'exec "{sys.executable}" -I "{forked_client.__file__}" "{forked.address_of()}"'
    for name, line in {
        "dispatchlab": f'{copy} -m dispatchlab "$@"',
        "pytest": f'{copy} -m pytest {plugin}-p no:cacheprovider "$@"',
        "python": f'exec "{sys.executable}" "$@"',
    }.items():
        (commands / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (commands / name).chmod(0o755)
    return {
        **{name: value for name, value in os.environ.items() if name not in ("EXPECTTEST_ACCEPT", "CI")},
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *modules])),
    }


class NoStrangerError(Exception):
    """A fresh environment cannot be made here."""


def stranger(folder: Path) -> dict[str, str]:
    """An environment with the wheel of this code, and the other packages of this environment; nothing else of it.

    Args:
        folder: an empty folder for it.

    Raises:
        NoStrangerError: the wheel or the environment cannot be made.
    """
    programs = folder / "venv" / "bin"
    python = [str(programs / "python"), "-I"]
    for command in (
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [*python, "-c", f"open(__import__('site').getsitepackages()[0] + '/outer.pth', 'w').write({_OUTER!r})"],
        [*python, "-m", "pip", "install", "-q", "--no-deps", "--ignore-installed", str(folder / "*.whl")],
    ):
        found = [str(next(folder.glob("*.whl"), "")) if "*" in part else part for part in command]
        done = subprocess.run(found, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise NoStrangerError(f"{' '.join(found[:4])} fails here: {(done.stderr or done.stdout).strip()[-300:]}")
    # The programs of the packages outside have their Python, and not this one.
    (programs / "pytest").write_text(
        f'#!/usr/bin/env bash\nexec "{programs}/python" -P -m pytest -p no:cacheprovider "$@"\n'
    )
    (programs / "pytest").chmod(0o755)
    left_out = ("EXPECTTEST_ACCEPT", "CI", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    return {
        **{name: value for name, value in os.environ.items() if name not in left_out},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


_OUTER = sysconfig.get_path("purelib") + "\n"


def bash(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script as GitHub's runner does."""
    assert BASH is not None
    return subprocess.run(
        [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def follow(text: str, folder: Path, environment: dict[str, str], *, pytorch: bool) -> tuple[str, list[Run]]:
    """Do what a page says.

    Args:
        text: the page.
        folder: where it is done.
        environment: as `environment` makes it.
        pytorch: whether PyTorch is installed.

    Returns:
        the page with what was printed, and the commands that were run.
    """
    runs: list[Run] = []
    printed: str | None = None

    def step(block: re.Match[str]) -> str:
        nonlocal folder, printed
        match block["what"]:
            case "clone":
                folder /= block["more"]
                shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
                return block[0]
            case "write":
                path = folder / block["more"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block["text"], encoding="utf-8")
                return block[0]
            case "printed by it":
                shown = block["text"] if printed is None else _as_shown(printed, block["text"])
                return block[0][: block.start("text") - block.start()] + shown + "```\n"
            case what if what == "run" or pytorch:
                result = bash(block["text"], folder, environment)
                printed = _steady(result.stdout, folder)
                runs.append(Run(block["text"], int(block["more"] or 0), result.returncode, result.stderr))
                return block[0]
            case _:
                printed = None
                return block[0]

    return _BLOCK.sub(step, text), runs


def _steady(printed: str, folder: Path) -> str:
    """What was printed without what differs from run to run."""
    printed = (
        re.sub(r"^elapsed: .*\n", "", printed, flags=re.MULTILINE).replace(f"{folder}/", "").replace(str(folder), HOME)
    )
    return re.sub(r" in [\d.]+s\b", " in 1.00s", printed)


def _as_shown(printed: str, shown: str) -> str:
    if not shown.endswith("...\n"):
        return printed
    lines = shown.count("\n") - 1
    return "".join(printed.splitlines(keepends=True)[:lines]) + "...\n"
