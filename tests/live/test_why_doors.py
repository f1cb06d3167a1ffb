"""Why a program failed, asked on the command line, of pytest, and from Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.live.packages import ROOT, dispatchlab_started
from tests.plugin_options import PLUGIN_OPTIONS

MISSING = """
import torch

lib = torch.library.Library("boxes", "DEF")
lib.define("area(Tensor x) -> Tensor")
lib.impl("area", lambda x: x.prod(), "CUDA")
"""
CALL = "torch.ops.boxes.area(torch.ones(2))\n"
CAUSE = "boxes::area has no kernel for CPU: it has kernels for CUDA ({}:6)"


def test_the_exit_code_is_the_programs_and_1_with_an_answer(tmp_path: Path) -> None:
    for text, code in ("print('fine')", 0), ("import sys; sys.exit(3)", 3), ("raise KeyError('a')", 1):
        (tmp_path / "program.py").write_text(text)
        ended = dispatchlab_started(tmp_path, "why", "program.py")
        assert ended.returncode == code, ended
    assert "KeyError" in ended.stdout
    assert ended.stderr.startswith('Traceback (most recent call last):\n  File "')
    assert "runpy" not in ended.stderr


def test_json_has_the_cause_the_fixes_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MISSING + CALL)
    ended = dispatchlab_started(tmp_path, "why", "--format", "json", "program.py")
    found = json.loads(ended.stdout)
    assert (ended.returncode, found["cause"]) == (1, CAUSE.format("program.py"))
    assert found["fixes"][0]["fix"]["text"] == 'lib.impl("area", kernel, "CPU")'
    assert found["at"]["line"] == 7


def test_a_traceback_is_answered_as_text(tmp_path: Path) -> None:
    text = "Traceback (most recent call last):\nAttributeError: '_OpNamespace' 'boxes' object has no attribute 'area'\n"
    (tmp_path / "error.txt").write_text(text)
    ended = dispatchlab_started(tmp_path, "why", "--text", "error.txt")
    assert ended.returncode == 1
    assert "boxes::area" in ended.stdout.splitlines()[0]


def test_a_recorded_pytorch_answers_about_its_own_operators(tmp_path: Path) -> None:
    text = "NotImplementedError: Could not run 'aten::_cudnn_rnn' with arguments from the 'CPU' backend.\n"
    (tmp_path / "error.txt").write_text(text)
    ended = dispatchlab_started(tmp_path, "why", "--text", "error.txt", "--from", "torch-2.9", "--format", "github")
    assert ended.returncode == 1
    assert ended.stdout.startswith("::error title=dispatchlab WHY305")
    assert "aten::_cudnn_rnn has no kernel for CPU" in ended.stdout
    unknown = dispatchlab_started(tmp_path, "why", "--text", "error.txt", "--from", "torch-9")
    assert (unknown.returncode, "did you mean torch-2.9?" in unknown.stderr) == (2, True)


def test_what_cannot_be_run_is_a_mistake_in_the_call(tmp_path: Path) -> None:
    for arguments in ["why"], ["why", "-m"], ["why", "nothing.py"], ["why", "--text", "nothing.txt"]:
        ended = dispatchlab_started(tmp_path, *arguments)
        assert (ended.returncode, ended.stdout) == (2, ""), ended
        assert "Traceback" not in ended.stderr


DTENSOR = """
import torch
from torch.distributed import init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
x = distribute_tensor(torch.ones(4, 2), init_device_mesh("cpu", (2,)), [Shard(0)])
x + torch.ones(4, 2)
"""
NO_TORCH = """
from torch import library, ones, ops

lib = library.Library("boxes", "DEF")
lib.define("area(Tensor x, Tensor y) -> Tensor")
lib.impl("area", lambda x, y: x * y, "CPU")
ops.boxes.area(ones(2), 3.0)
"""


@pytest.mark.parametrize("program", [DTENSOR, NO_TORCH])
def test_a_fix_that_was_tried_runs_as_it_is_printed(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    found = json.loads(dispatchlab_started(tmp_path, "why", "--format", "json", "program.py").stdout)
    fix = next(each["fix"]["text"] for each in found["fixes"] if each["outcome"] == "works")
    head, failing, _ = program.rpartition(program.splitlines()[-1])
    assert failing in fix or "torch.as_tensor(3.0)" in fix
    (tmp_path / "program.py").write_text(f"{head}{fix}\n")
    ended = run(tmp_path, "program.py")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_pytest_shows_a_cause_once(tmp_path: Path) -> None:
    tests = "".join(f"def test_{name}():\n    {CALL}\n" for name in ("one", "two"))
    (tmp_path / "test_boxes.py").write_text(MISSING + tests)
    ended = run(
        tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *PLUGIN_OPTIONS, "--why", "--tb=line", "test_boxes.py"
    )
    assert ended.stdout.count("cause: " + CAUSE.format("test_boxes.py")) == 1
    assert CAUSE.format("test_boxes.py") + " (see test_boxes.py::test_one)" in ended.stdout


def test_python_asks_about_an_exception(tmp_path: Path) -> None:
    asks = "\ntry:\n    " + CALL + "except Exception as error:\n    print(repr(dispatchlab.why(error)))\n"
    head = "import dispatchlab\ndispatchlab.watch_exceptions()\n"
    (tmp_path / "program.py").write_text(head + MISSING.lstrip() + asks + CALL)
    ended = run(tmp_path, "program.py")
    assert ended.returncode == 1
    assert ended.stdout == f"<Result: {CAUSE.format('program.py').replace(':6)', ':7)')}>\n"
    assert ended.stderr.rstrip().endswith("WHY306 an operator without a kernel for a backend")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
