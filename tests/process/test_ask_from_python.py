"""The functions that ask a question: their results print, compare, and show in notebooks, and mypy knows them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dispatchlab
from dispatchlab import Result, certify, coverage, lint
from tests.live import forked
from tests.live.packages import ROOT

SCENARIO = str(ROOT / "scenarios" / "lint" / "dl012_found.yaml")

PROGRAM = """
from dispatchlab import Def, Impl, Result, certify, check, check_order, coverage, lint, record
from dispatchlab.questions.lint.rule import LintReport

found: Result[LintReport] = lint("torch-2.13", operators=["aten::relu"], select=["DL001"])
codes: list[str] = [finding.code for finding in found.report.findings]
texts: list[str] = [str(found), repr(coverage("PrivateUse1", of="torch-2.13")), found._repr_html_()]
proved: int = len(certify("torch-2.13", operators=["aten::relu"]).report.certificates)
text: str = record("my_package").report.text
code: int = check("my_package", baseline="accepted.json").report.exit_code
as_expected: bool = check_order([Def("test::foo(Tensor x) -> Tensor"), Impl("test::foo", "CPU")]).as_expected
same: bool = check("my_package") == check("my_package")
"""

PACKAGE = """
import torch

library = torch.library.Library("asked", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
"""

ASKING = """
from dispatchlab import check, coverage, dump, explain, lint, record

print(dump("asked::twice", of="asked"), explain("asked::twice", of="asked").kernels)
print(coverage("CPU", of="asked", operators=["asked::*"]), lint("asked") == lint(package="asked"))
for ask in (check, record, lambda name: lint(package=name)):
    one, other = ask("asked"), ask("asked")
    print(repr(one), one == other, str(one) == str(other), "twice" in one._repr_html_())
"""


def test_a_user_s_program_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": "", "MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "program.py" not in done.stdout, done.stdout
    (tmp_path / "program.py").write_text(PROGRAM.replace("codes: list[str]", "codes: list[int]"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": "", "MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"program\.py:6: error: List comprehension has incompatible type", done.stdout), done.stdout


@pytest.mark.parametrize(
    "ask",
    [
        lambda: lint(SCENARIO),
        lambda: coverage("PrivateUse1", of="torch-2.13-cpu", operators=["aten::relu*"]),
        lambda: certify("torch-2.13", operators=["aten::relu"]),
    ],
    ids=["lint", "coverage", "certify"],
)
def test_a_result_prints_compares_and_shows_in_a_notebook(ask: object) -> None:
    assert callable(ask)
    one, other = ask(), ask()
    assert isinstance(one, Result)
    assert one == other
    assert one is not other
    assert one != lint("torch-2.13", operators=["aten::add.Tensor"])
    assert re.fullmatch(r"<Result: \S.*>", repr(one))
    assert len(str(one).splitlines()) > 1
    html = one._repr_html_()
    assert html.startswith('<div class="dispatchlab">')
    assert html.count("<details>") >= 1


def test_packages_are_asked_about_with_equal_results(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")
    (tmp_path / "asked.py").write_text(PACKAGE)
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""}
    done = forked.run(ASKING, folder=tmp_path, environment=environment, having=forked.COMPILERS)
    *before, first, second, third = done.stdout.splitlines()
    shown, lines = "\n".join(before), (first, second, third)
    assert shown.startswith("name: asked::twice\nschema: asked::twice(Tensor x) -> Tensor\n")
    assert "\nCPU: registered at asked.py:6 ::" in shown
    assert shown.endswith(" True")
    assert [line.rpartition(">")[2] for line in lines] == [" True True True"] * 3, done.stdout
    assert lines[0].startswith("<Result: asked: ")
    assert lines[1].startswith("<Result: asked: 3 registrations>")


def test_to_import_the_package_imports_none_of_it() -> None:
    program = (
        "import sys, dispatchlab\n"
        "before = sorted(name for name in sys.modules if name.startswith('dispatchlab'))\n"
        "from dispatchlab import lint\n"
        "print(before, lint.__module__, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "['dispatchlab', 'dispatchlab._lazy'] dispatchlab.api False\n"


def test_a_question_about_no_package_says_what_to_name() -> None:
    for function in (dispatchlab.check, dispatchlab.record):
        with pytest.raises(dispatchlab.DispatchLabError, match="expected the name of a package"):
            function()
