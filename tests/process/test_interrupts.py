"""Ctrl-C and SIGTERM end long runs within seconds, with what was covered, and leave no bar on the screen."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.packages import ROOT
from tests.scenario_texts import many

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


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", OF_PACKAGES)
def test_what_imports_packages_says_so_without_a_terminal_and_ends_at_once(
    tmp_path: Path, command: str, how: int, code: int
) -> None:
    pytest.importorskip("torch", reason="imports packages into the installed PyTorch, and there is none")
    (tmp_path / "endless.py").write_text("import time, torch\nwhile True:\n    time.sleep(1)\n")
    more = ("-o", "endless.yaml") if command == "record" else ()
    ended, out, err, seconds = stopped(tmp_path, how, command, "endless", *more)
    assert (ended, out, "Traceback" in err) == (code, "", False), err
    assert seconds < WITHIN_S
    assert not (tmp_path / "endless.yaml").exists()


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
