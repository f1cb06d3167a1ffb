"""Ctrl-C prints what ended before it, and what was covered of the scenario under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.scenario_texts import many

ROOT = Path(__file__).parents[2]


def test_ctrl_c_prints_what_was_covered(tmp_path: Path) -> None:
    for name, count in (("many_4", 4), ("many_6", 6), ("z_large", 22)):
        (tmp_path / f"{name}.yaml").write_text(many(count))
    names = ("many_4.yaml", "many_6.yaml", "z_large.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", "permute", *names, "--walk", "graph", "--format", "text", "-v"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen = ""
    while seen.count("claim: ") < 2:  # the large one is under way
        seen += process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in errors) == (130, False)
    assert "z_large.yaml: incomplete (" in output
