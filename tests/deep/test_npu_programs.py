"""Programs on a backend with random parts of the kernels that they need: each runs, or fails, as is predicted."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests.live.npu_backend import BASE, Runs, difference, same_numbers
from tests.live.npu_programs import BY_HAND, generated, source

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
    assert difference(ran, runs.predicted(program, needed)) == "", name
    if name not in RANDOM:
        assert same_numbers(ran.output, runs.on_cpu(source(body, "cpu"))), name
    fallback = choose.random() < 0.5
    if fallback:
        base = {f"aten::{each}" for each in BASE}
        kernels = {each for each in sorted(needed | base) if choose.random() < (0.97 if each in base else 0.5)}
    else:
        kernels = {each for each in sorted(needed) if choose.random() < 0.95}
    predicted = runs.predicted(program, kernels, fallback=fallback)
    ran = runs.on_device(program, kernels, fallback=fallback)
    assert difference(ran, predicted) == "", (name, sorted(kernels), fallback)
    return Counter([f"{'runs' if ran.code == 0 else 'stops'} {'with' if fallback else 'without'} a fallback"])


def test_programs_do_as_predicted(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    with Runs(tmp_path) as runs:
        for name, body in BY_HAND.items():
            seen += agree(runs, name, body)
        for seed in range(40):
            seen += agree(runs, str(seed), generated(seed))
    assert min(seen.values()) > 5, seen
    assert len(seen) == 4, seen
