"""Benchmarks of starting: whole processes until a command answers, beside python itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCENARIO = str(Path(__file__).parents[1] / "scenarios" / "basics" / "five_registrations.yaml")


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


class Start:
    """Whole processes."""

    number = 1
    repeat = (5, 20, 20.0)

    def time_python(self) -> None:
        """The baseline: an interpreter that does nothing."""
        _run("-c", "pass")

    def time_help(self) -> None:
        """Wanted: under 0.15 s."""
        _run("-m", "dispatchlab", "--help")

    def time_dump(self) -> None:
        """A scenario's operator; wanted: under 0.3 s."""
        _run("-m", "dispatchlab", "dump", "test::foo", "--from", SCENARIO)
