"""What a package imports, in a process that has imported nothing else."""

from __future__ import annotations

import subprocess
import sys


def test_scenarios_import_no_engine_and_no_torch() -> None:
    code = "import sys, dispatchlab.scenario; print(*sorted(m for m in sys.modules if 'engine' in m or m == 'torch'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
