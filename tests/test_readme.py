"""What the README shows is what happens. `EXPECTTEST_ACCEPT=1` rewrites the shown files and outputs."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
from pathlib import Path

from click.testing import CliRunner

from dispatchlab.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- (file|output|printed)(?:: (.*?))? -->\n```\w*\n)(.*?)(```\n)", re.DOTALL)


def _python_block(text: str) -> str:
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found.group(1)


def _shown(kind: str, what: str, text: str) -> str:
    if kind == "file":
        return (ROOT / what).read_text(encoding="utf-8")
    if kind == "output":
        output = CliRunner().invoke(main, what.split()).output
        return re.sub(r"^elapsed: .*\n", "", output, flags=re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(_python_block(text), str(README), "exec"), {"__name__": "readme"})
    return re.sub(r"registered at .*?:(\d+)", r"registered at README.md:\1", printed.getvalue())


def test_the_readme_shows_what_happens() -> None:
    text = README.read_text(encoding="utf-8")
    blocks = 0

    def fresh(match: re.Match[str]) -> str:
        nonlocal blocks
        blocks += 1
        return match.group(1) + _shown(match.group(2), match.group(3) or "", text) + match.group(5)

    with contextlib.chdir(ROOT):
        now = _BLOCK.sub(fresh, text)
    if os.environ.get("EXPECTTEST_ACCEPT"):
        README.write_text(now, encoding="utf-8")
        text = now
    assert blocks == 3
    assert text == now


def test_the_session_in_the_readme_prints_what_it_shows() -> None:
    found = re.search(r"```pycon\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    with contextlib.chdir(ROOT):
        session = doctest.DocTestParser().get_doctest(found[1], {}, "README", str(README), 0)
        assert doctest.DocTestRunner().run(session) == (0, 4)
