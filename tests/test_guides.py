"""The programs in the guides run, and print what is shown. `EXPECTTEST_ACCEPT=1` rewrites what is shown."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
_STEP = re.compile(r"(```python\n(.*?)```\n\n<!-- printed -->\n```\n)(.*?)(```\n)", re.DOTALL)
GUIDES = [path for path in sorted(DOCS.glob("*.md")) if "<!-- printed -->" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_a_guide_shows_what_its_programs_print(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    names = {"__name__": guide.stem}
    steps = 0

    def fresh(match: re.Match[str]) -> str:
        nonlocal steps
        steps += 1
        line = text.count("\n", 0, match.start(2))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + match[2], str(guide), "exec"), names)
        steady = re.sub(r"registered at .*?([^/\\]*:\d+)$", r"registered at \1", printed.getvalue(), flags=re.MULTILINE)
        return match[1] + steady + match[4]

    now = _STEP.sub(fresh, text)
    if os.environ.get("EXPECTTEST_ACCEPT"):
        guide.write_text(now, encoding="utf-8")
        text = now
    assert text == now
    assert steps == text.count("```python") > 0


def test_the_session_in_a_guide_prints_what_it_shows() -> None:
    guide = DOCS / "python.md"
    found = re.search(r"```pycon\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    with contextlib.chdir(DOCS.parent):
        session = doctest.DocTestParser().get_doctest(found[1], {}, guide.stem, str(guide), 0)
        assert doctest.DocTestRunner().run(session) == (0, 4)


def test_every_guide_with_printed_output_is_run() -> None:
    assert [path.name for path in GUIDES] == ["overrides.md", "python.md"]
