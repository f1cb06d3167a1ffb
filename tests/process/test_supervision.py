"""Processes end with the one that started them and in time, and a crash is blamed on what caused it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest

from dispatchlab.processes.parent import is_alive
from dispatchlab.processes.pool import Died, Done, Event, Pool, Raised, Reported, Stopped, most_jobs
from tests.scenario_texts import FIVE, many
from tests.signals.run import COMMANDS, MARK, ROOT, prepare, run, running

WITHIN_S = 30.0  # generous: the machine of a test may be busy

PROC = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc, which is not here"
)


def command(folder: Path, *arguments: str, case: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", MARK: case},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command and what it printed."""
    process = command(folder, *arguments)
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    return process.returncode, out, err


def left_after_kill(process: subprocess.Popen[str], case: str) -> dict[int, str]:
    """What is left of a command some time after it was killed."""
    process.kill()
    process.communicate()
    until = time.monotonic() + WITHIN_S
    while running(case) and time.monotonic() < until:
        time.sleep(0.05)
    left = running(case)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@PROC
def test_no_worker_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    prepare(tmp_path)
    case = f"killed {tmp_path}"
    process = command(tmp_path, "permute", "a.yaml", "b.yaml", "--jobs", "2", "--progress", case=case)
    assert process.stderr is not None
    for line in process.stderr:
        if "edges/s" in line:
            break
    assert len(running(case)) >= 3
    assert left_after_kill(process, case) == {}


@PROC
def test_what_an_import_started_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    case = f"started {tmp_path}"
    (tmp_path / "starts.py").write_text(
        "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\nopen('started', 'w').close()\n"
        "sum(range(10**10))  # keeps the interpreter lock\n"
    )
    process = command(tmp_path, "record", "starts", "-o", "out.yaml", case=case)
    until = time.monotonic() + 120
    while not (tmp_path / "started").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert any("sleep 600" in line for line in running(case).values())
    assert left_after_kill(process, case) == {}


def test_an_import_that_hangs_ends_at_the_bound_of_the_scenario(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "five.yaml").write_text(FIVE)
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(1000)\n")
    code, _, err = ended(tmp_path, "permute", "five.yaml", "--engine", "torch", "--import", "hang", "--timeout", "3")
    assert code == 124
    assert err.startswith("hang was not imported after 3 s, so its process was ended")


def test_many_operators_end_at_the_bound(tmp_path: Path) -> None:
    defs = "".join(f"  - def: foo{number}(Tensor x) -> Tensor\n" for number in range(20_000))
    (tmp_path / "many.yaml").write_text(f"claim: Many operators.\nregistrations:\n{defs}")
    begun = time.monotonic()
    code, out, err = ended(tmp_path, "permute", "many.yaml", "--timeout", "5", "--no-progress")
    assert (code, err) == (3, "") or "before anything was explored" in err
    assert not out or "note: stopped at the bound of 5 seconds\n" in out
    assert time.monotonic() - begun < 5 + WITHIN_S


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_module_that_exits_is_blamed_on_the_scenario_that_names_it(tmp_path: Path, jobs: str) -> None:
    (tmp_path / "exits.py").write_text("import os\nos._exit(0)\n")
    (tmp_path / "raises.py").write_text("import sys\nsys.exit(0)\n")
    for name in ("exits", "raises"):
        (tmp_path / f"{name}.yaml").write_text(
            "claim: It exits.\nregistrations:\n  - def: foo(Tensor x) -> Tensor\n"
            f"  - impl: foo\n    dispatch: CPU\n    kernel: {name}:f\n"
        )
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(FIVE)
    files = ("a.yaml", "exits.yaml", "raises.yaml", "b.yaml")
    code, out, err = ended(tmp_path, "permute", *files, "--jobs", jobs, "--allow-import", "--format", "text")
    assert code == 5
    assert "exits.yaml: the process that explored it ended with exit code 0, as one does that imports" in err
    assert "raises.yaml:6:13: importing raises failed with SystemExit: 0" in err
    assert out.endswith("4 scenarios: 2 as expected, 2 could not be read\n")


def test_files_that_cannot_be_read_are_no_traceback_of_a_worker(tmp_path: Path) -> None:
    for _ in range(3):
        code, _, err = ended(tmp_path, "permute", "a", "b", "--jobs", "2")
        assert (code, err) == (2, "a: there is no such file\nb: there is no such file\n")


@PROC
def test_no_more_processes_are_started_than_there_are_cores(tmp_path: Path) -> None:
    case = f"jobs {tmp_path}"
    process = command(tmp_path, "certify", "--jobs", "1000", "--progress", case=case)
    assert process.stderr is not None
    most = lines = 0
    try:
        for line in process.stderr:  # one a second
            most = max(most, len(running(case)))
            lines += "edges/s" in line
            if lines == 4:
                break
    finally:
        left_after_kill(process, case)
    assert 1 < most <= most_jobs() + 2  # with itself and the tracker of multiprocessing


# -- the pool


def _start() -> None:
    pass


def _work(task: object) -> object:
    from dispatchlab.processes import pool

    match task:
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(7)
        case "raise":
            raise ValueError(task)
        case "hang":
            pool.report("hanging")
            time.sleep(600)
        case "stop":
            while not pool.is_stopped():
                pool.report("waiting")
                time.sleep(0.01)
        case "unsendable":
            return lambda: None
        case "large":
            return "x" * 5_000_000
    return task


def all_events(pool: Pool) -> dict[int, Event]:
    found: dict[int, Event] = {}
    until = time.monotonic() + 60
    while not pool.is_done and time.monotonic() < until:
        found |= {event.task: event for event in pool.poll(1) if not isinstance(event, Reported)}
    return found


def test_each_end_of_a_task_is_its_own() -> None:
    tasks = ["one", "die", "two", "exit", "raise", "unsendable", "large", "three"]
    with Pool(2, _start) as pool:
        pool.start(_work, tasks)
        found = all_events(pool)
        assert [found[number] for number in (0, 2, 7)] == [Done(0, "one"), Done(2, "two"), Done(7, "three")]
        assert (found[1], found[3]) == (Died(1, "signal SIGSEGV"), Died(3, "exit code 7"))
        assert isinstance(found[4], Raised)
        assert isinstance(found[4].error, ValueError)
        assert isinstance(found[5], Raised)
        assert isinstance(found[6], Done)
        assert len(found[6].value) == 5_000_000
        pool.start(_work, ["again"])
        assert all_events(pool) == {0: Done(0, "again")}


def test_a_pool_that_is_stopped_asks_and_then_kills() -> None:
    with Pool(2, _start) as pool:
        pool.start(_work, ["hang", "stop", "never started"])
        reported: set[int] = set()
        until = time.monotonic() + 60
        while reported != {0, 1} and time.monotonic() < until:
            reported |= {event.task for event in pool.poll(1)}
        pool.stop()
        found = all_events(pool)
    assert found == {0: Stopped(0), 1: Done(1, "stop"), 2: Stopped(2)}


def _poll_until(pool: Pool, seen: list[Event], until: float) -> None:
    while time.monotonic() < until:
        seen += pool.poll(1)


def test_a_signal_waits_until_messages_are_read_and_loses_none() -> None:
    with Pool(2, _start) as pool:
        pool.start(_work, ["stop", "one"])
        seen: list[Event] = []
        while not seen:
            seen += pool.poll(1)
        timer = Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))  # amid hundreds of messages
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            _poll_until(pool, seen, time.monotonic() + 60)
        pool.stop()
        found = {event.task: event for event in seen if not isinstance(event, Reported)} | all_events(pool)
    assert found == {0: Done(0, "stop"), 1: Done(1, "one")} or found[1] == Stopped(1)


def test_a_process_that_has_ended_is_not_alive() -> None:
    assert is_alive(os.getpid())
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not is_alive(process.pid)


# -- signals at random moments


@PROC
@pytest.mark.parametrize("name", [*sorted(name for name, each in COMMANDS.items() if not each.needs_torch), "record"])
def test_a_share_of_the_random_moments_ends_as_documented(name: str, tmp_path: Path) -> None:
    if COMMANDS[name].needs_torch:
        pytest.importorskip("torch")
    result = run(name, 0, range(3), tmp_path, within_s=WITHIN_S)
    assert result.findings == []
    assert result.outcomes.total() == 3


def test_many_registrations_stop_at_the_bound_of_memory(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(many(18))
    code, out, _ = ended(tmp_path, "permute", "many.yaml", "--walk", "graph", "--max-memory", "0.02", "--no-progress")
    assert code == 3
    assert "verdict: incomplete\n" in out
    assert "note: stopped at the bound of 20.5 MiB of memory\n" in out
