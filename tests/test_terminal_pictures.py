"""The pictures of terminals in the docs show what the commands show now."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tools.terminal_pictures import COLUMNS, FOLDER, FOLDERS, NEED_PYTORCH, PICTURES, picture, shown, text_of

ROOT = Path(__file__).parents[1]


def _is_shown_here(name: str) -> bool:
    """Whether the command can run in this tier, and shows what it did: the version of PyTorch is in the picture."""
    if name not in NEED_PYTORCH:
        return True
    try:
        return version("torch").startswith("2.13.")
    except PackageNotFoundError:
        return False


@pytest.mark.parametrize("name", [name for name in PICTURES if _is_shown_here(name)])
def test_a_picture_shows_what_its_command_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # proofs start no processes, which this tier has no time for
    line = PICTURES[name]
    text = shown(line, folder=FOLDERS.get(name, ROOT))
    assert max(map(len, text.splitlines())) > COLUMNS // 3
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    now = text_of(picture(line, text))
    assert text_of(kept) == now, "run python tools/terminal_pictures.py"
    assert len(now) > 5
    assert "".join(f"$dispatchlab{line}".split()) == now[0]
    assert kept.count("@media (prefers-color-scheme: dark)") == 1


def test_pictures_load_nothing_and_have_a_command_each() -> None:
    files = sorted(FOLDER.glob("*.svg"))
    assert sorted(file.stem for file in files) == sorted(PICTURES)
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "url(" not in text.replace("url(#terminal", "")
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
