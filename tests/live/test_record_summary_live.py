"""The summary of `dispatchlab record` says how much of a list it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.cli import main
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.pytorch.recording.record_package import PackageRecord
from dispatchlab.pytorch.worker.engine import LiveEngine


@pytest.mark.parametrize("count", [20, 23])
def test_refused_registrations_that_are_not_listed_are_counted(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = tuple(
        PythonRegistration("decompositions", f"aten::f{number}", "post_autograd", site=f"mine.py:{number}")
        for number in range(count)
    )
    record = PackageRecord("", "2.13.0", "torch-2.13", 0, (), (), 0, (), 0, 0, 0, {}, 0, (), refused=refused)
    monkeypatch.setattr(LiveEngine, "ask", lambda *_: record)
    result = CliRunner().invoke(main, ["record", "mine", "-o", str(tmp_path / "mine.yaml")])
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert (
        sum("refused, since PyTorch has one: decompositions, post_autograd for aten::f" in one for one in lines) == 20
    )
    assert any("and 3 more that were refused" in one for one in lines) is (count == 23)


def test_packages_that_register_nothing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = PackageRecord("", "2.13.0", "torch-2.13", 1, (), (), 1, (), 0, 0, 0, {}, 0, (), idle=("quiet",))
    monkeypatch.setattr(LiveEngine, "ask", lambda *_: record)
    result = CliRunner().invoke(main, ["record", "mine", "quiet", "-o", str(tmp_path / "mine.yaml")])
    assert "no module of these registers anything: quiet\n" in result.stderr
