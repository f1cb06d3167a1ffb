"""Functions that a scenario names are looked up in a process of its own, which their modules may end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dispatchlab.scenario import ScenarioError, parse_scenario
from dispatchlab.scenario.named_functions import NamedFunction, NamedFunctions
from tests.command_line import run

TEXT = "claim: A.\nregistrations:\n- def: foo(Tensor x) -> Tensor\n- {impl: foo, dispatch: CPU, kernel: 'MODULE:f'}\n"
ENDS = {
    "os._exit(0)": "ended its process with exit code 0",
    "os._exit(3)": "ended its process with exit code 3",
    "os.kill(os.getpid(), 9)": "ended its process by SIGKILL",
    "os.execv('/bin/true', ['true'])": "ended its process with exit code 0",
    "raise SystemExit(0)": "failed with SystemExit: 0",
    "raise ValueError('no\\nway')": "failed with ValueError: no way",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="signals and exec are of POSIX")
@pytest.mark.parametrize("statement", ENDS)
def test_what_a_module_does_to_its_process_is_an_error_of_the_file(folder: Path, statement: str) -> None:
    (folder / "ends_here.py").write_text(f"import os\n{statement}\ndef f(x): ...\n")
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(TEXT.replace("MODULE", "ends_here"), file="a.yaml", allow_import=True)
    what_to_do = "run `python -c 'import ends_here'` to see what it does"
    assert str(raised.value) == f"a.yaml:4:38: importing ends_here {ENDS[statement]}; {what_to_do}"
    assert "ends_here" not in sys.modules


def test_a_module_that_ends_the_process_ends_no_dump_with_success(folder: Path) -> None:
    (folder / "ends_there.py").write_text("import os\nos._exit(0)\n")
    (folder / "a.yaml").write_text(TEXT.replace("MODULE", "ends_there"))
    result = run("dump", "test::foo", "--from", str(folder / "a.yaml"), "--allow-import")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "importing ends_there ended its process with exit code 0" in result.stderr


def test_functions_are_looked_up_after_a_module_that_ended_the_process(folder: Path) -> None:
    (folder / "ended.py").write_text("import os\nos._exit(1)\n")
    (folder / "plain.py").write_text("class Tensor: ...\ndef f(x: Tensor) -> Tensor: ...\nclass C:\n    n = 1\n")
    named = NamedFunctions()
    try:
        assert named.find("plain:f") == NamedFunction(schema="(Tensor _0) -> Tensor _0")
        assert (
            named.find("ended:f").wrong
            == "importing ended ended its process with exit code 1; run `python -c 'import ended'` to see what it does"
        )
        assert named.find("plain:C.n").wrong == "expected a function but plain:C.n is of type int"
        assert named.find("plain:g") == NamedFunction("plain has no g", "", 6)
    finally:
        named.close()
