"""Processes end with the one that started them and in time, and a crash is blamed on what caused it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, as_completed, wait
from pathlib import Path
from threading import Timer

import pytest

from dispatchlab.processes.executor import TaskDied, TaskFuture, TaskStopped, completed, wait_for
from dispatchlab.processes.machine import most_jobs
from dispatchlab.processes.parent import is_alive
from dispatchlab.processes.pool import ProcessExecutor
from tests.scenario_texts import FIVE, many
from tests.signals.run import MARK, ROOT, prepare, running

WITHIN_S = 30.0  # generous: the machine of a test may be busy

PROC = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc, which is not here"
)


def command(folder: Path, *arguments: str, case: str = "", stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", MARK: case},
        stdout=stdout,
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
    code, out, err = ended(tmp_path, "permute", "many.yaml", "--timeout", "1", "--no-progress")
    assert (code, err) == (3, "") or "before anything was explored" in err
    assert not out or "note: stopped at the bound of 1 seconds\n" in out
    assert time.monotonic() - begun < 1 + WITHIN_S


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
    assert code == 2
    assert "exits.yaml:6:13: importing exits ended its process with exit code 0" in err
    assert "raises.yaml:6:13: importing raises failed with SystemExit: 0" in err
    assert out.endswith("4 scenarios: 2 as expected, 2 could not be read\n")


def test_files_that_cannot_be_read_are_no_traceback_of_a_worker(tmp_path: Path) -> None:
    for _ in range(3):
        code, _, err = ended(tmp_path, "permute", "a", "b", "--jobs", "2")
        sentence = "{0}: there is no such file; to record a package in it: dispatchlab record PACKAGE -o {0}\n"
        assert (code, err) == (2, sentence.format("a") + sentence.format("b"))


@PROC
def test_no_more_processes_are_started_than_there_are_cores(tmp_path: Path) -> None:
    case = f"jobs {tmp_path}"
    # The test reads no output, which is more than a pipe holds: on a fast machine the command would wait for ever.
    process = command(tmp_path, "certify", "--jobs", "1000", "--progress", case=case, stdout=subprocess.DEVNULL)
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


def _work(task: object) -> object:
    from dispatchlab.processes import task_process

    match task:
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(7)
        case "raise":
            raise ValueError(task)
        case "hang":
            task_process.report("hanging")
            time.sleep(600)
        case "stop":
            while not task_process.is_stopped():
                task_process.report("waiting")
                time.sleep(0.01)
        case "unsendable":
            return lambda: None
        case "large":
            return "x" * 5_000_000
        case ("new", _):
            return os.getpid()
    return task


def _report(future: Future[object]) -> None:
    """Wait until a task has reported something."""
    assert isinstance(future, TaskFuture)
    until = time.monotonic() + 60
    while future.reported is None and time.monotonic() < until:
        time.sleep(0.01)


def test_each_end_of_a_task_is_its_own() -> None:
    tasks = ["one", "die", "two", "exit", "raise", "unsendable", lambda: None, "large", "three"]
    with ProcessExecutor(2) as executor:
        found = {number: future for number, _, future in completed(executor, _work, tasks)}
        assert [found[number].result() for number in (0, 2, 8)] == ["one", "two", "three"]
        for number, how in ((1, "signal SIGSEGV"), (3, "exit code 7")):
            with pytest.raises(TaskDied, match=f"^{how}$"):
                found[number].result()
        with pytest.raises(ValueError, match=r"^raise\n"):
            found[4].result()
        with pytest.raises(RuntimeError, match="a result cannot be sent"):
            found[5].result()
        with pytest.raises(Exception, match="pickle"):
            found[6].result()
        large = found[7].result()
        assert isinstance(large, str)
        assert len(large) == 5_000_000
        assert executor.submit(_work, "again").result(60) == "again"
    with pytest.raises(RuntimeError, match="after the shutdown"):
        executor.submit(_work, "late")


def test_an_executor_behaves_as_those_of_the_standard_library() -> None:
    with ProcessExecutor(2) as executor:
        futures = [executor.submit(_work, number) for number in range(20)]
        assert {future.result() for future in as_completed(futures, 60)} == set(range(20))
        assert list(executor.map(_work, "abc", timeout=60)) == ["a", "b", "c"]
        assert len(set(executor.map(_work, [("new", number) for number in range(20)], timeout=60))) <= 2
        running = executor.submit(_work, "stop")
        others = [executor.submit(_work, "stop") for _ in range(2)]
        _report(running)
        assert others[1].cancel()
        assert not running.cancel()
        executor.stop()
        assert wait(others, 60).not_done == set()


def test_an_executor_that_is_stopped_asks_and_then_kills() -> None:
    with ProcessExecutor(2) as executor:
        hangs, stops, never = (executor.submit(_work, task) for task in ("hang", "stop", "never started"))
        _report(hangs)
        _report(stops)
        executor.stop()
        assert stops.result(60) == "stop"
        for future in (hangs, never):
            with pytest.raises(TaskStopped):
                future.result(60)


def test_no_more_is_handed_over_than_is_of_use() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(200):
            taken.append(number)
            yield number

    with ProcessExecutor(2) as executor:
        for count, (_, task, future) in enumerate(completed(executor, _work, tasks())):
            assert future.result() == task
            assert len(taken) <= count + executor.ahead + 2
    assert len(taken) == 200


def _wait_until(future: Future[object], until: float) -> None:
    while time.monotonic() < until and not wait_for(future):
        pass


def test_a_signal_loses_no_result() -> None:
    with ProcessExecutor(2) as executor:
        stops, one = executor.submit(_work, "stop"), executor.submit(_work, "one")
        _report(stops)
        timer = Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))  # amid hundreds of messages
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            _wait_until(stops, time.monotonic() + 60)
        executor.stop()
        assert stops.result(60) == "stop"
        assert one.exception(60) is None or isinstance(one.exception(), TaskStopped)


def test_a_process_that_has_ended_is_not_alive() -> None:
    assert is_alive(os.getpid())
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not is_alive(process.pid)


def test_many_registrations_stop_at_the_bound_of_memory(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(many(18))
    code, out, _ = ended(tmp_path, "permute", "many.yaml", "--walk", "graph", "--max-memory", "0.02", "--no-progress")
    assert code == 3
    assert "verdict: incomplete (strict, an idealised dispatcher)\n" in out
    assert "note: stopped at the bound of 20.5 MiB of memory\n" in out
