"""Programs on a backend with random parts of the kernels that they need: each runs, or fails, as is predicted."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.model.program_run import AUTOCAST
from tests import effort
from tests.command_line import run
from tests.live.npu_backend import BASE, Runs, difference, same_numbers
from tests.live.npu_programs import BY_HAND, generated, source

WHOLE = effort.percent == 100
"""Whether all programs are run, all removals, and three times as many operators."""

_SAMPLES = "tests.live.operator_samples"

RANDOM = ("dropout", "random")
"""Programs whose numbers are random, and are others on the CPU."""


def agree(runs: Runs, name: str, body: str) -> Counter[str]:
    """Run a program with all its kernels, and with a part of them, with or without a fallback.

    Returns:
        how often it ran, how often it stopped, and with what.
    """
    choose = random.Random(name)
    program = source(body)
    needed = {operator for operator, _ in runs.predicted(program, ()).calls}
    ran = runs.on_device(program, needed)
    exact = "train(" not in body and "backward" not in body
    predicted = runs.predicted(program, needed)
    assert not (differs := difference(ran, predicted, exact=exact)), (differs, name)
    if not predicted.error and name not in RANDOM and "autocast" not in body:  # which is another one on the CPU
        assert same_numbers(ran.output, runs.on_cpu(source(body, "cpu"))), name
    fallback = choose.random() < 0.5
    if fallback:
        base = {each if each == AUTOCAST else f"aten::{each}" for each in BASE}
        kernels = {each for each in sorted(needed | base) if choose.random() < (0.97 if each in base else 0.5)}
    else:
        kernels = {each for each in sorted(needed) if choose.random() < 0.95}
    predicted = runs.predicted(program, kernels, fallback=fallback)
    ran = runs.on_device(program, kernels, fallback=fallback)
    differs = difference(ran, predicted, exact=exact)
    assert not differs, (differs, name, sorted(kernels), fallback)
    return Counter([f"{'runs' if ran.code == 0 else 'stops'} {'with' if fallback else 'without'} a fallback"])


def test_programs_do_as_predicted(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    with Runs(tmp_path) as runs:
        for name in BY_HAND if WHOLE else [*BY_HAND][1::3]:  # these have a program of each kind
            seen += agree(runs, name, BY_HAND[name])
        for seed in range(250 if WHOLE else 18):
            seen += agree(runs, str(seed), generated(seed))
    assert min(seen.values()) > 2, seen
    assert len(seen) == 4, seen


_EVERY = 8 if WHOLE else 24
"""One operator in so many is run: all of them took a quarter of an hour, and did as predicted."""


def test_operators_do_on_the_stand_in_what_they_do_on_the_device(tmp_path: Path) -> None:
    samples: Counter[str] = Counter()
    with Runs(tmp_path, _SAMPLES) as runs:
        listed = runs.on_cpu(f"from {_SAMPLES} import OPERATORS\nprint(*OPERATORS, sep='\\n')").splitlines()
        assert len(listed) > 600
        for name in sorted(listed)[::_EVERY]:
            program = f"from {_SAMPLES} import compare\nprint(*compare({name!r}, 'npu'), sep='\\n')\n"
            needed = {operator for operator, _ in runs.predicted(program, ()).calls}
            predicted = runs.predicted(program, needed)
            if predicted.unserved:
                assert predicted.unserved == "aten::_to_sparse"  # no tensor of the device is sparse
                continue
            assert not (differs := difference(runs.on_device(program, needed), predicted, exact=False)), (differs, name)
            assert "other" not in predicted.output, (name, predicted.output)
            samples.update(predicted.output.splitlines())
    assert samples["same"] > 1200 // _EVERY, samples
    assert samples["same"] > 0.9 * samples.total(), samples


TEN = (
    *("indexing", "classifier", "convolution", "attention", "embedding_bag", "adam", "scaler", "checkpoint", "linalg"),
    "layer_norm",
)


def stops_without(runs: Runs, name: str, most: int) -> int:
    """Run a program without one of the kernels that it needs, for some of them.

    Returns:
        for how many.
    """
    program = source(BY_HAND[name])
    needed = sorted({operator for operator, _ in runs.predicted(program, ()).calls})
    chosen = random.Random(name).sample(needed, min(most, len(needed)))
    for left_out in chosen:
        ran = runs.on_device(program, {each for each in needed if each != left_out})
        assert ran.code == 1, (name, left_out)
        assert f"'{left_out}'" in ran.error or left_out.removeprefix("aten::") in ran.error, (name, left_out, ran.error)
    return len(chosen)


def test_without_one_of_the_listed_kernels_a_program_stops_there(tmp_path: Path) -> None:
    with Runs(tmp_path) as runs:
        most = 12 if WHOLE else 2
        assert sum(stops_without(runs, name, most) for name in TEN) >= (100 if WHOLE else 20)


_DECOMPOSED = """\
from torch._decomp import decomposition_table
library = torch.library.Library("aten", "IMPL")
for name in {names}:
    base, _, overload = name.removeprefix("aten::").partition(".")
    operator = getattr(getattr(torch.ops.aten, base), overload or "default")
    library.impl(operator, decomposition_table[operator], "PrivateUse1")
"""


def test_decompositions_save_the_kernels_that_are_named(tmp_path: Path) -> None:
    program, saved = tmp_path / "saved.py", 0
    asked = ("coverage", "--key", "PrivateUse1", "--program", str(program), "--device", "npu", "--format", "json")
    with Runs(tmp_path) as runs:
        for name in ("adam", "layer_norm"):
            program.write_text(source(BY_HAND[name]), encoding="utf-8")
            found = json.loads(run(*asked).stdout)
            calls = {one["operator"]: one["calls"] for one in found["kernels"]}
            assert calls == Counter(operator for operator, _ in runs.predicted(source(BY_HAND[name]), ()).calls)
            kernels = {*calls}
            assert kernels > {*found["saved"]}
            body = f"{_DECOMPOSED.format(names=found['saved'])}{BY_HAND[name]}"
            ran = runs.on_device(source(body), kernels - {*found["saved"]})
            assert (ran.code, {operator for operator, _ in ran.calls} & {*found["saved"]}) == (0, set()), ran.error
            assert same_numbers(ran.output, runs.on_cpu(source(BY_HAND[name], "cpu")))
            saved += len(found["saved"])
    assert saved > 5
