"""The long tests of tests/test_model_installed_torch.py, which the quick tier leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import run
from tests.test_model_installed_torch import pretend


def test_reports_show_which_model_torch_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scenario = tmp_path / "one.yaml"
    scenario.write_text("claim: One def.\nregistrations:\n  - def: foo(Tensor x) -> Tensor\n")
    pretend(monkeypatch, tmp_path, "__version__ = '2.9.1'")
    for command in (
        ["permute", str(scenario), "--semantics", "torch"],
        ["dump", "foo", "--from", str(scenario), "--semantics", "torch", "--format", "json"],
        ["permute", str(scenario), "--semantics", "torch"],
    ):
        assert "torch-2.9" in run(*command).output, command
