"""All commands under each limit with `--whole`, and otherwise a share; of those that start PyTorch always a share."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from tests import effort
from tests.limits import COMMANDS, LIMITS, LIVE, Command, finding, live_cells, prepare

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="the limits are those of Linux and its shell"
)


PLAIN = [
    (command, limit)
    for row, command in enumerate(COMMANDS)
    for column, limit in enumerate(LIMITS)
    if (row + column) % (100 // effort.percent) == 0
]


def _with_torch() -> list[tuple[str, str]]:
    """A cell of each command, each time in another column, and of each limit."""
    cells, chosen = live_cells(), list[tuple[str, str]]()
    for _, cell in sorted(enumerate(cells), key=lambda each: (each[0] + each[0] // 6 + 1) % 6):
        known = {word for other in chosen for word in other}
        if effort.percent == 100 or not {*cell} <= known:
            chosen.append(cell)
    return chosen


WITH_TORCH = _with_torch()


@pytest.mark.parametrize(("command", "limit"), [*PLAIN, *WITH_TORCH])
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


@pytest.mark.parametrize(("cells", "commands"), [(PLAIN, COMMANDS), (WITH_TORCH, LIVE)])
def test_in_a_share_is_every_command_and_every_limit(
    cells: list[tuple[str, str]], commands: dict[str, Command]
) -> None:
    assert {command for command, _ in cells} == commands.keys()
    assert {limit for _, limit in cells} == LIMITS.keys()
