"""The commands on the running PyTorch: operators that are installed, crashes, Ctrl-C, and the printed program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.registries.builds import bundled_for
from tests.live.packages import ROOT, dispatchlab, dispatchlab_started, package
from tests.scenario_texts import COMPOSITES, FIVE, many

_DOOR = """\
import torch
lib = torch.library.Library("street", "FRAGMENT")
lib.define("door(Tensor x) -> Tensor")
lib.define("door.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
lib.impl("door", lambda x: x, "CPU")
"""


def test_any_operator_of_the_installed_pytorch_is_shown(tmp_path: Path) -> None:
    options = ("--format", "text", "--layer", "cxx")
    done = dispatchlab(tmp_path, "dump", "aten::add.Tensor", "--engine", "torch", *options)
    assert (done.returncode, done.stderr) == (0, "")
    dump, _, table = done.stdout.partition("\n\n")
    assert dump.startswith(
        "name: aten::add.Tensor\n"
        "schema: aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor\n"
        "debug: registered at "
    )
    assert "Meta: registered at torch/_meta_registrations.py:" in dump
    row = dispatchlab(tmp_path, "dump", "aten::add.Tensor", "--engine", "torch", *options, "--key", "CPU")
    name, _, shown = row.stdout.partition("\n\n")
    assert name == "name: aten::add.Tensor"
    assert shown in table
    assert re.fullmatch(r"CPU: registered at \S*RegisterCPU_\d+\.cpp:\d+ \[kernel\]\n", shown)


_FORMULA = """\
import torch
lib = torch.library.Library("street", "FRAGMENT")
lib.define("lamp(Tensor x) -> Tensor")
lib.impl("lamp", lambda x: x + 1, "CPU")
torch.library.register_autograd("street::lamp", lambda ctx, grad: grad, lib=lib)
lib.define("post(Tensor x) -> Tensor")
lib.impl("post", lambda x: x + 1, "CPU")
lib.impl("post", lambda x: x + 1, "Autograd")
"""


def test_a_formula_on_a_library_of_the_package_is_known_to_redispatch(tmp_path: Path) -> None:
    package(tmp_path, "formulas", init=_FORMULA)
    shown = {
        name: dispatchlab(tmp_path, "explain", f"street::{name}", "cpu+grad", "--from", "formulas").stdout
        for name in ("lamp", "post")
    }
    assert "runs: AutogradCPU -> CPU\n" in shown["lamp"]
    assert "what comes next is not known" not in shown["lamp"]
    assert "what comes next is not known" in shown["post"]


def test_operators_of_an_imported_package_match_a_glob(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_DOOR)
    imported = ["--engine", "torch", "--from", "street"]
    done = dispatchlab(tmp_path, "dump", "street::*", *imported, "--format", "json")
    report = json.loads(done.stdout)
    assert [each["name"] for each in report["operators"]] == ["street::door", "street::door.out"]
    assert (report["scenario"], report["engine"]) == ("live", "torch")
    assert [(each["key"], each["debug"]) for each in report["operators"][0]["kernels"]] == [
        ("CPU", "registered at street/__init__.py:5")
    ]


@pytest.mark.parametrize("before", ["torch-2.13-cpu", "live"])
def test_what_pytorch_registers_for_itself_meanwhile_is_left_out_of_diff_and_counted(
    tmp_path: Path, before: str
) -> None:
    package(tmp_path, "street", init=f"import torch.distributed._functional_collectives\n{_DOOR}")
    if before not in ("live", bundled_for(version("torch"))):
        pytest.skip("another PyTorch is installed")
    done = dispatchlab(tmp_path, "diff", before, "street")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{before} -> live: no caller breaks by a schema, ")
    assert lines[3] == "added: street 2"
    assert re.fullmatch(r"left out: \d\d+ operators that PyTorch registers on first use of a part: see --all", lines[4])
    assert [" ".join(line.split()) for line in lines[lines.index("Added operators (2)") + 2 :]] == [
        "street::door (Tensor x) -> Tensor CPU registered at street/__init__.py:4",
        "street::door.out (Tensor x, *, Tensor(a!) out) -> Tensor(a!) registered at street/__init__.py:5",
    ]


def test_what_pytorch_registers_for_itself_meanwhile_is_not_certified(tmp_path: Path) -> None:
    package(tmp_path, "quiet", init="import torch.distributed._functional_collectives\n")
    done = dispatchlab(tmp_path, "permute", "quiet", "--format", "text")
    assert (done.returncode, done.stdout) == (2, "")
    assert "quiet has no operator to certify: each is as in torch-2.13-cpu, or only PyTorch changed it, " in done.stderr


def test_an_unknown_operator_is_refused_with_the_nearest_one_of_the_imported_package(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_DOOR)
    done = dispatchlab(tmp_path, "dump", "street::dor", "--engine", "torch", "--from", "street")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"there is no operator street::dor in PyTorch \S+ \+ street; did you mean street::door.*\?\n", done.stderr
    )


def test_a_package_that_is_not_imported_has_no_operators(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_DOOR)
    (tmp_path / "elsewhere").mkdir()
    done = dispatchlab(tmp_path / "elsewhere", "dump", "street::door", "--engine", "torch")
    assert done.returncode == 2


def test_the_package_of_the_checkout_is_imported_for_its_operator(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_DOOR)
    done = dispatchlab(tmp_path, "dump", "street::door", "--engine", "torch")
    assert done.returncode == 0
    assert "note: about street, the package of this checkout" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dump", "aten::relu", "--engine", "torch", "--after", "+0"], "name the scenario with --from SCENARIO"),
        (["dump", "aten::relu", "--engine", "torch", "--from", "nobody"], "there is no registry 'nobody': "),
        (["permute", "five.yaml", "--package", "nobody"], "add --engine torch"),
        (["permute", "name.yaml", "--engine", "torch"], "no binding registers a name alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_ends_with_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "five.yaml").write_text(FIVE)
    (tmp_path / "name.yaml").write_text("claim: A name.\nregistrations:\n  - name: foo\n  - def: foo() -> ()\n")
    done = dispatchlab(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_the_composite_defect_comes_with_a_program_that_gives_2_and_3(tmp_path: Path) -> None:
    (tmp_path / "composites.yaml").write_text(COMPOSITES)
    done = dispatchlab(tmp_path, "permute", "composites.yaml", "--engine", "torch")
    assert done.stdout.startswith("composites.yaml: order-dependent (your PyTorch: ")
    report, _, program = done.stdout.partition("\n# A program that shows it wherever PyTorch is installed; ")
    assert "slots that calls use\n" in report
    kept = dispatchlab(tmp_path, "permute", "composites.yaml", "--engine", "torch", "--save", "shows.py")
    assert "# A program" not in kept.stdout
    mark, _, saved = (tmp_path / "shows.py").read_text().partition("\n")
    assert mark.startswith("# Written by dispatchlab.")
    assert saved == program.partition("\n")[2]
    ran = subprocess.run([sys.executable, "-I", "shows.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    gives = re.findall(r"a call with a tensor of ones that requires grad gives (\S+)", ran.stdout)
    assert sorted(gives) == ["2.0", "3.0"]


_DEADLY = """\
import os
import sys

if "torch" in sys.modules:
    os.abort()


def kernel(x):
    return x
"""


def test_a_scenario_that_kills_its_worker_ends_with_5_and_names_the_sequence(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(_DEADLY)
    (tmp_path / "deadly.yaml").write_text(
        "claim: It dies.\nregistrations:\n  - def: foo(Tensor x) -> Tensor\n"
        "  - impl: foo\n    dispatch: CPU\n    kernel: deadly:kernel\n"
    )
    before = set(children_of(os.getpid()))
    done = dispatchlab_started(
        tmp_path, "permute", "deadly.yaml", "--engine", "torch", "--allow-import", "--format", "json"
    )
    assert done.returncode == 5, done.stderr
    report = json.loads(done.stdout)
    assert (report["verdict"], report["counterexample"]["flaw"], report["counterexample"]["actual_sequence"]) == (
        "engine crashed",
        "crash",
        "+1",
    )
    assert "SIGABRT" in report["counterexample"]["why"][0]
    assert set(children_of(os.getpid())) <= before


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that are still there, with theirs."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            child = int(status.parent.name)
            found += [child, *children_of(child)]
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to count processes in")
@pytest.mark.parametrize("everybody", [True, False], ids=["a terminal", "one process"])
def test_ctrl_c_ends_every_process_and_reports_what_was_covered(tmp_path: Path, *, everybody: bool) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(many(14))
    command = [sys.executable, "-m", "dispatchlab.cli", "permute", "one.yaml", "two.yaml", "--engine", "torch"]
    process = subprocess.Popen(
        [*command, "--passes", "1000"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while "edges" not in process.stderr.readline():
        assert process.poll() is None
    started = children_of(process.pid)
    assert started
    if everybody:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "one.yaml: incomplete (your PyTorch: " in out
    for _ in range(600):
        if not any(map(is_running, started)):
            break
        time.sleep(0.1)
    assert not any(map(is_running, started))
