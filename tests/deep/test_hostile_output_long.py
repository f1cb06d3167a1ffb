"""The long tests of tests/test_hostile_output.py, which the quick tier leaves out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.command_line import run
from tests.test_hostile_output import _LOUD


def test_what_an_imported_module_prints_is_no_part_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud_kernels.py").write_text(_LOUD, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "a.yaml"
    path.write_text("claim: A.\nregistrations:\n- {impl: foo, dispatch: CPU, kernel: 'loud_kernels:kernel'}\n")
    try:
        result = run("permute", str(path), "--allow-import", "--format", "json")
    finally:
        sys.modules.pop("loud_kernels", None)
    printed = capfd.readouterr()
    assert result.exit_code == 0, result.output
    assert printed.out == ""
    assert json.loads(result.stdout)["verdict"] == "order-independent"
    for text in ("printed \\x1b]0;title\\x07", "to stderr \\u202e", "lines \\x9b31m", "warned \\x1b[31m"):
        assert text in printed.err + result.stderr  # of another process, or of this one
    assert not set("\x1b\x07\x9b\u202e") & set(printed.out + printed.err + result.output)
