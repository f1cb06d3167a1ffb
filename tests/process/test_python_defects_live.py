"""Commands find the defects of docs/python_defects.md, and patches of PyTorch mend them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dispatchlab.model.measured import installed_torch
from tests.patched_package import patched
from tools.defect_programs import FIXED, run
from tools.defect_reports import PATCHES
from tools.python_defects import PAGE, PROGRAMS, PYTHON_DEFECTS, page

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
