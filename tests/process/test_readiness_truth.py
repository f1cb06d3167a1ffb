"""`dispatchlab readiness` beside runs of what its cells claim, on operators of every kind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.live import forked
from tests.process.readiness_programs import PACKAGE, TRUTH

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
_NEEDS_A_DEVICE = {("ready::on_cuda", "vmap"), ("ready::on_cuda", "inductor")}
"""What is said of an operator that has a kernel for CUDA alone, and cannot be run on the CPU."""


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "readiness_package.py").write_text(PACKAGE)
    (folder / "readiness_truth.py").write_text(TRUTH)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    return forked.python(*arguments, folder=folder, environment=environment, having=forked.COMPILERS)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[bool, str]]]:
    """What runs of every operator show: operator -> column -> whether it worked, and else what was raised."""
    folder = tmp_path_factory.mktemp("truth")
    run = _run(folder, str(folder / "readiness_truth.py"), "readiness_package")
    assert run.returncode == 0, run.stderr
    found: dict[str, dict[str, tuple[bool, str]]] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_no_yes_and_no_no_is_refuted_by_a_run(tmp_path: Path, truth: dict[str, dict[str, tuple[bool, str]]]) -> None:
    done = _run(tmp_path, "-m", "dispatchlab", "readiness", "readiness_package", "--format", "json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert {one["operator"] for one in found["operators"]} == set(truth)
    wrong, decided = [], 0
    for one in found["operators"]:
        for aspect, (works, why) in truth[one["operator"]].items():
            answer = one["cells"][aspect]["answer"]
            if (one["operator"], aspect) in _NEEDS_A_DEVICE or answer not in ("yes", "registered", "no"):
                continue
            decided += 1
            if (answer != "no") is not works:
                wrong.append((one["operator"], aspect, one["cells"][aspect], why))
    assert not wrong
    assert decided >= 130, "too few cells are decided for this to show anything"


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
    assert done.stdout.startswith("readiness of readiness_package: 0 of 1 operators ready, 1 registered and not run\n")
    options = ("--operator", "ready::plain", "--fail-on")
    fake = _run(tmp_path, "-m", "dispatchlab", "readiness", "readiness_package", *options, "fake")
    assert fake.returncode == 1, fake.stderr
    assert 'torch.library.register_fake("ready::plain", ...)' in fake.stdout
    nothing = _run(tmp_path, "-m", "dispatchlab", "readiness", "readiness_package", *options, "nothing")
    assert nothing.returncode == 0, nothing.stderr
    absent = _run(tmp_path, "-m", "dispatchlab", "readiness", "no_such_package_here")
    assert absent.returncode == 2
    assert "Traceback" not in absent.stderr


def test_runs_on_inputs_decide_as_other_runs_do(tmp_path: Path, truth: dict[str, dict[str, tuple[bool, str]]]) -> None:
    options = ("readiness_package", "--inputs", "readiness_package:ARGUMENTS", "--fail-on", "nothing")
    done = _run(tmp_path, "-m", "dispatchlab", "readiness", *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    wrong, decided = [], 0
    for one in json.loads(done.stdout)["operators"]:
        for aspect, (works, why) in truth[one["operator"]].items():
            cell = one["cells"][aspect]
            if cell["by_run"] and cell["answer"] in ("yes", "no"):
                decided += 1
                if (cell["answer"] == "yes") is not works:
                    wrong.append((one["operator"], aspect, cell, why))
    assert not wrong
    assert decided >= 130, "too few cells are decided for this to show anything"


BAD = """
import os, time, torch

@torch.library.custom_op("bad::dies", mutates_args=())
def dies(x: torch.Tensor) -> torch.Tensor:
    os._exit(3)

@torch.library.custom_op("bad::hangs", mutates_args=())
def hangs(x: torch.Tensor) -> torch.Tensor:
    if os.fork():
        time.sleep(600)
    os.setsid()  # out of reach of who ends the operator
    while os.path.exists(__file__):
        time.sleep(0.1)
    os._exit(0)

@torch.library.custom_op("bad::runs", mutates_args=())
def runs(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2).clone()

def inputs():
    def fails():
        raise OSError("no file")
    make = lambda: (torch.ones(2),)
    return {"bad::dies": make, "bad::hangs": make, "bad::runs": make, "bad::fails": make}
"""


def test_an_operator_that_dies_or_hangs_leaves_the_others_their_runs(tmp_path: Path) -> None:
    (tmp_path / "bad_operators.py").write_text(BAD)
    options = ("bad_operators", "--inputs", "bad_operators:inputs", "--time-limit", "30", "--fail-on", "test_schema")
    try:
        done = _run(tmp_path, "-m", "dispatchlab", "readiness", *options, "--format", "json")
    finally:
        (tmp_path / "bad_operators.py").unlink()  # ends what was forked
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["notes"] == ["inputs are given for operators that are not judged: bad::fails"]
    cells = {one["operator"]: one["cells"] for one in found["operators"]}
    ended = "it ends the process: the process that ran PyTorch ended with exit code 3"
    assert (cells["bad::dies"]["repeat"]["answer"], cells["bad::dies"]["repeat"]["reason"]) == ("no", ended)
    for column in ("cpu", "strides", "test_schema"):
        assert cells["bad::dies"][column]["answer"] == "unknown"
        assert cells["bad::dies"][column]["reason"].endswith(f"a plain call does not come back: {ended}")
    assert cells["bad::hangs"]["repeat"]["reason"] == "no run decides it: it took longer than 30 s"
    schema = cells["bad::runs"]["test_schema"]
    assert (schema["answer"], schema["by_run"]) == ("no", True)
    assert "is not defined as mutable but was mutated" in schema["reason"]


@pytest.mark.parametrize("reference", ["no_such_module_here:INPUTS", "bad_operators:os"])
def test_inputs_that_are_none_are_one_sentence(reference: str, tmp_path: Path) -> None:
    (tmp_path / "bad_operators.py").write_text(BAD)
    done = _run(tmp_path, "-m", "dispatchlab", "readiness", "bad_operators", "--inputs", reference)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--inputs {reference}: it " in done.stderr
    assert "Traceback" not in done.stderr
