"""How the command ends: Ctrl-C prints what was found, a reader that goes is no error, a mistake is a sentence."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.scenario_texts import many

COMMAND = [sys.executable, "-m", "dispatchlab"]


def test_ctrl_c_prints_what_was_covered_and_ends_with_130(tmp_path: Path) -> None:
    scenario = tmp_path / "many.yaml"
    scenario.write_text(many(24))
    process = subprocess.Popen(
        [*COMMAND, "permute", str(scenario), "--walk", "graph"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    process.stderr.readline()  # of progress: the walk has begun
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "many.yaml: incomplete" in out
    assert "interrupted" in out
    assert "Traceback" not in err


def test_a_reader_that_goes_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m dispatchlab dump --list --from torch-2.13 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_a_mistake_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("claim: [\n")
    for arguments in (["permute", "bad.yaml"], ["permute", "none.yaml"], ["dump", "aten::no_such"], ["explain"]):
        done = subprocess.run([*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, arguments
        assert done.stderr
        assert "Traceback" not in done.stderr


def test_an_import_of_the_command_line_takes_no_numpy_and_no_rich() -> None:
    code = "import sys; from dispatchlab.cli import main; print({'numpy', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
