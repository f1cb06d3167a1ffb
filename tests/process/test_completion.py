"""What the completion of a shell offers: each key press starts the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from tests.scenario_texts import OVERLOADS

ROOT = Path(__file__).parents[2]


def completed(folder: Path, *words: str) -> list[str]:
    """What bash is offered after `words`, of which the last is being typed."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_DISPATCHLAB_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("dispatchlab", *words)),
        "COMP_CWORD": str(len(words)),
    }
    script = "from dispatchlab.cli import main\nmain(prog_name='dispatchlab')"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_operators_keys_semantics_and_scenarios_are_completed(tmp_path: Path) -> None:
    (tmp_path / "overloads.yaml").write_text(OVERLOADS)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "deep.yml").write_text("")
    assert completed(tmp_path, "du") == ["dump"]
    assert completed(tmp_path, "dump", "--from", "overloads.yaml", "test::b") == [
        "test::bar.one",
        "test::baz.one",
        "test::baz.two",
    ]
    assert completed(tmp_path, "dump", "--from", "nothing.yaml", "te") == []
    assert completed(tmp_path, "dump", "foo", "--key", "AutogradP") == [
        "AutogradPrivateUse1",
        "AutogradPrivateUse2",
        "AutogradPrivateUse3",
    ]
    assert completed(tmp_path, "permute", "--semantics", "t") == ["torch-2.13"]
    assert completed(tmp_path, "permute", "o") == ["overloads.yaml"]
    assert completed(tmp_path, "dump", "foo", "--from", "more") == ["more/"]
    assert completed(tmp_path, "dump", "foo", "--from", "more/d") == ["more/deep.yml"]


def test_operators_of_registries_and_the_registries_are_completed(tmp_path: Path) -> None:
    (tmp_path / "mine.dlreg").write_bytes(b"")
    assert completed(tmp_path, "dump", "aten::add.T") == ["aten::add.Tensor"]
    assert completed(tmp_path, "explain", "--from", "torch-2.13", "aten::addmm_") == ["aten::addmm_"]
    assert len(completed(tmp_path, "certify", "--operator", "aten::")) > 3_000
    assert completed(tmp_path, "dump", "--from", "mine.dlreg", "aten::add") == []
    assert completed(tmp_path, "diff", "") == ["live", "mine.dlreg", "torch-2.13"]
    assert completed(tmp_path, "lint", "--against", "to") == ["torch-2.13"]
    assert completed(tmp_path, "coverage", "--key", "PrivateUse1") == ["PrivateUse1"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("dispatchlab du", ["dump"]),
        ("dispatchlab dump aten::add.T", ["add.Tensor"]),
        ("dispatchlab dump --from torch-2.13 aten::addmm_", ["addmm_"]),
        ("dispatchlab permute --semantics ", ["pr35061", "strict", "torch-2.13"]),
        ("dispatchlab dump aten::add.Tensor --key AutogradCP", ["AutogradCPU"]),
    ],
)
def test_bash_replaces_what_stands_after_the_last_colon(tmp_path: Path, line: str, wanted: list[str]) -> None:
    program = tmp_path / "dispatchlab"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dispatchlab "$@"\n')
    program.chmod(0o755)
    asks = (
        f"{CliRunner().invoke(main, ['completion', 'bash']).stdout}\n"
        f"COMP_WORDBREAKS=' :='; COMP_LINE='{line}'; COMP_POINT={len(line)}; COMPREPLY=()\n"
        f"_dispatchlab_completion '{program}'\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(["bash", "-c", asks], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (result.stdout.splitlines(), result.stderr) == (wanted, "")
