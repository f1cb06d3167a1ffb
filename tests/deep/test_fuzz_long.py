"""A larger share of the cases of `python -m tests.fuzz`, in a process that may have one gigabyte of memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import share

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("schemas", 3_000),
        ("scenarios", 1_000),
        ("registries", 3_000),
        ("replays", 2_000),
        ("checkpoints", 5_000),
        ("profiles", 200),
        ("known_failures", 3_000),
        ("captured_inputs", 5_000),
        ("settings", 2_000),
        ("baselines", 3_000),
        ("traces", 2_000),
        ("backends", 2_000),
        ("native_functions", 2_000),
        ("command_lines", 60),
    ],
)
def test_fuzzed_cases_end_as_documented(target: str, count: int) -> None:
    count = share(count)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", target, "--seed", "2", "--count", str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.match(rf"{target}: {count:,} cases: ", done.stdout)
