"""Rules on what a package does to the running PyTorch, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")

PROGRAM = """
import sys
from dispatchlab.cli import main
select = [text for code in sys.argv[2:] for text in ("--select", code)]
main(["lint", "live", "--import", sys.argv[1], *select, "--format", "json"])
"""

PACKAGE = """
import torch

def make():
    library = torch.library.Library("unkept", "DEF")
    library.define("op(Tensor x) -> Tensor")
    library.cycle = library  # so that it goes when garbage is collected, and not before

make()
kept = torch.library.Library("kept", "DEF")
kept.define("op(Tensor x) -> Tensor")
kept.impl("op", lambda x: x, "CompositeImplicitAutograd")
kept.impl("op", lambda x: x, "PrivateUse1")
"""


def lint(folder: Path, module: str, *codes: str) -> list[dict[str, object]]:
    """What the rules find in a process that imports a module."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, *codes],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{Path(__file__).parent.parent.parent}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout, run.stderr
    (source,) = json.loads(run.stdout)["sources"]
    findings: list[dict[str, object]] = source["findings"]
    assert run.returncode == bool(findings)
    return findings


def test_a_def_that_nobody_keeps_and_a_disabled_composite_are_found(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(PACKAGE)
    found = lint(tmp_path, "careless")
    assert [(one["code"], one["operator"], one["key"]) for one in found] == [
        ("DL004", "kept::op", "PrivateUse1"),
        ("DL007", "unkept::op", None),
    ]
    assert "careless.py:9 via careless.py:6" in str(found[1]["message"])


def test_a_module_without_registrations_is_clean(tmp_path: Path) -> None:
    (tmp_path / "harmless.py").write_text("import torch\n")
    assert lint(tmp_path, "harmless") == []


@pytest.mark.skipif(find_spec("optimum") is None or find_spec("optimum.quanto") is None, reason="needs optimum-quanto")
def test_the_dangling_kernel_of_quanto_is_found(tmp_path: Path) -> None:
    (finding,) = lint(tmp_path, "optimum.quanto", "DL001", "DL012")
    assert finding["code"] == "DL012"
    assert finding["operator"] == "quanto_py::qbytes_mm"
    assert str(finding["message"]).endswith("did you mean quanto::qbytes_mm?")
