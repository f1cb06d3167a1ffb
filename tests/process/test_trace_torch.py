"""`dispatchlab trace` of PyTorch programs as a process: what is printed where, exit codes, Ctrl-C, no PyTorch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples" / "traced"


def command(*arguments: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "dispatchlab", "trace", *arguments]


def trace(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=120)


PROGRAM = """
import os, subprocess, sys, torch
print("from Python", sys.argv[1:])
print("ours", [name for name in torch._C._dispatch_get_all_op_names() if "dlab" in name or "dispatchlab" in name])
os.write(1, b"from C\\n")
subprocess.run([sys.executable, "-c", "print('from a child')"])
if os.fork() == 0:
    torch.ones(3)
else:
    os.wait()
    torch.ones(2, requires_grad=True).sin()
    sys.exit(int(sys.argv[1]))
"""


def test_what_the_program_prints_is_on_standard_error_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = trace("--format", "json", "--operator", "sin", str(program), "5", "--more")
    assert done.returncode == 5, done.stderr
    found = json.loads(done.stdout)
    (call,) = found["threads"][0]["steps"]
    assert (call["operator"], call["key"], call["kernel"]["source"]) == ("aten::sin", "AutogradCPU", "Autograd")
    assert [(inside["kind"], inside["key"]) for inside in call["steps"]] == [("[redispatch]", "CPU")]
    assert call["began_ns"] <= call["steps"][0]["began_ns"] <= call["steps"][0]["ended_ns"] <= call["ended_ns"]
    assert {"from Python ['5', '--more']", "ours []", "from C", "from a child"} <= set(done.stderr.splitlines())


DYING = """
import ctypes, os, sys, torch
library = torch.library.Library("dying", "DEF")
library.define("now(Tensor x) -> Tensor")

def now(x):
    y = torch.relu(x)
    print("still here", flush=True)
    if sys.argv[1] == "abort":
        os.abort()
    if sys.argv[1] == "fault":
        ctypes.string_at(0)
    if sys.argv[1] == "child" and os.fork() == 0:
        os.abort()
    return y

library.impl("now", now, "CPU")
x = torch.ones(3)
if sys.argv[1] == "outside":
    os.abort()
if sys.argv[1] == "kernel":  # of C++, in several threads
    torch.frombuffer((ctypes.c_float * 4_000_000).from_address(4096), dtype=torch.float32) + 1
torch.ops.dying.now(x)
"""


@pytest.mark.parametrize(
    ("how", "code", "note", "last"),
    [
        ("abort", signal.SIGABRT, "SIGABRT ended the process in a call of dying::now at CPU", "aten::clamp_min"),
        ("fault", signal.SIGSEGV, "SIGSEGV ended the process in a call of dying::now at CPU", "aten::clamp_min"),
        (
            "kernel",
            signal.SIGSEGV,
            "SIGSEGV ended the process in a call of aten::add.Tensor at CPU",
            "aten::copy_",
        ),
        ("outside", signal.SIGABRT, "SIGABRT ended the process after a call of aten::ones", "aten::fill_.Scalar"),
        ("child", 0, "", "aten::clamp_min"),
    ],
)
def test_a_program_whose_process_dies_shows_the_calls_until_then(
    tmp_path: Path, how: str, code: int, note: str, last: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(DYING)
    done = trace("--format", "json", str(program), how)
    assert done.returncode == -code, done.stderr
    found = json.loads(done.stdout)
    assert found["notes"] == ([f"{note}, so the trace ends there"] if note else [])
    assert (f"note: {note}, so the trace ends there\n" in done.stderr) is bool(note)
    call = found["threads"][0]["steps"][-1]
    while call["steps"]:
        call = call["steps"][-1]
    assert call["operator"] == last
    assert ("still here" in done.stderr) is (how in ("abort", "fault", "child"))


def test_a_program_that_raises_shows_its_trace_and_what_it_raised(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)\n")
    done = trace("--sets", str(program))
    assert done.returncode == 1
    assert "raised: RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)\n" in done.stdout
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert "mat1 and mat2 shapes cannot be multiplied" in done.stderr
    assert "dispatchlab/" not in done.stderr


def test_ctrl_c_ends_the_program_and_shows_what_there_is(tmp_path: Path) -> None:
    program, ready = tmp_path / "program.py", tmp_path / "ready"
    program.write_text(
        "import pathlib, torch\n"
        "x = torch.ones(2).sin()\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "while True:\n    x = x.cos()\n"
    )
    with subprocess.Popen(command(str(program)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 100
        while not ready.exists():
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(running.pid, signal.SIGINT)
        out, error = running.communicate(timeout=100)
    assert running.returncode == 130
    assert " [call] op=[aten::sin], key=[AutogradCPU], self=[" in out
    assert "Traceback" not in error


def test_without_pytorch_there_is_a_sentence(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch")
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command(str(program)), capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_summary_of_an_example() -> None:
    done = trace("--summary", str(EXAMPLES / "vmap_over_grad.py"))
    assert done.returncode == 0, done.stderr
    assert "through kernels for all backends (CompositeExplicitAutograd): " in done.stdout
