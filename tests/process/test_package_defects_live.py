"""The pages of defects of packages: the program finds it in the package that is installed, and the patch mends it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from dispatchlab.model.installed_torch import installed_torch
from tests.patched_package import patched
from tools.defect_programs import FIXED, HAS, PROGRAMS, run

PAGES = sorted((PROGRAMS / "packages").glob("*.md"))


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_program_finds_it_and_the_patch_mends_it(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (package, wanted), (program,), (patch,) = (
        *re.findall(r"^Package: (\S+) (\S+), beside PyTorch", text, re.MULTILINE),
        re.findall(r"```python\n(.*?)```", text, re.DOTALL),
        re.findall(r"```diff\n(.*?)```", text, re.DOTALL),
    )
    if installed_torch() is None or _installed(package) != wanted:
        pytest.skip(f"needs PyTorch, and {package}: pip install --no-deps {package}=={wanted}")
    file, copy = tmp_path / "program.py", tmp_path / "copy"
    file.write_text(program, encoding="utf-8")
    copy.mkdir()
    patched([patch], copy)
    assert run([file])[1] == {"program": HAS}
    environment = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run([file], environment=environment)[1] == {"program": FIXED}
