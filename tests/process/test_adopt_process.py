"""`doctor` and `init` on the installed PyTorch, as a new user runs them; and what the worker's path holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.adopt.doctor import FEATURES, diagnose
from dispatchlab.adopt.first_files import FOLDER  # at the top, for the sake of CONFTEST
from dispatchlab.pytorch.worker.engine import LiveEngine
from tests.live import forked
from tests.plugin_options import PLUGIN_OPTIONS

torch: Any = pytest.importorskip("torch", reason="tries features on the installed PyTorch, and there is none")

ROOT = Path(__file__).parents[2]
ON_PATH: list[str] = []
"""Folders whose packages count as installed."""

PACKAGE = """\
import torch

library = torch.library.Library("my_package", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
"""
CONFTEST = """\
def pytest_runtest_call(item):
    assert item.fixturenames is not None
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder, without what is there on the path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *ON_PATH])}
    return forked.python("-m", *arguments, folder=folder, environment=environment, path=())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout of a package that is not installed, with a conftest.py that expects test functions."""
    for name, text in {
        "pyproject.toml": '[project]\nname = "my-package"\nversion = "1"\n',
        "src/my_package/__init__.py": PACKAGE,
        "tests/conftest.py": CONFTEST,
        "tests/test_own.py": "def test_own():\n    pass\n",
        ".github/keep": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_after_init_pytest_is_green_with_a_golden_file(checkout: Path) -> None:
    made = run(checkout, "dispatchlab", "init")
    assert (made.returncode, made.stderr) == (0, "")
    golden = checkout / FOLDER / "expect" / "my_package.txt"
    assert "name: my_package::twice\n" in golden.read_text()
    assert "registered at my_package/__init__.py:5" in (checkout / FOLDER / "my_package.yaml").read_text()
    tested = run(checkout, "pytest", *PLUGIN_OPTIONS, "-p", "no:cacheprovider", "-rA")
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout
    assert f"PASSED {FOLDER}/my_package.yaml::permute" in tested.stdout
    golden.unlink()
    assert run(checkout, "pytest", *PLUGIN_OPTIONS, "-p", "no:cacheprovider").returncode == 1


def test_what_is_installed_is_compared_with_its_record(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = shutil.copytree(checkout / "src", checkout / "installed")
    monkeypatch.setattr(f"{__name__}.ON_PATH", [str(installed)])
    made = run(checkout, "dispatchlab", "init")
    assert (made.returncode, made.stderr) == (0, "")
    tested = run(checkout, "pytest", *PLUGIN_OPTIONS, "-p", "no:cacheprovider", "-rA", FOLDER)
    assert tested.returncode == 0, tested.stdout
    assert f"PASSED {FOLDER}/my_package.yaml::record" in tested.stdout
    (checkout / "src" / "my_package" / "__init__.py").write_text("raise RuntimeError('what is installed comes first')")
    assert run(checkout, "pytest", *PLUGIN_OPTIONS, "-p", "no:cacheprovider", FOLDER).returncode == 0
    (installed / "my_package" / "__init__.py").write_text(PACKAGE.replace('"CPU"', '"CUDA"'))
    changed = run(checkout, "pytest", *PLUGIN_OPTIONS, "-p", "no:cacheprovider", "-rA", FOLDER)
    assert changed.returncode == 1
    assert f"FAILED {FOLDER}/my_package.yaml::record" in changed.stdout


def test_init_on_a_module_that_is_not_there_writes_nothing(checkout: Path) -> None:
    failed = run(checkout, "dispatchlab", "init", "my_package.nothing")
    assert failed.returncode == 2
    assert "my_package.nothing cannot be imported" in failed.stderr
    assert not (checkout / FOLDER).exists()


def test_every_feature_works_with_the_pytorch_that_is_modelled() -> None:
    if not torch.__version__.startswith("2.13."):
        pytest.skip(f"what works is known of PyTorch 2.13, and this is {torch.__version__}")
    found = diagnose()
    assert found.torch is not None
    assert found.torch.version == torch.__version__
    assert [one.feature for one in found.torch.tried] == list(FEATURES.values())
    failed = {one.feature.name: one.why for one in found.torch.tried if one.state not in ("works", "limited")}
    assert failed == {}
    if sys.platform == "linux":
        assert {one.state for one in found.torch.tried} == {"works"}


def test_a_feature_that_crashes_or_hangs_does_not_keep_the_others_from_being_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = {name: FEATURES[name] for name in ("slots", "leaks", "keys")}
    monkeypatch.setattr("dispatchlab.adopt.doctor.FEATURES", chosen)
    calls = {
        "slots": ("os:abort", ()),
        "leaks": ("time:sleep", (600,)),
        "keys": ("dispatchlab.adopt.live_probes:keys", ()),
    }
    monkeypatch.setattr(
        "dispatchlab.adopt.doctor._run", lambda engine, probe: engine.ask(calls[probe][0], *calls[probe][1])
    )
    found = diagnose(timeout_s=10)
    assert found.torch is not None
    slots, leaks, keys = found.torch.tried
    assert (slots.state, leaks.state, keys.state) == ("fails", "fails", "works")
    assert "SIGABRT" in slots.why
    assert leaks.why == "it did not end within 10 s"


def test_doctor_prints_json_and_nothing_else() -> None:
    result = run(ROOT, "dispatchlab", "doctor", "--format", "json")
    parsed = json.loads(result.stdout)
    assert (result.stderr, parsed["version"], parsed["torch"]["version"]) == ("", 4, torch.__version__)


def test_the_worker_finds_no_part_of_this_package_under_a_name_of_its_own() -> None:
    """A user's `records` or `views` must be imported as such, and not shadowed by `dispatchlab.records`."""

    def is_ours(spec: ModuleSpec | None) -> bool:
        folders = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin or ""]
        return any(Path(folder).is_relative_to(ROOT / "dispatchlab") for folder in folders)

    with LiveEngine() as engine:
        parts = sorted(path.stem for path in (ROOT / "dispatchlab").glob("[!_]*.py"))
        parts += sorted(path.parent.name for path in (ROOT / "dispatchlab").glob("*/__init__.py"))
        assert {"records", "views"} <= {*parts}
        assert is_ours(engine.ask("importlib.util:find_spec", "dispatchlab.records"))
        found = [name for name in parts if is_ours(engine.ask("importlib.util:find_spec", name))]
    assert found == []
