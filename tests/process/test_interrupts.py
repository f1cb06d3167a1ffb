"""Ctrl-C and SIGTERM end long runs within seconds, with what was covered, and leave no bar on the screen."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.effort import crossed
from tests.live.packages import ROOT
from tests.scenario_texts import many
from tests.signals.run import MARK, running

COMMAND = [sys.executable, "-m", "dispatchlab"]
OF_PACKAGES = ("record", "imports", "readiness")
WITHIN_S = 20.0  # generous: the machine of a test may be busy


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"}


def stopped(folder: Path, how: int, *arguments: str, group: bool = False) -> tuple[int, str, str, float]:
    """What a command printed that was stopped after its first line of progress, and how long it took to end."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--progress"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if arguments[0] in OF_PACKAGES or ("edges" in line and ": 1 sets" not in line and ": 0 sets" not in line):
                break
        begun = time.monotonic()
        if group:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err, time.monotonic() - begun
    finally:
        process.kill()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_certify_ends_at_once_with_the_certificates_that_it_has(tmp_path: Path, jobs: str, how: int, code: int) -> None:
    ended, out, err, seconds = stopped(tmp_path, how, "certify", "--jobs", jobs, "--format", "json", group=True)
    assert (ended, "Traceback" in err) == (code, False), err
    assert seconds < WITHIN_S
    report = json.loads(out)
    assert report["interrupted"] is True
    assert len(report["certificates"]) < report["selected"]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_permute_prints_what_was_covered(tmp_path: Path, how: int, code: int) -> None:
    (tmp_path / "many.yaml").write_text(many(18))
    ended, out, err, seconds = stopped(tmp_path, how, "permute", "many.yaml", "--walk", "graph", group=True)
    assert (ended, "Traceback" in err) == (code, False), err
    assert seconds < WITHIN_S
    assert "verdict: incomplete (strict, an idealised dispatcher)\n" in out
    assert int(re.findall("sets: (.*)", out)[0].replace(",", "")) > 1


def test_permute_on_the_live_engine_prints_what_was_covered(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "many.yaml").write_text(many(18))
    ended, out, err, seconds = stopped(
        tmp_path, signal.SIGTERM, "permute", "many.yaml", "--engine", "torch", group=True
    )
    assert (ended, "Traceback" in err) == (143, False), err
    assert seconds < WITHIN_S
    assert "verdict: incomplete\n" in out


@pytest.mark.parametrize(("command", "end"), crossed(OF_PACKAGES, [(signal.SIGINT, 130), (signal.SIGTERM, 143)]))
def test_what_imports_packages_says_so_without_a_terminal_and_ends_at_once(
    tmp_path: Path, command: str, end: tuple[int, int]
) -> None:
    how, code = end
    pytest.importorskip("torch", reason="imports packages into the installed PyTorch, and there is none")
    (tmp_path / "endless.py").write_text("import time, torch\nwhile True:\n    time.sleep(1)\n")
    more = ("-o", "endless.yaml") if command == "record" else ()
    ended, out, err, seconds = stopped(tmp_path, how, command, "endless", *more)
    assert (ended, out, "Traceback" in err) == (code, "", False), err
    assert seconds < WITHIN_S
    assert not (tmp_path / "endless.yaml").exists()


def test_an_interrupt_while_python_compiles_a_text_is_no_death(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("exec('raise KeyboardInterrupt')")
    (tmp_path / "one.yaml").write_text(many(1))
    ended = subprocess.run([*COMMAND, "permute", "one.yaml"], cwd=tmp_path, env=environment(), check=False)
    assert ended.returncode == 130


_RUN = """\
import atexit, os, signal, sys, threading, time
from dispatchlab import __main__, cli
from dispatchlab.processes import parent

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Finalized:
    def __del__(self):
        interrupt()
        time.sleep(60)

{plant}
sys.argv = ["dispatchlab", "completion", "bash"]
__main__.run()
"""


@pytest.mark.parametrize(
    ("plant", "code", "is_out"),
    [
        ("atexit.register(interrupt)", 0, True),  # registered first, so called last
        ("threading._register_atexit(interrupt)", 130, True),
        ("import multiprocessing.resource_tracker; parent.end_resource_tracker = interrupt", 130, True),
        ("was = cli.main; cli.main = lambda **more: (interrupt(), was(**more))", 130, False),
        ("cli.main.get_command = lambda context, name: (Finalized() and None, time.sleep(60))", 130, False),
        ("cli.main.invoke = lambda context: interrupt()", 130, False),
        ("cli.main.make_context = lambda *more, **options: interrupt()", 130, False),
    ],
    ids=["after all", "threads end", "the tracker ends", "before a command", "finalizer", "around", "command line"],
)
def test_an_interrupt_around_a_command_is_neither_a_death_nor_a_verdict(plant: str, code: int, *, is_out: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _RUN.format(plant=plant)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ended.returncode, ended.stderr.strip(), bool(ended.stdout)) == (code, "", is_out)


def test_an_interrupt_while_the_package_is_imported_ends_it_with_130(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'dispatchlab._lazy':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    given = environment()
    given["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{given['PYTHONPATH']}"
    ended = subprocess.run([*COMMAND, "schema"], env=given, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
    ended = subprocess.run(
        [sys.executable, "-c", "import dispatchlab"], env=given, capture_output=True, text=True, check=False
    )
    assert ended.stderr.endswith("KeyboardInterrupt\n")  # of a user's program, which may handle it


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a pipe is that of Linux")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_result_that_nobody_reads_keeps_no_command_alive(tmp_path: Path, how: int, code: int) -> None:
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        with subprocess.Popen([*COMMAND, "schema"], cwd=tmp_path, env=environment(), stdout=writer) as process:
            while struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))[0] < 4096:
                time.sleep(0.01)
            process.send_signal(how)
            assert process.wait(timeout=WITHIN_S) == code
    finally:
        os.close(reader)
        os.close(writer)


def test_no_bar_stays_on_the_screen(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "certify", "--jobs", "2"], cwd=tmp_path, env=environment(), stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    stop = False
    try:
        while True:
            try:
                more = os.read(master, 65_536)
            except OSError:
                break
            if not more:
                break
            shown += more
            if not stop and b"edges/s" in shown:
                stop = True
                process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    finally:
        process.kill()
        os.close(master)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode().rpartition("interrupted: ")[2])
    assert stop
    assert "edges/s" not in last


@pytest.mark.skipif(sys.platform != "linux", reason="the time of a process is found in /proc")
def test_a_long_plan_that_is_ended_is_reported_as_what_it_is(tmp_path: Path) -> None:
    keys = ("CPU", "CUDA", "XLA", "Meta", "Autograd")
    rows = "".join(f"  - {{impl: foo, dispatch: {keys[at % 5]}, debug: fn_{at}}}\n" for at in range(2_000))
    (tmp_path / "a.yaml").write_text(f"claim: Many kernels at a few keys.\nregistrations:\n{rows}")
    with subprocess.Popen(
        [*COMMAND, "permute", "a.yaml", "--format", "text"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        ticks = 0
        while ticks < 6 * os.sysconf("SC_CLK_TCK"):  # of its own time: it has begun, and is far from the end
            time.sleep(0.05)
            ticks = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11])
        process.terminate()
        out, err = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in err) == (143, False)
    assert "verdict: incomplete" in out
    assert "note: interrupted" in out


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("how", [None, signal.SIGINT, signal.SIGTERM])
def test_no_process_outlives_a_command_with_workers(tmp_path: Path, how: signal.Signals | None) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(many(4 if how is None else 18))
    case = f"outlives {tmp_path}"
    with subprocess.Popen(
        [*COMMAND, "permute", "a.yaml", "b.yaml", "--jobs", "2", "--progress"],
        cwd=tmp_path,
        env={**environment(), MARK: case},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        if how is not None:
            assert any("edges" in line for line in process.stderr)
            process.send_signal(how)
        process.wait(120)
        assert running(case) == {}
