"""The live engine where PyTorch is not imported, or not installed at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dispatchlab.errors import ErrorKind
from dispatchlab.live.bridge.error_parser import refusal
from dispatchlab.live.bridge.torch import TorchMissingError
from dispatchlab.live.worker.engine import LiveEngine

ROOT = Path(__file__).parents[2]


def test_without_torch_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.live.bridge.torch.find_spec", lambda name: None)
    with pytest.raises(TorchMissingError, match=r"pip install 'dispatchlab\[torch\]'"):
        LiveEngine()


def test_this_side_of_the_worker_imports_no_torch() -> None:
    code = (
        "import sys, dispatchlab.live.worker.engine, dispatchlab.live.program, dispatchlab.prover.lockstep; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_an_unknown_text_is_kept_whole_and_without_the_stack() -> None:
    error = refusal("something that no version has said\nException raised from f at g.cpp:1\nframe #0")
    assert (error.kind, error.message) == (ErrorKind.OTHER, "something that no version has said")


def test_the_facts_of_a_schema_mismatch_are_read() -> None:
    error = refusal(
        "Inferred operator schema for a C++ kernel function doesn't match the expected function schema.\n"
        "  operator: test::foo\n  expected schema: test::foo(Tensor x, Tensor y) -> Tensor\n    here\n"
        "  inferred schema: (Tensor _0) -> Tensor _0\n    there\n"
        "  reason: The number of arguments is different. 2 vs 1.\nException raised from f"
    )
    assert error.kind is ErrorKind.SCHEMA_MISMATCH
    assert dict(error.facts) == {
        "operator": "test::foo",
        "def_schema": "test::foo(Tensor x, Tensor y) -> Tensor",
        "def_debug": "here",
        "inferred_schema": "(Tensor _0) -> Tensor _0",
        "inferred_debug": "there",
        "reason": "The number of arguments is different. 2 vs 1.",
    }
