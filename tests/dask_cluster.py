"""A cluster of Dask on this machine, for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


class Cluster:
    """A scheduler and workers, each a process that was started as a user starts it.

    Args:
        workers: how many workers.
        folder: where they run.
        environment: of the workers, besides that of the test.
    """

    def __init__(self, workers: int, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"} | environment
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        self.workers: list[subprocess.Popen[bytes]] = []
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        options = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--host", "127.0.0.1", "--memory-limit", "0")
        self.workers.append(self._start("worker", self.address, *options))

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments]
        log = (self.folder / "cluster.log").open("ab")
        with log:
            return subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=log, stderr=log)

    def busy(self) -> list[int]:
        """The processes of tasks that do something right now, on a system with /proc."""
        before = self._spent_by_tasks()
        time.sleep(0.3)
        return [pid for pid, ticks in self._spent_by_tasks().items() if ticks > before.get(pid, ticks)]

    def _spent_by_tasks(self) -> dict[int, int]:
        """Each process that a worker started, with the time of the processor that it took."""
        workers, found = {process.pid for process in self.workers}, {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                fields = (path / "stat").read_text().rpartition(") ")[2].split()
                if int(fields[1]) in workers:
                    found[int(path.name)] = int(fields[11]) + int(fields[12])
        return found

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
