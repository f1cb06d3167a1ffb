"""What needs no PyTorch works on a system without fork, fcntl and resource; what needs fork says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from tests.scenario_texts import COMPOSITES, FIVE

ROOT = Path(__file__).parents[1]

SITE = """
import os
import sys


class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing)
for name in ("fcntl", "resource"):
    sys.modules.pop(name, None)
if hasattr(os, "fork"):
    del os.fork
"""
"""Python imports it at its start, in children, too."""

COMMANDS = (
    "permute five.yaml composites.yaml",
    "permute composites.yaml --snapshots --report report.html",
    "permute torch-2.13 --operator aten::relu --format json",
    "dump foo --from five.yaml",
    "dump aten::relu --from torch-2.13-cpu",
    "explain aten::add.Tensor cpu+grad cpu --from torch-2.13",
    "check five.yaml",
    "check torch-2.13-cpu --operator aten::relu",
    "coverage torch-2.13-cpu --key XLA --operator aten::relu",
    "diff torch-2.12 torch-2.13 --operator aten::relu",
    "rule DL004",
    "demo",
)

RUN = f"""
import json, os
from click.testing import CliRunner
from dispatchlab.cli import main

assert not hasattr(os, "fork")
for name in ("fcntl", "resource"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(name)
results = [CliRunner().invoke(main, command.split()) for command in {COMMANDS!r}]
json.dump([[result.exit_code, result.stdout] for result in results], open("results.json", "w"))
"""

QUICK = (
    "tests/test_files.py",
    "tests/test_records_file.py",
    "tests/test_processes.py",
    "tests/test_pytest_plugin.py::test_golden_files_are_written_only_when_asked_and_then_hold",
    "scenarios/basics",
)
"""A part of the quick tier that reads, writes and measures memory."""


PACKAGE = """
import torch

library = torch.library.Library("unforked", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which Python has neither fork nor fcntl nor resource; scenarios are in the folder."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    for name, text in (("five", FIVE), ("composites", COMPOSITES)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path / "site"), str(ROOT)))}


def without_time(text: str) -> str:
    """Return an output without the lines and fields that say how long something took."""
    return "\n".join(line for line in text.splitlines() if "elapsed" not in line and " besides, " not in line)


def test_commands_show_the_same(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, env=environment, check=True)
    found = json.loads((tmp_path / "results.json").read_text())
    monkeypatch.chdir(tmp_path)
    for command, (code, output) in zip(COMMANDS, found, strict=True):
        result = CliRunner().invoke(main, command.split())
        assert (code, without_time(output)) == (result.exit_code, without_time(result.stdout)), command
        assert output


def test_a_part_of_the_quick_tier_passes(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *QUICK]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_what_needs_fork_says_so(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
    (tmp_path / "unforked.py").write_text(PACKAGE)
    path = os.pathsep.join((str(tmp_path), environment["PYTHONPATH"]))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dispatchlab", *arguments]
        environ = environment | {"PYTHONPATH": path}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    sentence = "this runs in a copy of a process and needs fork, which this system lacks: use Linux or macOS\n"
    defects = run("doctor", "--defects")
    assert (defects.returncode, defects.stdout, defects.stderr) == (2, "", sentence)
    assert f"\n  trials      not asked: {sentence}" in run("check", "unforked").stdout
