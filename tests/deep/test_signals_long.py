"""Random moments of every long command; `python -m tests.signals` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.effort import share
from tests.signals.run import CLUSTER, COMMANDS, run

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc, which is not here"
)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_ended_at_a_random_moment_leaves_nothing(name: str, tmp_path: Path) -> None:
    if CLUSTER in COMMANDS[name].arguments:
        pytest.importorskip("distributed", reason="Dask is not installed: pip install 'dispatchlab[cluster]'")
    if COMMANDS[name].needs_torch:
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
    result = run(name, 1, range(share(4)), tmp_path, within_s=60.0)  # generous: the machine of a test may be busy
    assert result.findings == []
    assert result.outcomes.total() == share(4)
