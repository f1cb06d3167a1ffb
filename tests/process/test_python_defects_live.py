"""Commands find the defects of docs/python_defects.md, and patches of PyTorch mend them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from dispatchlab.model.measured import installed_torch
from tests import effort
from tests.patched_package import patched
from tools.defect_programs import FIXED, run
from tools.defect_reports import PATCHES
from tools.python_defects import PAGE, PROGRAMS, PYTHON_DEFECTS, PythonDefect, page

TORCH = installed_torch()
VERSION = ".".join((TORCH or "").split("+")[0].split(".")[:2])
KNOWN = {one.name: one.versions()[VERSION] for one in PYTHON_DEFECTS if VERSION in one.versions()}
"""Whether the installed PyTorch has each of the defects of which that is known."""


def test_the_page_is_what_the_list_and_the_programs_say() -> None:
    if os.environ.get("EXPECTTEST_ACCEPT"):
        PAGE.write_text(page(), encoding="utf-8", newline="\n")
    assert PAGE.read_text(encoding="utf-8") == page()
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {one.name for one in PYTHON_DEFECTS}
    assert max(len(one.program.read_text(encoding="utf-8").splitlines()) for one in PYTHON_DEFECTS) <= 20


patched_2_13 = pytest.mark.skipif(VERSION != "2.13", reason="the patches are of PyTorch 2.13")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a PyTorch to which all patches are applied."""
    folder = tmp_path_factory.mktemp("patched")
    patched([patch.read_text(encoding="utf-8") for patch in sorted(PATCHES.glob("*.patch"))], folder)
    return folder


@patched_2_13
def test_the_patches_of_python_code_mend_what_their_programs_find(copy: Path) -> None:
    patches = sorted(PATCHES.glob("*.patch"))
    environment = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    _, found = run([PROGRAMS / f"{patch.stem}.py" for patch in patches], environment=environment)
    assert found == {patch.stem: FIXED for patch in patches}
    assert all(KNOWN[name] for name in found)


@patched_2_13
def test_histories_under_the_patches_show_nothing_but_that_what_is_registered_twice_is_refused(copy: Path) -> None:
    path, count = os.pathsep.join((str(copy), *sys.path)), 2000 if effort.percent == 100 else 60
    done = subprocess.run(
        [sys.executable, "-m", "tests.live.patched_histories", str(count)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    kernels = {f"{one}_after_{one}" for one in ("kernel", "autograd", "vmap", "autocast")}
    assert {*found["gone"]} == {"fake_after_fake", "meta_after_fake", "fake_after_meta"} | kernels
    assert not found["new"]
    assert not found["differences"]
    assert min(found["steps"][kind] for kind in ("registered", "released", "duplicate_kernel")) > 0


@pytest.mark.parametrize("defect", [one for one in PYTHON_DEFECTS if one.scenario], ids=lambda one: one.name)
def test_the_command_finds_it_in_the_scenario(defect: PythonDefect) -> None:
    command = defect.found_by.split("`")[1]
    semantics = ("--semantics", "torch-2.13") if command == "permute" else ()
    result = CliRunner().invoke(main, [command, f"scenarios/{defect.scenario}.yaml", *semantics, "--format", "json"])
    found = json.loads(result.stdout)
    match command:
        case "permute":
            assert found["verdict"] == "order-dependent"
        case "lint":
            assert "DL001" in {one["code"] for one in found["sources"][0]["findings"]}
        case _:
            raise AssertionError(f"no test knows what {command} finds")


@pytest.mark.skipif(not KNOWN, reason="no PyTorch of a version that was looked at")
def test_imports_finds_what_inductor_copies(tmp_path: Path) -> None:
    (tmp_path / "early_copy.py").write_text(
        "import torch\n"
        "def mine(x, *others):\n"
        "    return x\n"
        "torch._decomp.decomposition_table[torch.ops.aten.addmv.default] = mine\n",
        encoding="utf-8",
    )
    path = os.pathsep.join((str(tmp_path), *sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "dispatchlab", "imports", "early_copy", "torch._inductor.decomposition"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "inductor_decompositions of aten::addmv, registered at early_copy.py:2" in done.stdout
