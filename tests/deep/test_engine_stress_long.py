"""Threads, signals, forks and pairs in numbers: nothing is lost, nothing deadlocks, memory stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.effort import only_whole, share, some
from tests.engine_stress import many_interrupts, many_threads

each_semantics = pytest.mark.parametrize("semantics", some(["torch-2.13", "strict", "pr35061"]))
needs_posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork and no interval timer here")


@each_semantics
def test_sixteen_threads_on_one_library_and_one_dispatcher_lose_nothing(semantics: str) -> None:
    assert many_threads(semantics, share(200_000)) >= share(200_000)


@needs_posix
@each_semantics
def test_many_interrupts_leave_nothing_that_cannot_be_released(semantics: str) -> None:
    assert many_interrupts(semantics, share(10_000)) == share(10_000)


@needs_posix
@only_whole()
def test_two_hundred_forks_deadlock_nowhere() -> None:
    assert _in_a_process("many_forks(200)") == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_ninety_thousand_pairs_leave_memory_as_it_is() -> None:
    assert _in_a_process(f"growth_of_many_pairs({share(90_000)})") < share(4_000_000)


def _in_a_process(call: str) -> int:
    program = f"from tests.engine_stress import *\nprint({call})"
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
