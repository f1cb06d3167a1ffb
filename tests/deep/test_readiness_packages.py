"""Every cell of readiness for operators of real packages, beside runs of what it claims; 30 of them drawn at random.

All 55 operators are checked with `--whole`, and every second otherwise, where torchao, optimum-quanto and torchvision
are installed; else those that are there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import effort
from tests.deep.readiness_arguments import ARGUMENTS, MODULES, drawn

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]

BROKEN_FAKE = {"torchao::to_sparse_semi_structured_cutlass_sm9x_f8": ("fake", "vmap", "export", "inductor")}
"""The fake that torchao 0.18 registers raises for every input: `new_empty` is given a tensor as a size. Cells say what
is registered; what its code does is seen by a run alone, see Note [What a cell may say]."""

NO_GRADIENT = {"quanto::quantize_affine", "quanto::quantize_symmetric", "torchvision::nms"}
"""Nothing is registered for Autograd, and no result has a floating-point type: the cell says that this is a gap where
one has. Runs alone know the types of results."""


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


AT_HAND = [
    module for module, package in MODULES.items() if _installed(package) and _installed(module.partition(".")[0])
]


def _run(*arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    environment["ATEN_CPU_CAPABILITY"] = "avx2"  # PyTorch 2.13 crashes in an operator of these where AVX512 is used
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=3000,  # generous: the machine of a test may be busy
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    assert done.stdout, done.stderr[-2000:]
    return done.stdout.splitlines()[-1] if "dispatchlab" not in arguments else done.stdout


def refuted(answer: str, outcome: str, reason: str) -> bool:
    """Whether a run contradicts what a cell says."""
    match answer, outcome:
        case ("yes" | "registered", "fails" | "not needed") | ("no", "works" | "not needed"):
            return True
        case "not needed", "works":
            return "raises" in reason  # a backward that is to raise
        case "not needed", "fails":
            return "raises" not in reason
    return False


def test_the_draw_is_the_one_that_was_published() -> None:
    assert len(ARGUMENTS) == 55
    assert len(drawn()) == 30
    assert {name.partition("::")[0] for name in drawn()} == {"image", "quanto", "torchao", "torchvision"}


@pytest.mark.skipif(not AT_HAND, reason="needs torchao, optimum-quanto or torchvision")
def test_no_cell_of_any_operator_is_refuted_by_a_run() -> None:
    found = json.loads(_run("-m", "dispatchlab", "readiness", *AT_HAND, "--format", "json"))
    step = 1 if effort.percent == 100 else 2
    seen = json.loads(_run("-m", "tests.deep.readiness_without_kernels", str(step), *AT_HAND))
    tried = list(ARGUMENTS)[step - 1 :: step]
    cells = {one["operator"]: one["cells"] for one in found["operators"] if one["operator"] in tried}
    assert set(cells) == set(seen)
    counts: Counter[str] = Counter()
    wrong = []
    for name, columns in cells.items():
        for column, cell in columns.items():
            outcome, how = seen[name].get(column, ("not decided", ""))
            if outcome == "not decided":
                counts[f"{cell['answer']}, not run"] += 1
            elif refuted(cell["answer"], outcome, cell["reason"]):
                wrong.append((name, column, cell["answer"], cell["reason"], how))
            else:
                counts[cell["answer"]] += 1
    wrong = [
        one
        for one in wrong
        if one[1] not in BROKEN_FAKE.get(one[0], ()) and not (one[1] == "autograd" and one[0] in NO_GRADIENT)
    ]
    assert not wrong
    assert counts["registered"] >= 1.5 * len(cells), counts
    assert counts["no"] >= 1.5 * len(cells), counts
    assert counts["not needed"] >= len(cells) / 2, counts
