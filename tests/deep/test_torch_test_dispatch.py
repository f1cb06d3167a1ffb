"""PyTorch's own `test/test_dispatch.py`, unmodified, on the lab: for wherever PyTorch is installed's source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = os.environ.get("DISPATCHLAB_PYTORCH", "")


@pytest.mark.skipif(not CHECKOUT, reason="DISPATCHLAB_PYTORCH names no checkout of PyTorch, whose tests are not ours")
@pytest.mark.parametrize("semantics", ["torch-2.13", "strict"])
def test_every_test_of_pytorch_holds_on_the_lab(semantics: str) -> None:
    tool = ROOT / "tools" / "run_torch_tests.py"
    done = subprocess.run(
        [sys.executable, tool, CHECKOUT, "--semantics", semantics],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        check=False,
    )
    *lines, total = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("holds ")] == [], done.stderr
    assert len(lines) >= 31  # 32 as of PyTorch 2.13
    assert total == f"{len(lines)} of {len(lines)} tests hold under {semantics}"
    assert done.returncode == 0
