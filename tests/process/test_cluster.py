"""A cluster does the work of one machine: the same output to the byte, whatever becomes of its workers."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'dispatchlab[cluster]'")

from dispatchlab.processes import cluster as cluster_module
from dispatchlab.processes.cluster import (
    ClusterExecutor,
    NoSchedulerError,
    NoWorkersError,
    OtherInstallationError,
    SchedulerLostError,
    TaskLostError,
    WorkerCannotImportError,
)
from dispatchlab.processes.executor import TaskDied, TaskStopped, completed
from dispatchlab.processes.parent import is_alive
from dispatchlab.sources.executors import installation
from tests import effort
from tests.cluster_tasks import (
    bomb,
    command_to_pickle,
    end,
    note_and_hang,
    other_installation,
    pickled_command,
    slow,
)
from tests.dask_cluster import ROOT, Cluster
from tests.live.packages import dispatchlab
from tests.scenario_texts import many

_TIMES = re.compile(r"^elapsed: .*$|(?<=besides, ).*$", re.MULTILINE)
_SECOND_S = 60.0  # generous: the machine of a test may be busy


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(2, tmp_path_factory.mktemp("cluster"))
    yield found
    found.end()


def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command, its output without times, and its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "dispatchlab", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, _TIMES.sub("", done.stdout), done.stderr


# -- the same bytes


def _folder_of_scenarios(folder: Path) -> None:
    """Scenarios of all ends: as expected, not as expected, refused, unreadable, at a bound."""
    (folder / "refused.yaml").write_bytes((ROOT / "scenarios/basics/a_second_def.yaml").read_bytes())
    for count in (4, 6, 9):
        (folder / f"many_{count}.yaml").write_text(many(count))
    (folder / "unreadable.yaml").write_text("claim: 7\nregistrations: []\n")
    (folder / "violated.yaml").write_text(
        "claim: Two kernels at one key.\nregistrations:\n"
        "  - {impl: foo, dispatch: CPU, debug: one}\n  - {impl: foo, dispatch: CPU, debug: two}\n"
    )


def test_a_folder_of_scenarios_prints_the_same_on_one_process_two_and_a_cluster(
    cluster: Cluster, tmp_path: Path
) -> None:
    _folder_of_scenarios(tmp_path)
    one, two, many_machines = (
        command(tmp_path, "permute", ".", "--format", "text", "-v", "--no-progress", *where)
        for where in ((), ("--jobs", "2"), ("--cluster", cluster.address))
    )
    assert one == two == many_machines
    assert one[0] == 2
    assert one[1].count("verdict: ") == 5
    assert "verdict: order-dependent" in one[1]
    assert "unreadable.yaml" in one[2]


def test_random_walks_of_one_scenario_print_the_same_in_shares(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(many(40))
    some = ("permute", "many.yaml", "--walk", "sample", "--samples", "130", "--seed", "3", "--format", "text")
    one, two, many_machines = (
        command(tmp_path, *some, "--no-progress", *where)
        for where in ((), ("--jobs", "2"), ("--cluster", cluster.address))
    )
    assert one == two == many_machines
    assert "130 random walks came to " in one[1]


def test_a_certification_prints_the_same_on_one_process_and_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    some = ("certify", "torch-2.13", "--operator", "aten::*bitwise*", "--semantics", "torch-2.13", "--no-progress")
    one = command(tmp_path, *some, "--jobs", "1")
    many_machines = command(tmp_path, *some, "--cluster", cluster.address)
    assert one == many_machines
    assert "steps on whole operators" in one[1]


_IMPLS = "import torch\nlib = torch.library.Library('street', 'FRAGMENT')\nlib.impl('door', lambda x: x, 'CPU')\n"


def test_orders_of_imports_print_the_same_on_this_machine_and_on_a_cluster(cluster: Cluster) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
    for name in ("left", "right"):
        (cluster.folder / f"{name}.py").write_text(_IMPLS)
    some = ("imports", "left", "right", "--format", "text", "--no-progress")
    done = dispatchlab(cluster.folder, *some)
    here = _TIMES.sub("", done.stdout)
    assert (done.returncode, here) == command(cluster.folder, *some, "--cluster", cluster.address)[:2]
    assert done.returncode == 1
    assert (
        "differences between orders: 2\n  kernel of street::door at CPU, registered at left.py:3, right.py:3\n" in here
    )


# -- workers that die


@pytest.mark.parametrize("seed", effort.some([1, 2]))
def test_two_workers_that_are_killed_at_random_moments_change_nothing(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    own = Cluster(3, tmp_path)
    killed = []

    def kill(number: int) -> None:
        own.workers[number].kill()
        killed.append(number)

    try:
        with ClusterExecutor(own.address, installation) as executor:
            timers = [threading.Timer(moments.uniform(0.2, 4), kill, (number,)) for number in (0, 1)]
            for timer in timers:
                timer.start()
            results = {}
            for number, _, future in completed(executor, slow, range(40)):
                results[number] = future.result()
            for timer in timers:
                timer.join()
        assert results == {number: (number, "x" * number) for number in range(40)}
        assert sorted(killed) == [0, 1]
    finally:
        own.end()


@pytest.mark.parametrize("seed", effort.some([5, 6]))
def test_a_command_prints_the_same_when_two_of_its_workers_are_killed_at_random_moments(
    tmp_path: Path, seed: int
) -> None:
    moments, folder, workers = random.Random(seed), tmp_path / "scenarios", tmp_path / "workers"
    folder.mkdir()
    workers.mkdir()
    for number in range(10):
        (folder / f"many_{number}.yaml").write_text(many(15 - number % 2))
    some = ("permute", ".", "--walk", "graph", "--format", "text", "-v", "--no-progress")
    expected = command(folder, *some, "--jobs", "2")
    own = Cluster(3, workers)
    try:
        printed, verdicts = "", 0
        kills = [moments.randint(1, 3), moments.randint(4, 6)]  # while the scenarios behind them are under way
        with subprocess.Popen(
            [sys.executable, "-m", "dispatchlab", *some, "--cluster", own.address],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                printed += line
                verdicts += line.startswith("verdict: ")
                if kills and verdicts == kills[0]:
                    time.sleep(moments.uniform(0, 0.2))
                    own.workers[len(kills) - 1].kill()
                    del kills[0]
        assert (process.wait(), _TIMES.sub("", printed)) == expected[:2]
        assert verdicts == 10
        assert [worker.wait(_SECOND_S) for worker in own.workers[:2]] == [-signal.SIGKILL] * 2
        assert own.workers[2].poll() is None
    finally:
        own.end()


def test_workers_of_a_local_cluster_are_killed_and_started_again() -> None:
    local_cluster: Any = pytest.importorskip("distributed").LocalCluster
    moments = random.Random(3)
    with (
        local_cluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0, silence_logs=50
        ) as local,
        ClusterExecutor(local.scheduler_address, installation) as executor,
    ):
        pids = [nanny.pid for nanny in local.workers.values()]
        timers = [threading.Timer(moments.uniform(0.2, 3), os.kill, (pid, signal.SIGKILL)) for pid in pids]
        for timer in timers:
            timer.start()
        found = {number: future.result() for number, _, future in completed(executor, slow, range(30))}
        for timer in timers:
            timer.join()
        assert found == {number: (number, "x" * number) for number in range(30)}
        _until(lambda: not any(map(is_alive, pids)))


def test_a_task_that_ends_its_process_does_not_end_its_worker(cluster: Cluster) -> None:
    with ClusterExecutor(cluster.address, installation) as executor:
        futures = [executor.submit(end, how) for how in ("segfault", "killed", "raise", "well")]
        for future, how in zip(futures[:2], ("signal SIGSEGV", "signal SIGKILL"), strict=True):
            with pytest.raises(TaskDied, match=f"^{how}$"):
                future.result(_SECOND_S)
        with pytest.raises(RuntimeError, match="ValueError: raise"):
            futures[2].result(_SECOND_S)
        assert futures[3].result(_SECOND_S) == "well"
    assert [worker.poll() for worker in cluster.workers] == [None, None]


@pytest.mark.parametrize("result", [pickled_command, command_to_pickle, bomb])
def test_a_worker_runs_nothing_here_by_what_it_gives_back(
    cluster: Cluster, tmp_path: Path, result: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ClusterExecutor(cluster.address, installation) as executor:
        with monkeypatch.context() as patch:
            patch.setattr(cluster_module, "run_task", result)
            given = executor.submit(slow, 1)
        with pytest.raises(TaskLostError):
            given.result(_SECOND_S)
        assert executor.submit(slow, 2).result(_SECOND_S) == (2, "xx")
    assert list(tmp_path.iterdir()) == []


def _until(condition: Any) -> None:
    end_s = time.monotonic() + _SECOND_S
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert condition()


@pytest.mark.parametrize("how", ["stop", "leave", "die"])
def test_what_runs_on_the_cluster_ends_when_nobody_waits_for_it(cluster: Cluster, tmp_path: Path, how: str) -> None:
    path = tmp_path / "pid"
    if how == "die":
        client = (
            "import sys; from dispatchlab.processes.cluster import *; from tests.cluster_tasks import *; "
            "from dispatchlab.sources.executors import installation; "
            "ClusterExecutor(sys.argv[1], installation).submit(note_and_hang, sys.argv[2]).result()"
        )
        process = subprocess.Popen([sys.executable, "-c", client, cluster.address, str(path)], cwd=ROOT)
        _until(lambda: path.exists() and path.read_text())
        process.kill()
        process.wait()
    else:
        executor = ClusterExecutor(cluster.address, installation)
        hangs = executor.submit(note_and_hang, str(path))
        _until(lambda: path.exists() and path.read_text())
        started = time.monotonic()
        if how == "stop":
            executor.stop()
            with pytest.raises(TaskStopped):
                hangs.result(0)
            with pytest.raises(TaskStopped):
                executor.submit(slow, 1).result(0)
        executor.shutdown(wait=False)
        assert time.monotonic() - started < 10
    pid = int(path.read_text())
    _until(lambda: not is_alive(pid))


@pytest.mark.skipif(sys.platform == "win32", reason="a signal interrupts")
@pytest.mark.parametrize("where", ["--jobs", "--cluster"])
def test_ctrl_c_ends_random_walks_with_what_they_came_by(cluster: Cluster, tmp_path: Path, where: str) -> None:
    (tmp_path / "a.yaml").write_text(many(40))
    value = cluster.address if where == "--cluster" else "2"
    some = ("permute", "a.yaml", "--walk", "sample", "--samples", "1000000", "--progress", where, value)
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", *some],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(r"[1-9][\d,]* sets", line):
            break
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    out, err = process.communicate(timeout=_SECOND_S)
    assert process.returncode == 130, err
    assert time.monotonic() - started < 10
    assert "note: interrupted" in out
    assert re.search(r"note: [\d,]+ random walks came to", out)
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="a signal interrupts")
def test_ctrl_c_ends_a_command_and_what_the_cluster_does_for_it(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(many(24))
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", "permute", ".", "--walk", "graph", "--cluster", cluster.address],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    client_of: Any = pytest.importorskip("distributed").Client
    with client_of(cluster.address) as client:
        _until(lambda: sum(map(len, client.processing().values())) == 2)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    out, err = process.communicate(timeout=_SECOND_S)
    assert process.returncode == 130, err
    assert time.monotonic() - started < 10
    assert "interrupted" in err
    assert "Traceback" not in err
    assert out.endswith("2 scenarios: 0 as expected, 2 not explored\n")


# -- a cluster that cannot be used


def test_whoever_is_not_a_scheduler_is_told_apart_in_time(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_S", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        for address, reason in {
            f"tcp://127.0.0.1:{port}": "no answer within 1 s",
            "tcp://127.0.0.1:9": "no answer within 1 s",
            "nowhere://x": "unknown address scheme 'nowhere'",
            "nowhere": "missing port number in address 'nowhere'",
        }.items():
            started = time.monotonic()
            with pytest.raises(NoSchedulerError) as caught:
                ClusterExecutor(address, installation)
            assert str(caught.value).startswith(f"--cluster {address}: no Dask scheduler answers there ({reason}")
            assert time.monotonic() - started < 10


def test_a_worker_in_place_of_a_scheduler_is_named(cluster: Cluster) -> None:
    with ClusterExecutor(cluster.address, installation) as executor:
        worker = next(iter(executor.workers()))
    with pytest.raises(NoSchedulerError, match=r"\(a worker does\): start one with"):
        ClusterExecutor(worker, installation)


def test_a_scheduler_without_workers_is_left_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "NO_WORKERS_S", 1.0)
    own = Cluster(0, tmp_path)
    try:
        with pytest.raises(
            NoWorkersError, match=r"for 1 seconds there has been no worker: start some with `dask worker"
        ):
            ClusterExecutor(own.address, installation)
    finally:
        own.end()


@pytest.mark.parametrize("lost", ["all workers", "the scheduler"])
def test_a_cluster_that_is_lost_ends_the_work(tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Cluster(1, tmp_path)
    try:
        with ClusterExecutor(own.address, installation) as executor:
            tasks = completed(executor, slow, range(1000))
            for _ in range(5):
                next(tasks)[2].result()
            if lost == "all workers":
                monkeypatch.setattr(cluster_module, "NO_WORKERS_S", 3.0)
            (own.workers[0] if lost == "all workers" else own.scheduler).kill()
            with pytest.raises(NoWorkersError if lost == "all workers" else SchedulerLostError) as caught:
                deque((future.result() for _, _, future in tasks), maxlen=0)
            assert caught.value.exit_code == 5
    finally:
        own.end()


def test_other_versions_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(
        OtherInstallationError, match=r"^the worker tcp://\S+ has Python \d+ and this machine has \d+: in"
    ):
        ClusterExecutor(cluster.address, other_installation)
    with ClusterExecutor(cluster.address, installation) as executor:
        executor._here["PyTorch"] = "1.0"  # as if a worker had come later
        with pytest.raises(OtherInstallationError, match=r"^a worker has PyTorch .* and this machine has 1\.0"):
            executor.submit(slow, 1).result(_SECOND_S)


def test_a_worker_without_dispatchlab_is_named(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['dispatchlab'] = None\n")  # as if not installed
    own = Cluster(1, tmp_path, PYTHONPATH=str(tmp_path))
    try:
        with pytest.raises(WorkerCannotImportError, match=r"cannot run dispatchlab \(.*\): install the same version"):
            ClusterExecutor(own.address, installation)
    finally:
        own.end()


def test_without_distributed_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['distributed'] = None; from dispatchlab.__main__ import run; "
        "sys.argv = 'dispatchlab certify torch-2.13 --operator aten::add.Tensor --cluster tcp://x:1'.split(); run()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "--cluster needs dask.distributed, which is not installed: pip install 'dispatchlab[cluster]'\n",
    )


def test_distributed_is_imported_for_a_cluster_alone() -> None:
    code = (
        "import sys; from dispatchlab.__main__ import run; sys.argv = ['dispatchlab', *sys.argv[1:]]\n"
        "try:\n    run()\nfinally:\n    assert not {'dask', 'distributed'} & sys.modules.keys()"
    )
    scenario = "scenarios/basics/a_second_def.yaml"
    for arguments in (["permute", scenario, scenario, "--jobs", "2"], ["certify", "--operator", "aten::bitwise_not"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        assert "AssertionError" not in done.stderr
        assert "order-" in done.stdout
