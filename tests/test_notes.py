"""Every `See Note [X]` finds a home."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dispatchlab"


def test_every_reference_to_a_note_finds_it_once() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    homes = [title for text in texts.values() for title in re.findall(r"^# Note \[([^\]]+)\]$", text, re.MULTILINE)]
    assert len(homes) == len(set(homes)) > 0
    named = {
        (path.name, " ".join(title.split()))
        for path, text in texts.items()
        for title in re.findall(r"[Ss]ee\s+(?:#\s+)?Note\s+\[([^\]]+)\]", text)
    }
    assert len(named) > 0
    assert [reference for reference in sorted(named) if reference[1] not in homes] == []
