"""Rules on what a package does to the running PyTorch, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.json_schema import errors
from tests.live import forked
from tests.test_sarif import schema

pytest.importorskip("torch")

PROGRAM = """
import sys
from dispatchlab.cli import main
select = [text for code in sys.argv[2:] for text in ("--select", code)]
main(["check", "--only", "lint", "--no-submodules", sys.argv[1], *select, "--format", "json"])
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
    run = run_lint(folder, module, *codes)
    assert run.stdout, run.stderr
    (source,) = json.loads(run.stdout)["answers"]
    findings: list[dict[str, object]] = source["findings"]
    assert run.returncode == bool(findings)
    return findings


def run_lint(folder: Path, module: str, *codes: str) -> subprocess.CompletedProcess[str]:
    """Run the rules in a process that imports a module."""
    environment = {"PYTHONPATH": f"{folder}:{Path(__file__).parent.parent.parent}", "PATH": ""}
    return forked.run(PROGRAM, module, *codes, folder=folder, environment=environment)


def test_a_def_that_nobody_keeps_and_a_disabled_composite_are_found(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(PACKAGE)
    found = lint(tmp_path, "careless")
    assert [(one["code"], one["operator"], one["key"]) for one in found] == [
        ("DL004", "kept::op", "PrivateUse1"),
        ("DL007", "unkept::op", None),
    ]
    assert "careless.py:9 via careless.py:6" in str(found[1]["message"])


@pytest.mark.parametrize("code", ["import torch\n", "import torch.distributed._functional_collectives\n"])
def test_a_module_without_registrations_is_nothing_to_check(tmp_path: Path, code: str) -> None:
    (tmp_path / "harmless.py").write_text(code)
    done = run_lint(tmp_path, "harmless")
    value = json.loads(done.stdout)
    assert (done.returncode, value["nothing"], value["answers"][0]["asked"]) == (2, ["harmless"], False)
    assert value["summary"].startswith("harmless: nothing is registered: ")


QUANTO = find_spec("optimum") is not None and find_spec("optimum.quanto") is not None


def pinned(found: list[dict[str, object]]) -> dict[object, set[str]]:
    """The operators of each code."""
    codes: dict[object, set[str]] = {}
    for one in found:
        codes.setdefault(one["code"], set()).add(str(one["operator"]))
    return codes


@pytest.mark.skipif(not QUANTO, reason="needs optimum-quanto")
def test_the_findings_on_quanto_are_these(tmp_path: Path) -> None:
    found = lint(tmp_path, "optimum.quanto")
    assert pinned(found) == {
        "DL010": {"quanto::qbytes_mm", "quanto::quantize_affine", "quanto::quantize_symmetric", "quanto::unpack"},
        "DL012": {"quanto_py::qbytes_mm"},
    }
    (dangling,) = (one for one in found if one["code"] == "DL012")
    assert str(dangling["message"]).endswith("did you mean quanto::qbytes_mm?")
    assert "optimum/quanto/library/qbytes_mm.py:" in str(dangling["message"])


@pytest.mark.skipif(find_spec("torchao") is None, reason="needs torchao")
def test_the_findings_on_torchao_are_these(tmp_path: Path) -> None:
    """Its extension is for other versions of Python and has not loaded, so what it defines in Python cannot run."""
    found = pinned(lint(tmp_path, "torchao"))
    assert set(found) <= {"DL010", "DL011"}
    assert len(found["DL011"]) == 11
    assert "torchao::da8w4_linear_cpu" in found["DL011"]
    assert {name.partition("::")[0] for names in found.values() for name in names} <= {"torchao", "ao", "float8_sparse"}


CHECKOUT = """
import torch

lib = torch.library.Library("srcpkg", "DEF")

def register(name):
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, lambda x: x.sin(), "CPU")

for name in ("one", "two"):
    register(name)
lib.define("three(Tensor x) -> Tensor")
lib.impl("three", lambda x: x.sin(), "CPU")
"""


@pytest.mark.parametrize("installed", [True, False])
def test_sarif_has_the_lines_of_the_calls_in_a_src_layout(tmp_path: Path, *, installed: bool) -> None:
    checkout, packages = tmp_path / "checkout", tmp_path / "packages"
    (checkout / ".git").mkdir(parents=True)
    for folder in (checkout / "src", packages):
        (folder / "srcpkg").mkdir(parents=True)
        (folder / "srcpkg" / "__init__.py").write_text("from srcpkg import ops\n")
        (folder / "srcpkg" / "ops.py").write_text(CHECKOUT)
    where = packages if installed else checkout / "src"
    line = ["check", "srcpkg", "--only", "lint", "--select", "DL006", "--format", "sarif"]
    run = subprocess.run(
        [sys.executable, "-m", "dispatchlab", *line],
        cwd=checkout / "src",
        env={"PYTHONPATH": f"{where}:{Path(__file__).parent.parent.parent}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    value = json.loads(run.stdout)
    assert errors(value, schema()) == []
    (sarif,) = value["runs"]
    assert sarif["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"{checkout.resolve().as_uri()}/"
    places = [result["locations"][0]["physicalLocation"] for result in sarif["results"]]
    assert {place["artifactLocation"]["uri"] for place in places} == {"src/srcpkg/ops.py"}
    assert {place["artifactLocation"]["uriBaseId"] for place in places} == {"%SRCROOT%"}
    assert sorted(place["region"]["startLine"] for place in places) == [11, 13]
