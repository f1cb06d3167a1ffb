"""The printed program shows, without this package, that two orders give two results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.live.bridge.expressible import NotExpressibleError
from dispatchlab.live.program import program_text
from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import Fallback, Registration
from tests.live.live_registrations import FOO, define, impl


def output(text: str, directory: Path) -> list[str]:
    """What the program prints, run where this package cannot be imported."""
    program = directory / "program.py"
    program.write_text(text)
    done = subprocess.run([sys.executable, "-I", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_composite_defect_gives_2_in_one_order_and_3_in_the_other(tmp_path: Path) -> None:
    scenario: list[Registration] = [
        define(),
        impl(K.CompositeImplicitAutograd, "cia"),
        impl(K.CompositeExplicitAutograd, "cea"),
    ]
    with LiveEngine() as engine:
        counterexample = engine.explore(scenario, [FOO]).counterexample
    assert counterexample is not None
    assert output(
        program_text(scenario, counterexample.expected_sequence, counterexample.actual_sequence), tmp_path
    ) == [
        "after +2 +1",
        "  a call with a tensor of ones that requires grad gives 3.0",
        "after +1 +2",
        "  a call with a tensor of ones that requires grad gives 2.0",
    ]


def test_a_stale_slot_that_no_tensor_here_reaches_is_called_by_its_key(tmp_path: Path) -> None:
    scenario = [impl(K.CompositeImplicitAutograd, "cia"), impl(K.QuantizedCPU, "quantized")]
    shown = output(program_text(scenario, (1, 0), (0, 1), keys=["AutogradOther", "AutogradHIP"]), tmp_path)
    assert shown[2] == "  the slot of AutogradOther gives RuntimeError"
    assert shown[5] == "  the slot of AutogradOther gives 2.0"
    assert len(shown) == 6


def test_what_torch_library_cannot_express_is_an_error() -> None:
    with pytest.raises(NotExpressibleError, match="only defs and impls"):
        program_text([impl(K.CPU, "cpu"), Fallback(K.CUDA)], (0, 1), (1, 0))
    with pytest.raises(NotExpressibleError, match="calls with one tensor"):
        program_text([define("test::foo(int x) -> int"), impl(K.CPU, "cpu")], (0, 1), (1, 0))
