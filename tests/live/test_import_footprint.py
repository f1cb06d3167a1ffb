"""The footprint of a package: a source that cannot be read may name any other package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.pytorch.recording.import_footprint import footprint


@pytest.mark.parametrize(
    ("source", "left", "named"),
    [
        ("x = 1", "the source", set()),
        ("x = 'one_other'", "the source", {"one_other"}),
        ("x = 1", "nothing", {"one_other", "another"}),
    ],
)
def test_a_source_that_cannot_be_read_may_name_every_package(
    source: str, left: str, named: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "package_of_a_test.py"
    file.write_text(source)
    before = set(sys.modules)
    import_module("package_of_a_test")
    if left == "nothing":
        file.unlink()
    try:
        found = footprint(
            "package_of_a_test",
            ("one_other", "another"),
            before=(),
            modules=(before, set(sys.modules)),
            changed=(),
            calls=(),
            namespaces=(),
            untouched=("", ""),
        )
    finally:
        del sys.modules["package_of_a_test"]
    assert found.packages == named
