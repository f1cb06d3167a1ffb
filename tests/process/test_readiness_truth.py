"""`dispatchlab readiness` beside runs of what its cells claim, on operators of every kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.readiness_programs import PACKAGE, TRUTH

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
_NEEDS_A_DEVICE = {("ready::on_cuda", "vmap"), ("ready::on_cuda", "inductor")}
"""What is said of an operator that has a kernel for CUDA alone, and cannot be run on the CPU."""


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "readiness_package.py").write_text(PACKAGE)
    (folder / "readiness_truth.py").write_text(TRUTH)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env=environment,
        check=False,
    )


def test_no_yes_and_no_no_is_refuted_by_a_run(tmp_path: Path) -> None:
    done = _run(tmp_path, "-m", "dispatchlab", "readiness", "readiness_package", "--format", "json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    run = _run(tmp_path, str(tmp_path / "readiness_truth.py"), "readiness_package")
    assert run.returncode == 0, run.stderr
    truth = json.loads(run.stdout.splitlines()[-1])
    assert {one["operator"] for one in found["operators"]} == set(truth)
    wrong, decided = [], 0
    for one in found["operators"]:
        for aspect, (works, why) in truth[one["operator"]].items():
            answer = one["cells"][aspect]["answer"]
            if (one["operator"], aspect) in _NEEDS_A_DEVICE or answer not in ("yes", "no"):
                continue
            decided += 1
            if (answer == "yes") is not works:
                wrong.append((one["operator"], aspect, one["cells"][aspect], why))
    assert not wrong
    assert decided >= 140, "too few cells are decided for this to show anything"


def test_fail_on_decides_the_exit_code_and_calls_are_named(tmp_path: Path) -> None:
    done = _run(
        tmp_path,
        "-m",
        "dispatchlab",
        "readiness",
        "readiness_package",
        "--operator",
        "ready::traced",
        "--format",
        "text",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("readiness of readiness_package: 1 of 1 operators ready\n")
    options = ("--operator", "ready::plain", "--fail-on")
    fake = _run(tmp_path, "-m", "dispatchlab", "readiness", "readiness_package", *options, "fake")
    assert fake.returncode == 1, fake.stderr
    assert 'torch.library.register_fake("ready::plain", ...)' in fake.stdout
    nothing = _run(tmp_path, "-m", "dispatchlab", "readiness", "readiness_package", *options, "nothing")
    assert nothing.returncode == 0, nothing.stderr
    absent = _run(tmp_path, "-m", "dispatchlab", "readiness", "no_such_package_here")
    assert absent.returncode == 2
    assert "Traceback" not in absent.stderr
