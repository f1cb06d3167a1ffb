"""A PyTorch that nobody knows yet: each live command works, or says in one sentence what does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests.live.packages import ROOT
from tests.live.packages import dispatchlab_started as dispatchlab  # which reads sitecustomize.py
from tests.scenario_texts import FIVE

NEW, VERSION = "BrandNew", "2.99.0.dev1"
"""What tests/live/nightly/sitecustomize.py makes of the installed PyTorch."""

SAMPLE = """\
import torch

library = torch.library.Library("sample", "DEF")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x, "CompositeImplicitAutograd")
"""

WORKS = {
    "record --all -o all.dlreg": "",
    "record sample -o sample.yaml": f"no registry of PyTorch {VERSION} comes with dispatchlab",
    "check sample --orders": "",
    "check sample --only lint": "",
    "diff torch-2.13 live": "",
    "coverage live --key CPU": "",
    "permute five.yaml --engine torch": "",
    "doctor --measure mine.json": f"a profile of a PyTorch\nPyTorch {VERSION}: ",
    "permute five.yaml --semantics mine.json": "",
}
"""Commands that work, each with what standard error says."""

DOES_NOT = {
    "dump aten::add.Tensor --engine torch": f"dispatchlab does not know the dispatch key {NEW}",
    "explain aten::add.Tensor --engine torch": f"dispatchlab does not know the dispatch key {NEW}",
    "permute five.yaml --engine torch --conform": "there is no model of torch-2.99; there are strict",
}
"""Commands that do not work, each with its sentence."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to run in, with a package and a scenario, whose PyTorch is the stand-in."""
    (tmp_path / "sample.py").write_text(SAMPLE)
    (tmp_path / "five.yaml").write_text(FIVE)
    (tmp_path / "sitecustomize.py").write_text((ROOT / "tests" / "live" / "nightly" / "sitecustomize.py").read_text())
    return tmp_path


def test_what_works_with_a_nightly_works(folder: Path) -> None:
    for command, said in WORKS.items():
        done = dispatchlab(folder, *command.split())
        assert done.returncode == 0, (command, done.stderr)
        assert said in done.stderr, command
    keys = json.loads((folder / "mine.json").read_text())["keys"]
    assert NEW in keys
    assert f"Sparse{NEW}" in keys


def test_what_does_not_work_with_a_nightly_says_so_in_a_sentence(folder: Path) -> None:
    for command, sentence in DOES_NOT.items():
        done = dispatchlab(folder, *command.split())
        assert done.returncode == 2, (command, done.stderr)
        assert sentence in done.stderr, command
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_doctor_says_what_works_with_a_nightly(folder: Path) -> None:
    done = dispatchlab(folder, "doctor")
    assert f"PyTorch {VERSION}" in done.stdout
    assert (
        f"limited: it has {NEW}, Quantized{NEW}, Sparse{NEW} and 3 more, which dispatchlab does not know" in done.stdout
    )
    assert "Traceback" not in done.stdout + done.stderr
