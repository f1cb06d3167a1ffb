"""Runs of readiness: operators with one defect each are found, right ones are not condemned, and opcheck agrees."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import effort
from tests.live import forked
from tests.process.readiness_operators import DRIVER, OPCHECK, PLANTED, RIGHT

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


REASONS = {
    "its fake gives shape [3, 4] instead of [4]": "fake_shape",
    "its fake gives shape [3, 4] instead of [1, 3, 4]": "fake_rank",
    "its fake gives dtype torch.float32 instead of torch.float64": "fake_dtype",
    "its fake gives dtype torch.float32 instead of torch.float16": "custom_dtype",
    "its fake gives dtype torch.float64 instead of torch.float32": "by_dtype",
    "its fake gives shape [2] instead of [2, 3]": "by_rank",
    "its fake gives shape [1] instead of [3, 4]": "undeclared_optional",
    "its fake gives shape [3] instead of [4]": "fake_second",
    "its fake gives stride [4, 1] instead of [1, 3]": "fake_stride",
    "its fake gives device meta instead of cpu": "fake_device",
    "its fake gives 1 values of other kinds instead of 2": "fake_count",
    "its fake gives shape [4] instead of [6]": "fake_fixed",
    "object has no attribute 'nothing'": "fake_raises vmap_raises",
    "data-dependent expression": "fake_data reads_value reads_value2",
    "UnsupportedOperatorException": "fake_missing",
    "There was no fake impl registered": "custom_bare",
    "with symbols for the sizes, its fake gives shape [5] instead of [3]": "fake_static",
    "its fake gives shape [3, 4] instead of [0, 4]": "fake_const",
    "its fake gives shape [0, 4] instead of [1]": "empty_shape",
    "its fake gives shape [1] instead of [0, 4]": "empty_fake",
    "is not defined as mutable but was mutated": "hidden_write hidden_write_second custom_hidden",
    "is not defined to alias output but was aliasing": "alias alias_view alias_part",
    "Outputs 0 and 1 alias unexpectedly": "alias_two",
    "does not have an autograd kernel defined at an autograd key": "autograd_at_cpu",
    "its gradient is wrong": "gradient_factor gradient_sign gradient_swapped gradient_element gradient_float32 "
    "gradient_half gradient_thrice gradient_conjugate gradient_list custom_gradient",
    "needs a gradient and gets none, and the result changes with it": "gradient_none",
    "an autograd kernel was not registered": "gradient_absent",
    "returned an invalid gradient": "gradient_shape",
    "its second derivative is wrong": "second_detached second_once",
    "whose output has alias annotations": "in_place in_place_returns_list view",
    "beside a loop: shape [3, 1, 3, 4] instead of [3, 3, 4]": "vmap_shape",
    "beside a loop: shape [3, 4, 3] instead of [3, 3, 4]": "vmap_dim",
    "beside a loop: shape [4, 4, 3] instead of [3, 4, 4]": "vmap_unbatched",
    "deviations in 36 elements": "vmap_values vmap_first",
    "with tensors not contiguous: value 1 of 2": "contiguous offset",
    "with tensors not contiguous: value 2 of 2": "writes_contiguous",
    "a second call after the same seed differs from the first": "random counts",
}
"""What runs say of an operator with a defect -> those of which they do."""


def _run(folder: Path, *arguments: str, seed: int = 0) -> subprocess.CompletedProcess[str]:
    for name, text in (("planted", PLANTED), ("right", RIGHT), ("driver", DRIVER), ("beside_opcheck", OPCHECK)):
        (folder / f"readiness_{name}.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))), "RIGHT_SEED": str(seed)}
    return forked.python(*arguments, folder=folder, environment=environment, having=forked.COMPILERS)


def _cells(folder: Path, module: str, *slow: str, seed: int = 0) -> Any:
    done = _run(folder, "readiness_driver.py", module, *slow, seed=seed)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_planted_defect_is_found_in_a_column_of_its_kind(tmp_path: Path) -> None:
    found, expected = _cells(tmp_path, "readiness_planted")
    missed = {
        name: runs for name, runs in found.items() if not any(runs[column][0] == "fails" for column in expected[name])
    }
    assert not missed
    other = {
        name: runs
        for name, runs in found.items()
        if not any(
            reason in how
            for reason, names in REASONS.items()
            for column in expected[name]
            for outcome, how in (runs[column],)
            if outcome == "fails" and name.removeprefix("planted::") in names.split()
        )
    }
    assert not other, "found for another reason"
    assert len(found) >= 58, "with those of the test of operators that exit there are to be 60"
    assert len(REASONS) >= 30


def test_no_right_operator_is_condemned(tmp_path: Path) -> None:
    assert not condemned(tmp_path, seed=0)


def condemned(folder: Path, *, seed: int) -> dict[tuple[str, str], str]:
    """The cells of right operators that fail on the random inputs of a seed: those that have to be none."""
    found, excepted = _cells(folder, "readiness_right", seed=seed)
    assert len(found) >= 60
    works = sum(outcome == "works" for runs in found.values() for outcome, _ in runs.values())
    assert works >= 600, "too few runs show something"
    return {
        (name, column): how
        for name, runs in found.items()
        for column, (outcome, how) in runs.items()
        if outcome == "fails" and column not in excepted.get(name, ())
    }


def test_the_four_tests_are_those_of_opcheck(tmp_path: Path) -> None:
    step = 100 // effort.percent
    done = _run(tmp_path, "readiness_beside_opcheck.py", str(step))
    assert done.returncode == 0, done.stderr[-3000:]
    operators, compared, differ = json.loads(done.stdout.splitlines()[-1])
    assert not differ
    assert operators >= 190 // step
    assert compared["works"] >= 300 // step
    assert compared["fails"] >= 40 // step


def test_an_operator_that_exits_costs_the_cell_in_which_it_does(tmp_path: Path) -> None:
    options = ("--operator", "planted::*exits", "--inputs", "readiness_planted:INPUTS", "--format", "json")
    done = _run(
        tmp_path, "-m", "dispatchlab", "readiness", "readiness_planted", *options, "--fail-on", "repeat", "--jobs", "2"
    )
    assert done.returncode == 1, done.stderr
    cells = {one["operator"]: one["cells"] for one in json.loads(done.stdout)["operators"]}
    for name, column in (("exits", "repeat"), ("empty_exits", "empty"), ("fake_exits", "fake")):
        cell = cells[f"planted::{name}"][column]
        assert (cell["answer"], cell["by_run"]) == ("no", True)
        assert "it ends the process" in cell["reason"]
    assert cells["planted::empty_exits"]["strides"]["answer"] == "yes"
    assert cells["planted::exits"]["strides"]["answer"] == "unknown"
    assert cells["planted::exits"]["inductor"]["answer"] == "registered"
    assert "a plain call does not come back: it ends the process" in cells["planted::exits"]["inductor"]["reason"]
    assert (cells["planted::empty_exits"]["inductor"]["answer"]) == "yes"
    assert "--fail-on aot_package" in cells["planted::empty_exits"]["aot_package"]["reason"]


TRACED = """
import json
from dispatchlab.pytorch.introspection.readiness_runs import run_cell
import readiness_planted, readiness_right
cells = (
    ("planted", "fake_static", "export_dynamic"),
    ("planted", "fake_fixed", "export"),
    ("planted", "fake_dtype", "export"),
    ("right", "double", "export_dynamic"),
    ("right", "write", "export_dynamic"),
    ("right", "without_tensor", "export_dynamic"),
    ("right", "composite", "dtensor"),
    ("right", "double", "aot_package"),
    ("planted", "fake_device", "aot_package"),
    ("planted", "fake_count", "aot_package"),
)
print(json.dumps([(run.outcome, run.how) for kind, name, column in cells
    for run in [run_cell(f"readiness_{kind}:INPUTS", f"{kind}::{name}", column)]]))
"""


def test_exports_and_packages_are_called_and_compared(tmp_path: Path) -> None:
    done = _run(tmp_path, "-c", TRACED)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    shown = [(outcome, how.rpartition(": ")[2]) for outcome, how in outcomes]
    assert shown[:3] == [
        ("fails", "exported, its graph gives shape [5] instead of [3]"),
        ("fails", "exported, its graph gives shape [4] instead of [6]"),
        ("fails", "exported, its graph gives dtype torch.float32 instead of torch.float64"),
    ]
    assert [outcome for outcome, _ in outcomes[3:]] == [*["works"] * 2, "not decided", *["works"] * 2, *["fails"] * 2]
    assert "in a saved package: value 1 of 2: " in outcomes[-2][1]
    assert "Mismatch between tensors consumed and num_tensors" in outcomes[-1][1]
    assert "2 symbols for sizes" in shown[3][1]


NO_GAPS = """
import torch
from dispatchlab.pytorch.introspection.readiness_runs import run_cell
LIB = torch.library.Library("without_gaps", "DEF")
def refuse(x):
    raise ValueError
KERNELS = {"eight_bits": lambda x: x.to(torch.float8_e4m3fn), "refuses": refuse, "fake_refuses": torch.sin}
for name, kernel in KERNELS.items():
    LIB.define(f"{name}(Tensor x) -> Tensor")
    LIB.impl(name, kernel, "CPU")
    torch.library.register_fake(f"without_gaps::{name}", refuse, lib=LIB)
INPUTS = {f"without_gaps::{name}": [((torch.ones(3, 4, requires_grad=True),), {})] for name in KERNELS}
def show():
    for name, column in (("eight_bits", "autograd"), ("refuses", "fake"), ("fake_refuses", "fake")):
        print(run_cell("no_gaps:INPUTS", f"without_gaps::{name}", column).outcome)
"""


def test_a_result_of_eight_bits_needs_no_gradient_and_a_call_that_raises_no_fake(tmp_path: Path) -> None:
    (tmp_path / "no_gaps.py").write_text(NO_GAPS)
    done = _run(tmp_path, "-c", "import no_gaps; no_gaps.show()")
    assert done.stdout == "not needed\nnot decided\nfails\n", done.stderr[-3000:]


MENDED = """
import torch
from dispatchlab.pytorch.introspection.readiness_runs import run_cell
LIB = torch.library.Library("mended", "DEF")
LIB.define("sums(Tensor x) -> Tensor")
LIB.impl("sums", lambda x: x.sum(0), "CPU")
size = [5]
torch.library.register_fake("mended::sums", lambda x: x.new_empty(size), lib=LIB)
INPUTS = {"mended::sums": [((torch.ones(5, 2),), {})]}
def show():
    print(run_cell("mended:INPUTS", "mended::sums", "inductor").outcome)
    size[0] = 2
    print(run_cell("mended:INPUTS", "mended::sums", "inductor").outcome)
"""


def test_a_fake_that_is_mended_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "mended.py").write_text(MENDED)
    done = _run(tmp_path, "-c", "import mended; mended.show()")
    assert done.stdout == "fails\nworks\n", done.stderr[-3000:]
