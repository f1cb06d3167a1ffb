"""Random moments of every long command; `python -m tests.signals` runs more.

Each command gets each signal with `--whole`. Otherwise it gets one of those that are handled and one that is not, and
one alone where it starts PyTorch; which, goes by turns.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import effort
from tests.signals.run import CLUSTER, COMMANDS, SIGNALS, run

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc, which is not here"
)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_ended_at_a_random_moment_leaves_nothing(name: str, tmp_path: Path) -> None:
    if CLUSTER in COMMANDS[name].arguments:
        pytest.importorskip("distributed", reason="Dask is not installed: pip install 'dispatchlab[cluster]'")
    if COMMANDS[name].needs_torch:
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
    turn = [*COMMANDS].index(name) % len(SIGNALS)
    numbers = [turn] if COMMANDS[name].needs_torch else [turn, (turn + 2) % len(SIGNALS)]
    if effort.percent == 100:
        numbers = [*range(len(SIGNALS))]
    result = run(name, 1, numbers, tmp_path, within_s=60.0)  # generous: the machine of a test may be busy
    assert result.findings == []
    assert result.outcomes.total() == len(numbers)
