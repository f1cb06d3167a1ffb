"""Programs on the device that stands in for a backend end as on the CPU, and the kernels that they need are listed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.questions.coverage.program_coverage import NeededKernel, ProgramCoverage, program_coverage_view
from dispatchlab.views.blocks import Line
from tests.live.npu_programs import BY_HAND, source

RUN = """
import json, os, sys
from dispatchlab.live.introspection.stand_in_device import run_on_stand_in
found = run_on_stand_in(sys.argv[1], "npu", sys.argv[2:], False)
print(json.dumps([found.error, found.unserved, [[*key, number] for key, number in found.calls.items()]]), flush=True)
os._exit(0)
"""
"""Ends as the worker does: PyTorch's thread for backward on a device can abort a process that takes Python down."""
NOT_HERE = {"autocast", "scaler", "autocast_training", "save_and_load", "generator", "lstm", "gru", "default_device"}
NOT_HERE |= {"sparse_gradient", "sparse"}
"""Programs that need what a stand-in does not have: autocast, storages and generators of the device, cells, sparse."""
PROGRAMS = [name for name in BY_HAND if name not in NOT_HERE]


def on_device(program: str, folder: Path, *kernels: str) -> tuple[list[str], str, str, dict[str, str]]:
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, str(file), *kernels], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    error, unserved, calls = json.loads(last)
    return printed, error, unserved, {operator: served for operator, served, _ in calls}


@pytest.mark.parametrize("name", PROGRAMS[::5])
def test_a_program_prints_what_it_prints_on_the_cpu(name: str, tmp_path: Path) -> None:
    printed, error, unserved, calls = on_device(source(BY_HAND[name]), tmp_path)
    assert (error, unserved) == ("", "")
    assert calls
    assert set(calls.values()) == {"missing"}
    cpu = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source(BY_HAND[name], "cpu")], capture_output=True, text=True, check=True
    )
    assert printed == cpu.stdout.splitlines()


def test_kernels_of_the_backend_are_its_own(tmp_path: Path) -> None:
    calls = on_device(source(BY_HAND["add"]), tmp_path, "aten::empty.memory_format", "aten::add.out")[3]
    assert {name for name, served in calls.items() if served == "own"} == {"aten::empty.memory_format", "aten::add.out"}
    assert "missing" in calls.values()


def test_a_program_without_a_call_on_the_device_fails(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\nprint(torch.ones(2) + 1)\n")
    command = [sys.executable, "-m", "dispatchlab", "coverage", "torch-2.13-cpu", "--device", "npu"]
    done = subprocess.run([*command, "--program", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "no call reaches the device; have it name npu, and leave out its import of the backend" in done.stdout


def test_the_headline_counts_the_operators_that_the_fallback_serves() -> None:
    kernels = (
        NeededKernel(name, "", 1, by, is_core=False)
        for name, by in (("a::b", "own"), ("a::c", "fallback"), ("a::d", "fallback"))
    )
    found = ProgramCoverage("npu.yaml", "npu", has_fallback=True, programs=(), kernels=tuple(kernels))
    document = program_coverage_view(found).document
    assert document is not None
    headline, *_ = document(found).blocks
    text = "1 kernel is needed: 0 to be written, 1 there; the fallback serves 2 more operators"
    assert headline == Line(text, "strong")


def test_the_command_lists_the_kernels_that_a_program_needs(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n(torch.ones(2, device='npu') + 1).relu()\n", encoding="utf-8")
    command = [sys.executable, "-m", "dispatchlab", "coverage", "torch-2.13-cpu", "--key", "PrivateUse1"]
    command += ["--device", "npu", "--program", str(file), "--format"]
    done = subprocess.run([*command, "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {one["operator"]: one["served_by"] for one in found["kernels"]}["aten::relu"] == "missing"
    assert found["programs"][0]["stops_at"]
    text = subprocess.run([*command, "text"], capture_output=True, text=True, check=True).stdout
    assert "aten::relu" in text
    assert "are needed: " in text
