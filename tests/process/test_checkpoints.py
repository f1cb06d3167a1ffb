"""Runs that are killed at random moments and go on from a checkpoint end as one that was not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatchlab.prover import walk_log
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.questions.certify.blocks import certification_view
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.questions.order.blocks import report_view
from dispatchlab.questions.order.run_scenario import Outcome, RunOptions
from dispatchlab.questions.order.run_scenarios import run_scenarios
from dispatchlab.records.file import open_bundled
from tests.effort import share

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KILLS = max(10, share(30))
KEYS = ("CPU", "CUDA", "XLA", "Meta", "AutogradCPU", "AutogradCUDA", "Tracer", "Autograd", "MPS", "HPU")


def scenarios(folder: Path) -> list[str]:
    """A long proof, refusals, an override, and a small one."""
    long = "".join(f"  - impl: foo {key} fn_{key}\n" for key in KEYS)
    texts = {
        "long": f"  - def: foo(Tensor x) -> Tensor\n{long}",
        "refused": "  - def: foo(Tensor x) -> Tensor\n  - def: foo(Tensor x) -> Tensor\n  - impl: foo CPU a\n",
        "override": "  - impl: foo CPU a\n  - impl: foo CPU b\n  - impl: foo CUDA c\n",
    }
    files = []
    for name, text in texts.items():
        lines = re.sub(r"impl: (\w+) (\w+) (\w+)", r"{impl: test::\1, dispatch: \2, debug: \3}", text)
        lines = re.sub(r"def: (foo.*)", r"{def: 'test::\1'}", lines)
        file = folder / f"{name}.yaml"
        file.write_text(f"claim: {name} registrations of one operator\nregistrations:\n{lines}")
        files.append(str(file))
    return files


def explored(files: list[str], checkpoint: str | None) -> str:
    lines = []
    options = RunOptions(checkpoint=checkpoint, walk="graph")
    for _, outcome in run_scenarios(files, options, progress=lambda *_: None, finished=lambda _: None):
        assert isinstance(outcome, Outcome), outcome
        lines.append(_timeless(report_view(outcome.report).json()))
    return "\n".join(lines)


def certified(checkpoint: str | None) -> str:
    recorded = open_bundled("torch-2.13")
    chosen = [operator for operator in recorded if str(operator.name).startswith("aten::ab")]
    found = certification_of(recorded, name="torch-2.13", operators=chosen, checkpoint=checkpoint)
    assert len(found.certificates) == len(chosen) > 3
    return _timeless(certification_view(found).json())


def _timeless(text: str) -> str:
    changed, count = re.subn(r'("elapsed_s": )[-+.e\d]+', r"\g<1>0", text)
    assert count
    return changed


def run_and_kill(work: Callable[[], str], result: Path, after_s: float) -> bool:
    """Run in a process of its own that is killed after some time; whether it was."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            text = work()
            result.write_text(text)
            code = 0
        finally:
            os._exit(code)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def killed_until_done(work: Callable[[], str], result: Path, shortest_s: float) -> tuple[int, str]:
    """Kill it again and again until it comes to its end; how often it was killed, and its result."""
    random = SplitMix64(1)
    kills, wait = 0, shortest_s
    while run_and_kill(work, result, wait * (50 + random.below(100)) / 100):
        kills += 1
        if kills >= KILLS:
            wait *= 1.5
    return kills, result.read_text()


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("command", ["permute", "certify"])
def test_what_was_found_is_printed_where_the_checkpoint_does_not_fit_on_the_disk(
    tmp_path: Path, command: str, jobs: str
) -> None:
    files = scenarios(tmp_path)
    arguments = [*(files if command == "permute" else files[:1]), "--format", "json", "--jobs", jobs]
    line = [sys.executable, "-m", "dispatchlab", command, *arguments]
    whole = subprocess.run(line, capture_output=True, text=True, check=False)
    assert whole.returncode == int(command == "permute")  # two of the scenarios are not as expected
    checkpoint = tmp_path / "run.ck"
    line += ["--checkpoint", str(checkpoint)]
    small = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *line]  # no file has more than 1 KiB
    found = subprocess.run(small, capture_output=True, text=True, check=False)
    assert _steady(found.stdout) == _steady(whole.stdout)
    assert f"{checkpoint} could not be written: File too large\n" in found.stderr
    assert found.returncode == 2
    assert 0 < checkpoint.stat().st_size <= 1024
    again = subprocess.run(line, capture_output=True, text=True, check=False)  # goes on from what was kept
    assert (again.returncode, _steady(again.stdout)) == (whole.returncode, _steady(whole.stdout))


def _steady(text: str) -> str:
    """Without what depends on the checkpoint and the clock."""
    return re.sub(r'"no checkpoint: [^"]*"', "", _timeless(text))


def test_scenarios_that_are_killed_again_and_again_are_explored_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk_log, "_EVERY_S", 0.01)
    monkeypatch.setattr(walk_log, "_SHARE", 1)
    files = scenarios(tmp_path)
    wanted = explored(files, None)
    checkpoint = str(tmp_path / "run.ck")
    kills, found = killed_until_done(lambda: explored(files, checkpoint), tmp_path / "result", 0.03)
    assert kills >= KILLS
    assert found == wanted
    assert explored(files, checkpoint) == wanted  # now all of it comes from the file
    assert [name for name in os.listdir(tmp_path) if ".ck" in name] == ["run.ck"]


def test_a_certification_that_is_killed_goes_on(tmp_path: Path) -> None:
    wanted = certified(None)
    checkpoint = str(tmp_path / "certify.ck")
    kills, found = killed_until_done(lambda: certified(checkpoint), tmp_path / "result", 0.02)
    assert kills >= KILLS
    assert found == wanted


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_goes_on_after_a_signal_and_says_what_it_would_have_said(tmp_path: Path, jobs: str) -> None:
    scenarios(tmp_path)
    command = [sys.executable, "-m", "dispatchlab", "permute", str(tmp_path), "--format", "json", "--jobs", jobs]
    whole = subprocess.run(command, capture_output=True, text=True, check=False)
    assert whole.returncode == 1  # two of them are not as expected
    command += ["--checkpoint", str(tmp_path / "run.ck")]
    for sent in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1.0)
        running.send_signal(sent)
        running.communicate()
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stderr
    assert _timeless(found.stdout) == _timeless(whole.stdout)
    refused = subprocess.run([*command, "--free"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is the checkpoint of another run: --free was not given and is True;" in refused.stderr
    assert len([json.loads(each) for each in re.split(r"\n(?=\{)", found.stdout.strip())]) == 3
