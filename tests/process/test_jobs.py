"""Several processes print what one process prints; Ctrl-C prints what was covered."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dispatchlab.processes import WorkerDied, interruptible, processes_for, report
from tests.scenario_texts import many

ROOT = Path(__file__).parents[2]
_TIMES = re.compile(r"^elapsed: .*$", re.MULTILINE)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command, its output without times, and its errors."""
    process = start(folder, *arguments)
    output, errors = process.communicate(timeout=240)
    return process.returncode, _TIMES.sub("", output), errors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Scenarios of all ends: as expected, not as expected, refused, unreadable."""
    (tmp_path / "refused.yaml").write_bytes((ROOT / "scenarios/basics/a_second_def.yaml").read_bytes())
    for count in (4, 6, 9):
        (tmp_path / f"many_{count}.yaml").write_text(many(count))
    (tmp_path / "unreadable.yaml").write_text("claim: 7\nregistrations: []\n")
    (tmp_path / "violated.yaml").write_text(
        "claim: Two kernels at one key.\nregistrations:\n"
        "  - {impl: foo, dispatch: CPU, debug: one}\n  - {impl: foo, dispatch: CPU, debug: two}\n"
    )
    return tmp_path


def test_two_processes_print_what_one_process_prints(folder: Path) -> None:
    one, two = (command(folder, "permute", ".", "--format", "text", "-v", *where) for where in ((), ("--jobs", "2")))
    assert one == two
    assert one[0] == 2
    assert one[1].count("verdict: ") == 5
    assert "unreadable.yaml" in one[2]


def test_a_process_that_ends_is_a_sentence() -> None:
    with pytest.raises(WorkerDied, match="a worker process ended"), processes_for(2) as executor:
        list(executor.map(os._exit, [3]))


def _count_until_interrupted() -> None:
    with interruptible():
        while True:
            report("counting")


@pytest.mark.parametrize("begun", [False, True])
def test_tasks_are_interrupted_whether_their_process_has_begun_or_not(*, begun: bool) -> None:
    with processes_for(2) as executor:
        futures = [executor.submit(_count_until_interrupted) for _ in range(2)]
        while begun and "counting" not in executor.reports():
            pass
        executor.interrupt()
        while not all(future.done() for future in futures):
            list(executor.reports())
        assert [type(future.exception()) for future in futures] == [KeyboardInterrupt] * 2


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_prints_what_was_covered(folder: Path, jobs: str) -> None:
    (folder / "z_large.yaml").write_text(many(22))
    names = ("many_4.yaml", "many_6.yaml", "z_large.yaml")
    process = start(folder, "permute", *names, "--walk", "graph", "--format", "text", "-v", "--jobs", jobs)
    assert process.stdout is not None
    seen = ""
    while seen.count("verdict: ") < 2:  # the large one is under way
        seen += process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in errors) == (130, False)
    assert "verdict: incomplete" in output
