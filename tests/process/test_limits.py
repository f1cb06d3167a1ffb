"""A share of the commands under each limit; tests/deep has all of them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.limits import COMMANDS, LIMITS, finding, prepare

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="the limits are those of Linux and its shell"
)
_SHARE = 3  # of the commands of each limit; which ones differs from limit to limit


@pytest.mark.parametrize("limit", LIMITS)
def test_commands_under_a_limit_end_with_a_sentence_and_a_documented_exit_code(limit: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    commands, first = list(COMMANDS), list(LIMITS).index(limit) * _SHARE
    for number in range(_SHARE):
        command = commands[(first + number) % len(commands)]
        assert finding(command, limit, tmp_path) is None, command
