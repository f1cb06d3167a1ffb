"""docs/json.md names every field that the commands print, and what the tool that writes it would miss is found."""

from __future__ import annotations

import contextlib
import json
import re
from importlib.util import find_spec

import pytest

from dispatchlab.cli import COMMANDS
from tests.test_docs import ROOT
from tools import json_formats


@pytest.mark.parametrize("title", json_formats.EXAMPLES)
def test_the_page_has_the_fields_that_a_command_prints(title: str) -> None:
    if title in json_formats.NEED_PYTORCH and find_spec("torch") is None:
        pytest.skip("the command imports PyTorch, and there is none")
    section, schema = json_formats.section_by_itself(title)
    assert section.count("\n| `") > 5
    again = "write it again with python tools/json_formats.py"
    assert section in json_formats.PAGE.read_text(encoding="utf-8"), again
    assert schema in json.loads(json_formats.SCHEMAS.read_text(encoding="utf-8"))[title.split()[0]]["anyOf"], again


def test_every_command_with_json_has_a_section() -> None:
    page = json_formats.PAGE.read_text(encoding="utf-8")
    help_page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = re.split(r"^## `dispatchlab ([\w-]+)`$", help_page, flags=re.MULTILINE)
    with_json = {
        name
        for name, text in zip(sections[1::2], sections[2::2], strict=True)
        if re.search(r"--format \[[^]]*json", text)
    }
    assert with_json <= set(COMMANDS)
    assert len(with_json) >= 11
    assert {name for name in with_json if f"\n## `{name}" not in page} == set()


def test_a_field_that_nothing_explains_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(json_formats.MEANINGS, "claim")
    with contextlib.chdir(ROOT), pytest.raises(ValueError, match="permute: nothing explains claim"):
        json_formats.section("permute")
