"""All commands under each limit."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from tests.limits import COMMANDS, LIMITS, LIVE, finding, prepare

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="the limits are those of Linux and its shell"
)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("command", [*COMMANDS, *LIVE])
def test_a_command_under_a_limit_ends_with_a_sentence_and_a_documented_exit_code(
    command: str, limit: str, tmp_path: Path
) -> None:
    if command in LIVE and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install 'dispatchlab[torch]'")
    prepare(tmp_path)
    assert finding(command, limit, tmp_path) is None
