"""A PyTorch whose version nobody knows, which is the installed one by another name: it is measured as what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.model.measured import CACHE, NO_MEASURE, installed_torch, installed_torch_folder
from dispatchlab.model.profile import bundled_profile, bundled_profiles, read_profile
from tests.live.packages import ROOT
from tests.scenario_texts import FIVE

NAME = "torch-" + ".".join(str(installed_torch()).split(".")[:2])
pytestmark = pytest.mark.skipif(NAME not in bundled_profiles(), reason="nothing of this PyTorch is bundled")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the installed PyTorch as version 2.99: links to its files, and another version.py."""
    real, stand_in = Path(str(installed_torch_folder())), tmp_path / "next" / "torch"
    stand_in.mkdir(parents=True)
    for path in real.iterdir():
        if path.name not in ("version.py", "__pycache__"):
            (stand_in / path.name).symlink_to(path)
    text = (real / "version.py").read_text().replace(str(installed_torch()), "2.99.0+cpu")
    (stand_in / "version.py").write_text(text)
    metadata = tmp_path / "next" / "torch-2.99.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0+cpu\n")
    (tmp_path / "five.yaml").write_text(FIVE)
    return tmp_path


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command, with that PyTorch and a cache of its own."""
    variables = {name: value for name, value in os.environ.items() if name != NO_MEASURE}
    variables |= {"PYTHONPATH": f"{folder / 'next'}{os.pathsep}{ROOT}", CACHE: str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", *arguments],
        cwd=folder, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_two_commands_measure_once_and_the_profile_is_the_bundled_one(folder: Path) -> None:
    both = [started(folder, "permute", "five.yaml", "--semantics", "torch") for _ in range(2)]
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("measuring the profile of PyTorch 2.99.0+cpu, once" in error for _, error in outputs) == 1
    assert all("model: measured on this PyTorch, 2.99.0+cpu" in error for _, error in outputs)
    assert all("engine: lab, torch-2.99" in output for output, _ in outputs)
    (path,) = (folder / "cache").glob("*.json")
    found, bundled = read_profile(path), bundled_profile(NAME)
    for field in ("keys", "runtime", "precedence", "aliases", "refresh_on_register", "refresh_on_release", "fallbacks"):
        assert getattr(found, field) == getattr(bundled, field), field
    conform = started(folder, "permute", "five.yaml", "--engine", "torch", "--conform")
    output, error = conform.communicate()
    assert conform.returncode == 0, error
    assert "torch-2.99" in output
    assert "measuring" not in error
