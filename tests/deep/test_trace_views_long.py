"""The long tests of tests/test_trace_views.py, which the quick tier leaves out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.call.trace import calls_in
from dispatchlab.cli import main
from dispatchlab.questions.trace.summary import only
from tests.test_trace_views import recorded


@pytest.mark.parametrize(
    ("operators", "keys", "left"),
    [
        ((), (), 4),
        (("aten::sin",), (), 2),
        (("sin",), (), 2),
        (("mul.*",), ("CPU",), 1),
        (("mul",), ("AutogradCPU",), 1),
        (("test::*",), (), 0),
        ((), ("Meta",), 0),
    ],
)
def test_only_the_calls_that_are_asked_for_are_left(
    operators: tuple[str, ...], keys: tuple[str, ...], left: int
) -> None:
    threads = only(recorded(), operators=operators, keys=keys)
    assert sum(1 for thread in threads for _ in calls_in(thread.steps)) == left


def test_a_program_that_gets_torch_from_another_module_is_told_of_the_other_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    program = tmp_path / "p.py"
    program.write_text("import sys, types\nsys.modules['torch'] = types.ModuleType('torch')\n")
    result = CliRunner().invoke(main, ["trace", str(program)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"note: {program} called no operator of the lab: trace PyTorch with --engine torch\n"
    monkeypatch.delitem(sys.modules, "torch")
    program.write_text("")
    result = CliRunner().invoke(main, ["trace", str(program)])
    assert (result.exit_code, result.stderr) == (0, f"note: {program} called no operator\n")
