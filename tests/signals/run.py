"""Send signals to long commands at random moments, and check how they end and what they leave.

A case is its command, its seed and its number: the signal and the moment follow from these.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dispatchlab.processes.task_process import STOP_S
from dispatchlab.scenario.load import load_scenario
from tests.dask_cluster import Cluster
from tests.scenario_texts import many

ROOT: Final = Path(__file__).parents[2]
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
MARK: Final = "DISPATCHLAB_SIGNAL_CASE"
"""The environment variable by which the processes of a case are found again."""
CLUSTER: Final = "ADDRESS"
"""Stands for the address of a cluster, which is started for the cases of a command."""

_SUDDEN: Final = (signal.SIGKILL, signal.SIGHUP)  # which nothing of ours handles
_CODES: Final = {signal.SIGINT: (130, -signal.SIGINT), signal.SIGTERM: (143, -signal.SIGTERM)}

_PACKAGE: Final = """\
import subprocess
import time

import torch

lib = torch.library.Library("{name}", "FRAGMENT")
lib.define("op(Tensor x) -> Tensor")
lib.impl("op", lambda x: x, "CPU")
helper = subprocess.Popen(["sleep", "600"])
time.sleep(1.5)
helper.kill()
helper.wait()
"""


@dataclass(frozen=True)
class Command:
    """A long command.

    Args:
        arguments: what follows `dispatchlab`.
        seconds: moments are chosen up to here.
        needs_torch: whether it needs PyTorch.
        covered: whether it prints what it has covered when it is interrupted.
        written: checks the files that it wrote.
        ends: whether it comes to an end by itself.
    """

    arguments: tuple[str, ...]
    seconds: float
    needs_torch: bool = True
    covered: bool = False
    written: Callable[[Path], None] = lambda folder: None
    ends: bool = True


def _is_scenario(folder: Path) -> None:
    if (folder / "out.yaml").exists():
        assert load_scenario(str(folder / "out.yaml")).registrations


def _is_code(folder: Path) -> None:
    for path in (folder / "generated").glob("*.py"):
        compile(path.read_text(encoding="utf-8"), str(path), "exec")
    for path in (folder / "generated").glob("*.yaml"):
        assert load_scenario(str(path)).registrations


_LONG: Final = ("--walk", "graph")  # else it is over before most signals come

COMMANDS: Final = {
    "permute": Command(("permute", "a.yaml", *_LONG, "--progress"), 6, needs_torch=False, covered=True),
    "permute --jobs 2": Command(
        ("permute", "a.yaml", "b.yaml", *_LONG, "--jobs", "2", "--progress"), 8, needs_torch=False, covered=True
    ),
    "permute --engine torch": Command(("permute", "a.yaml", "--engine", "torch", "--progress"), 18, covered=True),
    "certify": Command(("certify", "--jobs", "2", "--progress"), 8, needs_torch=False, covered=True),
    "certify live": Command(("certify", "live", "--all", "--jobs", "2", "--progress"), 14, covered=True),
    "record": Command(("record", "pack_a", "-o", "out.yaml"), 10, written=_is_scenario),
    "imports": Command(("imports", "pack_a", "pack_b"), 12),
    "lint live": Command(("lint", "live", "--import", "pack_a"), 10),
    "diff live": Command(("diff", "torch-2.13", "live"), 10),
    "readiness": Command(("readiness", "pack_a"), 14),
    "check": Command(("check", "pack_a", "pack_b"), 20),
    "profile": Command(("profile", "-o", "out.json"), 10),
    "trace": Command(("trace", "program.py"), 6, needs_torch=False),
    "explore --browser": Command(("explore", "a.yaml", "--browser"), 6, needs_torch=False, ends=False),
    "permute --cluster": Command(
        ("permute", "a.yaml", "b.yaml", "--walk", "graph", "--cluster", CLUSTER), 8, needs_torch=False
    ),
    "certify --cluster": Command(("certify", "--cluster", CLUSTER), 8, needs_torch=False),
    "codegen": Command(("codegen", "natives.yaml", "-o", "generated"), 3, needs_torch=False, written=_is_code),
}
"""The long commands."""


@dataclass
class Result:
    """What became of the cases of one command."""

    command: str
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    covered: int = 0
    slowest_end: float = 0.0
    slowest_gone: float = 0.0

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return (
            f"{self.command}: {self.outcomes.total()} moments: {ends}; {self.covered} printed what was covered; "
            f"ended after {self.slowest_end:.2f} s and all processes gone after {self.slowest_gone:.2f} s at most"
        )


def run(name: str, seed: int, numbers: Iterable[int], folder: Path, *, within_s: float) -> Result:
    """Run cases of a command; whatever is not as it should be is a finding.

    Args:
        name: the command.
        seed: of the moments.
        numbers: of the cases; the signals take turns.
        folder: an empty folder.
        within_s: how long a command may take to end, and its processes to be gone.
    """
    result = Result(name)
    prepare(folder)
    # In the background and behind nohup they are ignored, and commands would ignore them, too.
    for sent, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(sent) is signal.SIG_IGN:
            signal.signal(sent, usual)
    cluster = None
    try:
        if CLUSTER in COMMANDS[name].arguments:
            (folder / "cluster").mkdir()
            cluster = Cluster(2, folder / "cluster")
        for number in numbers:
            how = SIGNALS[number % len(SIGNALS)]
            _case(result, name, f"{name} {seed} {number}", how, folder, within_s, cluster)
    finally:
        if cluster is not None:
            cluster.end()
    return result


def prepare(folder: Path) -> None:
    """Write the files that the commands read."""
    for scenario in ("a.yaml", "b.yaml"):
        (folder / scenario).write_text(many(18))
    for package in ("pack_a", "pack_b"):
        (folder / f"{package}.py").write_text(_PACKAGE.format(name=package))
    (folder / "program.py").write_text(_PROGRAM)
    groups = "".join(_GROUP.format(name=f"op{number}") for number in range(60))
    (folder / "natives.yaml").write_text(groups)


_PROGRAM: Final = """\
from dispatchlab import Dispatcher, Library, operator

dispatcher = Dispatcher()
library = Library("test", "DEF", dispatcher=dispatcher)
library.define("foo(int x) -> int", lambda x: x)
for number in range(100_000):
    operator(dispatcher, "test::foo")(number)
"""

_GROUP: Final = """\
- func: {name}.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: {name}_out_cpu

- func: {name}(Tensor self, Tensor other) -> Tensor
  structured_delegate: {name}.out

"""


def _case(
    result: Result,
    name: str,
    case: str,
    how: signal.Signals,
    folder: Path,
    within_s: float,
    cluster: Cluster | None,
) -> None:
    command = COMMANDS[name]
    arguments = [cluster.address if each == CLUSTER and cluster else each for each in command.arguments]
    chosen = random.Random(case)
    for left in ("out.yaml", "out.json", "generated"):
        path = folder / left
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    before = set(_entries(folder))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", MARK: case, "TMPDIR": str(folder)}
    trouble = result.findings.append
    out, err = folder / "out", folder / "err"
    with out.open("wb") as out_stream, err.open("wb") as err_stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "dispatchlab", *arguments],
            cwd=folder,
            env=environment,
            stdout=out_stream,
            stderr=err_stream,
            start_new_session=True,
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(chosen.uniform(0, command.seconds))
            is_over = process.poll() is not None
            sent = time.monotonic()
            if not is_over:
                process.send_signal(how)
            try:
                code = process.wait(within_s)
            except subprocess.TimeoutExpired:
                trouble(f"{case}: {how.name}: not ended after {within_s:g} s")
                process.kill()
                process.wait()
                result.outcomes["not ended"] += 1
                return
            took = time.monotonic() - sent
            result.slowest_end = max(result.slowest_end, took)
            while (left_over := running(case)) and time.monotonic() - sent < within_s:
                time.sleep(0.02)
            result.slowest_gone = max(result.slowest_gone, time.monotonic() - sent)
            while cluster is not None and (tasks := cluster.busy()):
                if time.monotonic() - sent > within_s:
                    trouble(f"{case}: {how.name}: the cluster goes on with it in {tasks}")
                    break
            if left_over:
                trouble(f"{case}: {how.name}: left {', '.join(left_over.values())[:300]}")
        finally:
            for pid in running(case):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    printed, errors = out.read_text(errors="replace"), err.read_text(errors="replace")
    covered = command.covered and ("incomplete" in printed or "interrupted" in printed)
    result.covered += covered
    too_early = "Traceback" in errors and "/dispatchlab/" not in errors  # Python itself was starting
    when = " before the first line of ours" if too_early else ""
    result.outcomes["over before" if is_over else f"{how.name} exit {code}{when}"] += 1
    if is_over or too_early:
        return
    if how in _SUDDEN:
        if code != -how:
            trouble(f"{case}: {how.name}: exit code {code}")
    elif code not in _CODES[how] and not (command.ends and _is_complete(code, printed)):
        trouble(f"{case}: {how.name}: exit code {code}, {errors[-300:]!r}")
    if "Traceback" in errors and code >= 0:  # Python itself ends so before the first line of ours runs
        trouble(f"{case}: {how.name}: a traceback: {errors[-600:]!r}")
    # What does not answer in time, as on a machine with too much to do, is ended with what it has.
    has_time = command.covered and "edges/s" in errors and how not in _SUDDEN and took < STOP_S
    if has_time and not printed:
        trouble(f"{case}: {how.name}: exit code {code}, and nothing printed of what was covered")
    try:
        command.written(folder)
    except Exception as error:
        trouble(f"{case}: {how.name}: half-written: {error}")
    left_files = sorted(
        each
        for each in set(_entries(folder)) - before - {"out", "err", "out.yaml", "out.json", "generated", "__pycache__"}
        if not each.startswith("torchinductor_")  # the cache that PyTorch itself keeps
    )
    if left_files and how not in _SUDDEN:
        trouble(f"{case}: {how.name}: left {left_files}")
    for each in left_files:
        path = folder / each
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_complete(code: int, printed: str) -> bool:
    """Whether a command ended by itself just then."""
    return code in (0, 1, 3) and bool(printed)


def _entries(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        yield path.name
        if path.name == "generated":
            yield from (f"generated/{each.name}" for each in path.iterdir() if each.name.startswith("."))


def running(case: str) -> dict[int, str]:
    """The processes of a case that are running, with their command lines."""
    wanted = f"{MARK}={case}".encode()
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(path.name)] = line[:120]
    return found
