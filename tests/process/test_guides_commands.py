"""The commands of guides are run by a stranger, and print what is shown. `EXPECTTEST_ACCEPT=1` rewrites that.

A stranger has a fresh environment with the wheel, a folder of their own, and nothing of this checkout on a path.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import shown_commands
from tools.terminal_pictures import PICTURES

DOCS = shown_commands.ROOT / "docs"
GUIDES = [
    "tutorial.md",
    *(f"guides/{user}.md" for user in ("backend_author", "dispatcher_developer", "operator_author", "student")),
]
"""The pages with commands and what they print."""


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a stranger, with this PyTorch and this pytest."""
    try:
        return shown_commands.stranger(tmp_path_factory.mktemp("stranger"))
    except shown_commands.NoStrangerError as error:
        pytest.skip(str(error))


@pytest.mark.skipif(shown_commands.BASH is None, reason="the commands are for bash, which is not installed")
def test_the_commands_of_the_readme_end_as_they_should(tmp_path: Path, stranger: dict[str, str]) -> None:
    text = (shown_commands.ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(dispatchlab [^#\n]*?) *(?:#.*)?$", text, re.MULTILINE)
    assert {"dispatchlab demo", "dispatchlab init", "dispatchlab doctor"} <= set(commands)
    ends = {}
    for command in commands:
        if command != "dispatchlab explore":  # which waits for keys
            result = shown_commands.bash(command, tmp_path, stranger)
            ends[command] = result.returncode, "Traceback" in result.stderr
    assert ends.pop("dispatchlab check") == (2, False)  # for a checkout, and this is an empty folder
    assert ends == dict.fromkeys(ends, (0, False))
    assert (tmp_path / "tests" / "dispatch-scenarios" / "example.yaml").exists()


@pytest.mark.skipif(shown_commands.BASH is None, reason="the commands are for bash, which is not installed")
@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_a_guide_do_what_it_shows(guide: str, tmp_path: Path, stranger: dict[str, str]) -> None:
    path, folder = DOCS / guide, tmp_path / "work"
    folder.mkdir()
    text = path.read_text(encoding="utf-8")
    pytorch = find_spec("torch") is not None and version("torch").startswith("2.13.")
    now, runs = shown_commands.follow(text, folder, stranger, pytorch=pytorch)
    assert [run for run in runs if run.code != run.wanted or "Traceback" in run.stderr] == []
    assert len(runs) == (text.count("<!-- run") if pytorch else text.count("<!-- run -->") + text.count("<!-- run: "))
    if os.environ.get("EXPECTTEST_ACCEPT"):
        path.write_text(now, encoding="utf-8")
        text = now
    assert text == now


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_shows_no_command_and_no_picture_that_is_not_run(guide: str) -> None:
    text = (DOCS / guide).read_text(encoding="utf-8")
    not_run = re.findall(r"^(?!<!-- run).*\n```bash\n(.*\n)", text, re.MULTILINE)
    assert [line for line in not_run if not line.startswith(("pip install ", "git clone "))] == []
    for picture in re.finditer(r"pictures/terminal/(\w+)\.svg\)", text):
        about = text[: picture.start()].split("\n\n")[-2]
        assert f"dispatchlab {PICTURES[picture[1]]}\n" in text or "here of" in " ".join(about.split())


def test_every_page_with_commands_and_outputs_is_followed() -> None:
    pages = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    assert sorted(
        page for page in pages if "<!-- printed by it" in (DOCS / page).read_text(encoding="utf-8")
    ) == sorted(GUIDES)
