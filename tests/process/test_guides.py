"""The commands of the guides end as they should, and print what is shown. `EXPECTTEST_ACCEPT=1` rewrites that.

- `<!-- write: scenarios/a.yaml -->` in front of a block: the reader writes this file;
- `<!-- run -->` in front of a block: the reader runs these commands, which end with 0; `<!-- run: 1 -->` with 1, and
  `<!-- run with PyTorch -->` where PyTorch is installed;
- `<!-- clone: dispatchlab -->`: the reader has a clone of this project from there on, and is in it;
- `<!-- printed by it -->` in front of a block: what these commands print. Its last line may be `...`, for more lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin_options import PLUGIN_OPTIONS

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="the commands are for bash, which is not installed")
ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"<!-- (?P<what>write|clone|run|run with PyTorch|printed by it)(?:: (?P<more>[^>]*?))? -->\n"
    r"```\w*(?: [^\n]*)?\n(?P<text>.*?)```\n",
    re.DOTALL,
)
GUIDES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "<!-- printed by it" in path.read_text("utf-8")]


class _Reader:
    """A reader who does what a page says, in a folder.

    Attributes:
        failed: commands that ended otherwise than the page says, with their standard error.
        runs: how many commands were run.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.start, self.printed = folder, folder, ""
        self.failed: list[tuple[str, int, str]] = []
        self.runs = 0
        for path in (folder, programs):
            path.mkdir()
        plugin = " ".join([*PLUGIN_OPTIONS, "-p", "no:cacheprovider"])
        for name, line in {"dispatchlab": "-m dispatchlab", "pytest": f"-m pytest {plugin}", "python": ""}.items():
            (programs / name).write_text(f'#!/usr/bin/env bash\nexec "{sys.executable}" {line} "$@"\n')
            (programs / name).chmod(0o755)
        left_out = ("EXPECTTEST_ACCEPT", "CI", "GITHUB_ACTIONS", "COLUMNS")
        self.environment = {name: value for name, value in os.environ.items() if name not in left_out} | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT),
        }

    def step(self, block: re.Match[str]) -> str:
        """Do what a block asks for, and return it as it has to be."""
        text, more = block["text"], block["more"]
        match block["what"]:
            case "clone":
                self.folder /= more
                shutil.copytree(ROOT, self.folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
            case "write":
                path = self.folder / more
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            case "printed by it":
                return block[0].replace(text, self._as_shown(text))
            case _:
                self._run(text, int(more or 0))
        return block[0]

    def _run(self, script: str, wanted: int) -> None:
        done = subprocess.run(
            [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        self.runs += 1
        if done.returncode != wanted or "Traceback" in done.stderr:
            self.failed.append((script, done.returncode, done.stderr))
        printed = re.sub(r"^elapsed: .*\n", "", done.stdout, flags=re.MULTILINE)
        printed = printed.replace(f"{self.start}/", "").replace(str(self.start), "/home/you/my_project")
        self.printed = re.sub(r" in [\d.]+s\b", " in 1.00s", printed)

    def _as_shown(self, shown: str) -> str:
        if not shown.endswith("...\n"):
            return self.printed
        return "".join(self.printed.splitlines(keepends=True)[: shown.count("\n") - 1]) + "...\n"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_the_commands_of_a_guide_do_what_it_shows(guide: Path, tmp_path: Path) -> None:
    text, reader = guide.read_text(encoding="utf-8"), _Reader(tmp_path / "work", tmp_path / "programs")
    now = _BLOCK.sub(reader.step, text)
    assert reader.failed == []
    assert reader.runs == text.count("<!-- run")
    if os.environ.get("EXPECTTEST_ACCEPT"):
        guide.write_text(now, encoding="utf-8")
        text = now
    assert text == now


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_a_guide_shows_no_command_that_is_not_run(guide: Path) -> None:
    not_run = re.findall(r"^(?!<!-- run).*\n```bash\n(.*\n)", guide.read_text(encoding="utf-8"), re.MULTILINE)
    assert [line for line in not_run if not line.startswith(("pip install ", "git clone "))] == []


def test_the_guides_are_these() -> None:
    names = ["backend_author", "ci", "dispatcher_developer", "operator_author", "student", "tutorial"]
    assert sorted(guide.stem for guide in GUIDES) == names
