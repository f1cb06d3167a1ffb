"""docs/json.md names fields that the commands print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
EXAMPLES = {
    "permute": "permute scenarios/defects/stale_nested_torch.yaml",
    "dump": "dump aten::add.Tensor",
    "explain": "explain aten::add.Tensor cpu cpu",
    "check": "check scenarios/lint/dl006_found.yaml",
    "coverage": "coverage --key PrivateUse1",
    "certify": "permute torch-2.13-cpu --operator aten::_softmax",
    "diff": "diff torch-2.12 torch-2.13",
}
ALSO = {"diff": "diff torch-2.12 torch-2.13 --for scenarios/lint/dl006_found.yaml"}
"""Calls that print further fields."""


def fields(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields in a value."""
    if isinstance(value, list):
        for each in value:
            yield from fields(each, f"{path}[]")
    if isinstance(value, dict):
        for name, each in value.items():
            inner = f"{path}.{name}".lstrip(".")
            yield inner
            yield from fields(each, inner)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_names_fields_that_are_printed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = json.loads(run(*EXAMPLES[name].split(), "--format", "json").stdout)
    assert next(iter(printed)) == "version"
    section = PAGE.partition(f"{{#{name}}}")[2].partition("\n## ")[0]
    named = {
        field for row in re.findall(r"^\| (`.*?) \| ", section, re.MULTILINE) for field in re.findall("`(.*?)`", row)
    }
    assert len(named) > 5
    more = [json.loads(run(*ALSO[name].split(), "--format", "json").stdout)] if name in ALSO else []
    assert named - {field for each in (printed, *more) for field in fields(each)} == set()


def test_a_diff_for_a_package_has_only_what_concerns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = json.loads(run(*ALSO["diff"].split(), "--format", "json").stdout)
    assert (printed["upgrade"], printed["python"]) == (None, None)
    assert printed["package"]["source"] == "scenarios/lint/dl006_found.yaml"
