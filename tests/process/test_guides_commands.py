"""The commands of guides are run, and print what is shown. `EXPECTTEST_ACCEPT=1` rewrites what is shown."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import shown_commands

DOCS = shown_commands.ROOT / "docs"
GUIDES = ["tutorial.md"]
"""The pages with commands and what they print."""


@pytest.mark.skipif(shown_commands.BASH is None, reason="the commands are for bash, which is not installed")
@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_a_guide_do_what_it_shows(guide: str, tmp_path: Path) -> None:
    path, folder = DOCS / guide, tmp_path / "work"
    folder.mkdir()
    text = path.read_text(encoding="utf-8")
    environment = shown_commands.environment(tmp_path / "bin", folder)
    pytorch = find_spec("torch") is not None and version("torch").startswith("2.13.")
    now, runs = shown_commands.follow(text, folder, environment, pytorch=pytorch)
    assert [run for run in runs if run.code != run.wanted or "Traceback" in run.stderr] == []
    assert len(runs) == (text.count("<!-- run") if pytorch else text.count("<!-- run -->") + text.count("<!-- run: "))
    if os.environ.get("EXPECTTEST_ACCEPT"):
        path.write_text(now, encoding="utf-8")
        text = now
    assert text == now


def test_every_page_with_commands_and_outputs_is_followed() -> None:
    pages = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    assert sorted(
        page for page in pages if "<!-- printed by it" in (DOCS / page).read_text(encoding="utf-8")
    ) == sorted(GUIDES)
