"""All commands under each limit; of those that start PyTorch a share."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.limits import COMMANDS, LIMITS, LIVE, finding, live_cells, prepare

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="the limits are those of Linux and its shell"
)


@pytest.mark.parametrize(("command", "limit"), [*product(COMMANDS, LIMITS), *live_cells()])
def test_a_command_under_a_limit_ends_with_a_sentence_and_a_documented_exit_code(
    command: str, limit: str, tmp_path: Path
) -> None:
    if command in LIVE and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install 'dispatchlab[torch]'")
    prepare(tmp_path)
    assert finding(command, limit, tmp_path) is None


def test_every_limit_meets_commands_that_start_pytorch_and_each_of_these_one_that_takes_nothing_away() -> None:
    cells = live_cells()
    assert {limit for _, limit in cells} == LIMITS.keys()
    assert {command for command, limit in cells if LIMITS[limit].harmless} == LIVE.keys()
