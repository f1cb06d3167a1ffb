"""What the README and the guides show of files and outputs is so. `EXPECTTEST_ACCEPT=1` rewrites what is shown."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- (file|output|part of the output): (.*?) -->\n```\w*[^\n]*\n)(.*?)(```\n)", re.DOTALL)
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (README, *sorted((ROOT / "docs").rglob("*.md")))
    if _BLOCK.search(path.read_text(encoding="utf-8"))
]


@cache
def _output(command: str) -> str:
    output = CliRunner().invoke(main, command.split()).output
    return re.sub(r"^elapsed: .*\n", "", output, flags=re.MULTILINE)


def _shown(kind: str, what: str, shown: str) -> str:
    """What a block has to hold: a file, an output, or those lines of an output that are there, in their order."""
    match kind:
        case "file":
            return (ROOT / what).read_text(encoding="utf-8")
        case "output":
            return _output(what)
        case _:
            rest = iter(_output(what).splitlines(keepends=True))
            return "".join(line for line in shown.splitlines(keepends=True) if line in rest)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_happens(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    with contextlib.chdir(ROOT):
        now = _BLOCK.sub(lambda match: match[1] + _shown(match[2], match[3], match[4]) + match[5], text)
    if os.environ.get("EXPECTTEST_ACCEPT"):
        (ROOT / page).write_text(now, encoding="utf-8")
        text = now
    assert text == now
    assert all(match[4].strip() for match in _BLOCK.finditer(text))


def test_the_pages_that_show_files_and_outputs_are_these() -> None:
    assert PAGES == ["README.md", "docs/concepts.md"]


def test_the_readme_convinces_in_half_a_minute() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 70
    assert text.split("# dispatchlab\n\n")[1].startswith("PyTorch")
    assert text.count("](docs/pictures/") == 1
    first, _ = text.split("\n## ", 1)
    assert all(f"\ndispatchlab {command}" in first for command in ("check", "why", "explain", "demo", "diff"))
    assert all(f"\ndispatchlab {command}" in text for command in ("init", "doctor"))
    assert "order-dependent (model: torch-2.13)" in text
    assert "<!-- the test command -->\n```\n" in text


def test_the_readme_the_package_and_the_help_begin_with_one_sentence() -> None:
    tagline = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["description"]
    assert tagline.startswith("PyTorch")
    assert README.read_text(encoding="utf-8").startswith(f"# dispatchlab\n\n{tagline}\n")
    shown = CliRunner().invoke(main, ["--help"]).stdout.partition("\n\n")[2].partition("\n\n")[0]
    assert " ".join(shown.split()) == tagline


def test_two_lines_of_the_readme_decide_a_result() -> None:
    pytest.importorskip("torch")
    program = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    lines = program.splitlines()
    first, second = (at for at, line in enumerate(lines) if ".impl(" in line)
    other = [*lines]
    other[first], other[second] = lines[second], lines[first]
    outputs = [
        subprocess.run([sys.executable, "-c", "\n".join(order)], capture_output=True, text=True, check=True).stdout
        for order in (lines, other)
    ]
    assert outputs == ["tensor(2.)\n", "tensor(3.)\n"]
