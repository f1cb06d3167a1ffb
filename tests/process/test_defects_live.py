"""docs/defects.md is what the models say, and its programs show on the installed PyTorch what the page says of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dispatchlab.model.installed_torch import installed_torch
from dispatchlab.model.measured import model_for
from dispatchlab.model.profile import bundled_profiles, version_of
from tools.defects import DEFECTS, PAGE, has, page, table

TORCH = installed_torch()


def test_the_page_is_what_the_scenarios_show_on_every_model() -> None:
    text = page(table())
    if os.environ.get("EXPECTTEST_ACCEPT"):
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    assert PAGE.read_text(encoding="utf-8") == text


_EACH_IN_A_CHILD = """
import os, runpy, sys
import torch
for path in sys.argv[1:]:
    if not (child := os.fork()):
        runpy.run_path(path)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(
    TORCH is None or version_of(TORCH) not in map(version_of, bundled_profiles()), reason="no PyTorch with a model"
)
def test_the_programs_show_the_defects_that_the_version_has() -> None:
    shown = [defect for defect in DEFECTS if defect.program]
    command = [sys.executable, "-W", "ignore", "-c", _EACH_IN_A_CHILD, *(str(defect.program) for defect in shown)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = {
        defect.name: line.startswith("defect: ") for defect, line in zip(shown, done.stdout.splitlines(), strict=True)
    }
    assert found == {defect.name: has(defect, model_for(TORCH)) for defect in shown}, done.stdout
    assert 0 < sum(found.values()) < len(found)
