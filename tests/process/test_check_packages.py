"""`check` on packages with planted mistakes: what it finds is what the single commands find, and nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.registries.builds import bundled_for
from dispatchlab.registries.file import newest_bundled
from tests import effort
from tests.json_schema import errors
from tests.live.native_extension import library
from tests.live.packages import ROOT, dispatchlab
from tests.test_sarif import schema

OPS = """
import torch

library = torch.library.Library("planted", "DEF")
library.define("scale(Tensor x, float by) -> Tensor")
library.define("shift(Tensor x) -> Tensor")
library.define("fill(Tensor(a!) x) -> ()")
library.impl("scale", lambda x, by: x * by, "CPU")
library.impl("shift", lambda x: x + 1, "CPU")
library.impl("shift", lambda x: x + 1, "Autograd")
library.impl("fill", lambda x: x.zero_(), "CompositeExplicitAutograd")
"""

FAST = """
import torch

library = torch.library.Library("planted", "FRAGMENT")
library.impl("scale", lambda x, by: torch.mul(x, by), "CPU")
library.impl("shfit", lambda x: x, "CPU")
"""

CLEAN = """
import torch

@torch.library.custom_op("clean::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x

@twice.register_fake
def _(x):
    return torch.empty_like(x)

twice.register_autograd(lambda ctx, grad: grad + grad)
"""

TABLES = """
import torch
from torch._decomp import register_decomposition

@register_decomposition(torch.ops.aten.nonzero.default)
def nonzero(x):
    return x
"""

UNKEPT = """
import torch

def make():
    library = torch.library.Library("unkept", "DEF")
    library.define("op(Tensor x) -> Tensor")
    library.cycle = library  # so that it goes when garbage is collected, and not before

make()
"""

OTHERS = [name for name in ("torchao", "optimum.quanto") if effort.percent == 100 and find_spec(name.partition(".")[0])]
"""The packages of others that are here; each takes half a minute, and is asked what the planted one is."""


def module(folder: Path, name: str, **files: str) -> Path:
    (folder / name).mkdir(parents=True)
    for stem, text in files.items():
        (folder / name / f"{stem}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of a package with mistakes: a double registration, a kernel without a def, two missing fakes."""
    folder = module(
        tmp_path_factory.mktemp("planted"), "planted", __init__="from planted import ops, fast\n", ops=OPS, fast=FAST
    )
    (folder / "pyproject.toml").write_text('[project]\nname = "planted"\n')
    return folder


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same modules in a package that imports none of them, so that they come in any order."""
    return module(tmp_path_factory.mktemp("loose"), "planted", __init__="", ops=OPS, fast=FAST)


LOOSE = ("planted.ops", "planted.fast")


def checked(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = dispatchlab(folder, "check", *arguments, "--format", "json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def answer(found: dict[str, Any], question: str) -> dict[str, Any]:
    (one,) = [each for each in found["answers"] if each["question"] == question]
    assert isinstance(one, dict)
    return one


@pytest.fixture(scope="module")
def found(loose: Path) -> dict[str, Any]:
    code, found = checked(loose, *LOOSE)
    assert code == found["exit_code"] == 1
    return found


def test_every_planted_mistake_is_found_with_its_line_and_its_fix(found: dict[str, Any]) -> None:
    (order,) = answer(found, "order")["findings"]
    assert (order["operator"], order["level"]) == ("planted::scale", "error")
    assert order["owners"] == ["registered at planted/fast.py:5", "registered at planted/ops.py:8"]
    assert order["message"] == (
        "the registrations at planted/fast.py:5 and planted/ops.py:8 both set the CPU kernel of planted::scale. "
        "The registration of the later import is in force"
    )
    (dangling,) = [one for one in answer(found, "lint")["findings"] if one["operator"] == "planted::shfit"]
    assert (dangling["level"], dangling["owners"]) == ("warning", ["registered at planted/fast.py:6"])
    assert dangling["fix"] == 'lib.impl("planted::shift", fn, "CPU")'
    assert all(one["fix"] for each in found["answers"] for one in each["findings"])


@contextmanager
def settings(folder: Path, *packages: str, record: object) -> Iterator[None]:
    """Name packages and their record in the settings of a checkout."""
    file = folder / "pyproject.toml"
    file.write_text(f"[tool.dispatchlab]\npackages = {json.dumps(packages)}\nrecord = [{json.dumps(str(record))}]\n")
    try:
        yield
    finally:
        file.unlink()


@pytest.mark.parametrize("package", ["planted", *OTHERS])
def test_its_findings_are_those_of_the_single_commands(planted: Path, tmp_path: Path, package: str) -> None:
    file = tmp_path / "recorded.yaml"
    assert dispatchlab(planted, "record", package, "-o", str(file)).returncode == 0
    text = file.read_text()
    drifted = re.sub(r"dispatch: (CPU|Autograd)\n", "dispatch: XPU\n", text, count=1)
    assert drifted != text
    file.write_text(drifted)
    with settings(planted, package, record=file):
        _, found = checked(planted, package)

    def single(*arguments: str) -> Any:
        return json.loads(dispatchlab(planted, *arguments, "--format", "json").stdout)

    names = ("code", "operator", "key", "message", "level", "fix")
    theirs = [
        [one[name] for name in names] for one in single("check", package, "--only", "lint")["answers"][0]["findings"]
    ]
    assert [[one[name] for name in names] for one in answer(found, "lint")["findings"]] == theirs
    assert len(theirs) > 2

    drift = single("record", package, "--check", str(file))["changes"]
    assert len(drift) > 0
    since = f" since {os.path.relpath(file, planted)} was recorded"
    said = [one["message"].partition(since)[0] for one in answer(found, "drift")["findings"]]
    assert said == [f"{one['registration']} {one['kind']}" for one in drift]

    file.write_text(text)
    order = single("permute", str(file))
    assert bool(answer(found, "order")["findings"]) is (order["verdict"] == "order-dependent")

    changes = single("diff", bundled_for(found["torch"]) or "", newest_bundled(), "--for", str(file))["package"]
    assert [len(changes[name]) for name in ("refused", "dangling", "schemas", "kernels")] == [0] * 4
    assert answer(found, "upgrade")["findings"] == []


BESIDE = """
import torch, planted.ops, clean.ops

library = torch.library.Library("beside", "DEF")
library.define("op(Tensor x) -> Tensor")
library.impl("op", lambda x: x + 1, "CPU")
"""


def test_what_packages_imported_along_lack_is_theirs(planted: Path, tmp_path: Path) -> None:
    module(tmp_path, "beside", __init__="from beside import ops\n", ops=BESIDE)
    module(tmp_path, "clean", __init__="", ops=CLEAN)
    (tmp_path / "planted").symlink_to(planted / "planted")
    _, found = checked(tmp_path, "beside")
    assert found["registered"].endswith("; the import of clean and planted made 11 of the 14 registrations"), found[
        "registered"
    ]
    assert {one["operator"] for one in answer(found, "lint")["findings"]} == {"beside::op"}
    assert answer(found, "trials")["text"].startswith("1 operator: ")


def test_what_a_package_imported_along_registers_in_cpp_is_its_own(tmp_path: Path) -> None:
    module(tmp_path, "native", __init__=f"import torch\ntorch.ops.load_library({str(library('symint_kernels'))!r})\n")
    module(tmp_path, "over", __init__="import native\nfrom over import ops\n", ops=CLEAN.replace("clean::", "over::"))
    _, found = checked(tmp_path, "over")
    assert "; the import of native made " in found["registered"], found["registered"]
    assert {one["operator"] for each in found["answers"] for one in each["findings"]} <= {"over::twice"}
    assert " about operators of native left out: check native" in "".join(answer(found, "lint")["notes"])
    assert answer(found, "trials")["text"].startswith("1 operator: ")


CROWD = """
import torch

library = torch.library.Library("crowd", "DEF")
for at in range(45):
    library.define(f"op{at}(Tensor x) -> Tensor")
    library.impl(f"op{at}", lambda x: x + 1, "CPU")
"""


def test_many_operators_of_a_package_imported_along_take_no_trial_from_its_own(tmp_path: Path) -> None:
    module(tmp_path, "crowd", __init__=CROWD)
    module(tmp_path, "clean", __init__="import crowd\nfrom clean import ops\n", ops=CLEAN)
    _, found = checked(tmp_path, "clean")
    text = answer(found, "trials")["text"]
    assert (text.startswith("1 operator: "), "not tried" in text) == (True, False), text


def test_its_order_is_the_verdict_of_permute_on_the_record(loose: Path, found: dict[str, Any], tmp_path: Path) -> None:
    file = str(tmp_path / "planted.yaml")
    assert dispatchlab(loose, "record", *LOOSE, "-o", file).returncode == 0
    report = json.loads(dispatchlab(loose, "permute", file, "--format", "json").stdout)
    assert report["verdict"] == "order-dependent"
    assert answer(found, "order")["text"].startswith(
        "differs: the registrations at planted/fast.py:5 and planted/ops.py:8 both set the CPU "
    )
    with settings(loose, *LOOSE, record=file):
        code, drifted = checked(loose, *LOOSE)
    assert (code, answer(drifted, "drift")["text"]) == (1, f"the same as in {os.path.relpath(file, loose)}")
    changed = Path(file)
    text = changed.read_text()
    assert "shift(Tensor x) -> Tensor" in text
    changed.write_text(text.replace("shift(Tensor x) -> Tensor", "shift(Tensor x, int by=1) -> Tensor"))
    with settings(loose, *LOOSE, record=file):
        _, drifted = checked(loose, *LOOSE)
    (one,) = answer(drifted, "drift")["findings"]
    assert (one["operator"], one["owners"]) == ("planted::shift", ["registered at planted/ops.py:6"])


def test_the_fix_that_it_names_takes_the_finding_away(tmp_path: Path) -> None:
    fast = FAST.replace("import torch\n", "import torch\nfrom planted import ops\n", 1)
    _, found = checked(module(tmp_path, "planted", __init__="", ops=OPS, fast=fast), *LOOSE)
    assert answer(found, "order")["findings"] == []
    assert answer(found, "order")["text"] == "no difference in 2 of 2 import orders"


def test_a_stale_slot_is_shown_with_the_kernel_that_calls_run(tmp_path: Path) -> None:
    module(tmp_path, "stalepkg", __init__=STALE)
    _, found = checked(tmp_path, "stalepkg")
    (finding,) = [one for answer in found["answers"] for one in answer["findings"]]
    assert "run stalepkg/__init__.py:4 where the table says no kernel" in finding["message"]
    run, _, order = finding["message"].partition("; ")
    assert run.endswith(": 34 stale slots, a defect of PyTorch 2.13")
    assert order.startswith("the order of the kernels CompositeImplicitAutograd from stalepkg/__init__.py:4 and ")


STALE = """import torch
LIB = torch.library.Library("stalepkg", "DEF")
LIB.define("f(Tensor x) -> Tensor")
LIB.impl("f", lambda x: x + 1, "CompositeImplicitAutograd")
LIB.impl("f", lambda x: x + 2, "CompositeExplicitAutograd")
"""


def test_what_an_init_imports_has_one_order_and_no_finding_about_another(planted: Path) -> None:
    _, found = checked(planted)
    assert answer(found, "order")["findings"] == []
    assert (answer(found, "order")["text"], answer(found, "order")["asked"]) == (
        "Python imports planted before each of its modules, so there is one order",
        False,
    )
    overriding = {one["code"]: one for one in answer(found, "lint")["findings"] if one["operator"] == "planted::scale"}
    assert overriding["DL002"]["message"] == (
        "the kernel from planted/fast.py:5 overrides that of planted/ops.py:8, which no longer runs; "
        "the order of imports decides which one runs, so a sorter of imports can change it"
    )


def test_operators_that_are_chosen_are_run_and_shown_alone(planted: Path) -> None:
    _, found = checked(planted, "--operator", "planted::scale")
    assert {one["operator"] for each in found["answers"] for one in each["findings"]} == {"planted::scale"}
    assert answer(found, "trials")["text"].startswith("1 operator: ")


def test_a_clean_package_ends_with_0_and_every_question_says_what_it_is(tmp_path: Path) -> None:
    code, found = checked(module(tmp_path, "clean", __init__="from clean import ops\n", ops=CLEAN), "clean")
    assert (code, [one for each in found["answers"] for one in each["findings"]]) == (0, [])
    texts = {each["question"]: (each["asked"], each["text"]) for each in found["answers"]}
    assert texts["lint"] == (True, "no likely mistake")
    assert texts["order"] == (False, "one module registers")
    assert texts["drift"] == (
        False, "there is no record of it; to keep one: dispatchlab record clean -o clean.yaml"
    )  # fmt: skip


READS = """
import torch
from torch._decomp import get_decompositions

TABLE = get_decompositions([torch.ops.aten.nonzero])
"""


def test_a_table_that_another_module_fills_is_an_order_finding_though_its_module_registers_nothing(
    tmp_path: Path,
) -> None:
    module(tmp_path, "tables", __init__=TABLES)
    module(tmp_path, "reads", __init__=READS)
    code, found = checked(tmp_path, "tables", "reads")
    (one,) = answer(found, "order")["findings"]
    assert (code, found["nothing"], one["owners"]) == (1, [], ["registered at reads/__init__.py:5"])
    assert one["message"].startswith("variable reads.TABLE in the order tables, reads: dict of length 1")
    assert one["message"].endswith(". In the order reads, tables: dict of length 0")
    assert answer(found, "order")["text"] == f"differs: {one['message']}"


def test_modules_that_leave_the_same_in_every_order_have_no_finding(tmp_path: Path) -> None:
    module(tmp_path, "clean", __init__="", ops=CLEAN, more=CLEAN.replace("twice", "thrice"))
    _, found = checked(tmp_path, "clean.ops", "clean.more")
    assert answer(found, "order")["text"] == "no difference in 2 of 2 import orders"
    assert any(note.startswith("compared: ") for note in answer(found, "order")["notes"])


def test_two_modules_that_make_one_custom_op_are_asked_about_their_order(tmp_path: Path) -> None:
    made = (
        "import torch\n\n@torch.library.custom_op('anew::scale', mutates_args=())\n"
        "def scale(x: torch.Tensor) -> torch.Tensor:\n    return {} * x\n"
    )
    _, found = checked(module(tmp_path, "anew", __init__="", twice=made.format(2), thrice=made.format(3)), "anew")
    order = answer(found, "order")["findings"][0]
    assert (order["operator"], order["level"]) == ("anew::scale", "error")
    assert order["message"] == (
        "the registrations at anew/thrice.py:3 and anew/twice.py:3 both set the definition of anew::scale. "
        "The registration of the later import is in force"
    )


def test_a_module_whose_import_fails_is_named_where_the_order_is_not_asked(tmp_path: Path) -> None:
    defines = (
        "import torch\n\nLIB = torch.library.Library('both', 'FRAGMENT')\nLIB.define('scale(Tensor x) -> Tensor')\n"
    )
    _, found = checked(module(tmp_path, "both", __init__="", first=defines, second=defines), "both")
    texts = (answer(found, "order")["asked"], answer(found, "order")["text"])
    assert texts == (False, "one module registers, because the import of both.second failed")


def test_a_package_that_registers_nothing_is_named_and_never_fine(tmp_path: Path) -> None:
    module(tmp_path, "quiet", __init__="import json\n")
    module(tmp_path, "clean", __init__="from clean import ops\n", ops=CLEAN)
    code, found = checked(tmp_path, "quiet")
    assert (code, found["nothing"]) == (2, ["quiet"])
    assert not any(each["asked"] for each in found["answers"])
    assert found["summary"] == (
        "quiet: nothing is registered: none of its modules calls torch.library, or has a TORCH_LIBRARY block"
    )
    code, found = checked(tmp_path, "clean", "quiet")
    assert (code, found["nothing"]) == (2, ["quiet"])
    assert answer(found, "lint")["asked"]


def test_what_registers_in_python_alone_is_judged_there_alone(tmp_path: Path) -> None:
    module(tmp_path, "tables", __init__=TABLES)
    code, found = checked(tmp_path, "tables")
    assert (code, found["nothing"]) == (0, [])
    assert found["registered"] == "1 entry of registries in Python, nothing with the dispatcher"
    assert (answer(found, "order")["asked"], answer(found, "order")["text"]) == (False, "one module registers")
    assert answer(found, "lint")["text"] == "nothing is registered with the dispatcher"


def test_a_def_that_nobody_keeps_is_found_though_nothing_is_left(tmp_path: Path) -> None:
    module(tmp_path, "unkept", __init__=UNKEPT)
    code, found = checked(tmp_path, "unkept")
    assert (code, found["nothing"]) == (1, [])
    (one,) = answer(found, "lint")["findings"]
    assert (one["operator"], one["level"]) == ("unkept::op", "error")
    assert not answer(found, "order")["asked"]


def test_an_import_that_fails_names_the_line_of_the_package(tmp_path: Path) -> None:
    module(tmp_path, "broken", __init__="from broken import inner\n", inner="import torch\n\n{}['missing']\n")
    done = dispatchlab(tmp_path, "check", "broken")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"broken cannot be imported: KeyError: 'missing', raised at {tmp_path}/broken/inner.py:3" in done.stderr


@pytest.mark.parametrize("command", ["check", "record"])
def test_the_program_that_runs_is_no_package(tmp_path: Path, command: str) -> None:
    done = dispatchlab(tmp_path, command, "__main__")
    assert (done.returncode, done.stdout) == (2, "")
    said = "__main__ cannot be imported: it is the program that runs; name the module that registers"
    assert done.stderr.splitlines()[-1] == said


def test_a_baseline_accepts_what_is_there_and_nothing_new(loose: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "accepted.json")
    assert dispatchlab(loose, "check", *LOOSE, "--write-baseline", file).returncode == 0
    code, found = checked(loose, *LOOSE, "--baseline", file)
    assert (code, found["accepted"] > 2, found["outdated"]) == (0, True, [])
    assert (
        found["summary"]
        == f"planted.ops and planted.fast: nothing but {found['accepted']} findings that the baseline accepts"
    )
    one = json.loads(Path(file).read_text())
    one["findings"] = [each for each in one["findings"] if each["code"] != "order"]
    Path(file).write_text(json.dumps(one))
    code, found = checked(loose, *LOOSE, "--baseline", file)
    assert (code, [each["code"] for one in found["answers"] for each in one["findings"]]) == (1, ["order"])


def test_the_formats_for_forges(loose: Path) -> None:
    found = json.loads(dispatchlab(loose, "check", *LOOSE, "--format", "sarif").stdout)
    assert errors(found, schema()) == []
    (order,) = [one for one in found["runs"][0]["results"] if one["ruleId"] == "order"]
    place = order["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("planted/fast.py", {"startLine": 5})
    lines = dispatchlab(loose, "check", *LOOSE, "--format", "github").stdout.splitlines()
    assert lines[0].startswith("::error file=planted/fast.py,line=5,title=dispatchlab order::planted::scale: ")


def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path) -> None:
    module(tmp_path, "slow", __init__="import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatchlab", "check", "slow"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "begun").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


LAZY_HELPER = """
from torch.library import custom_op

def op(name):
    return custom_op(name, mutates_args=())
"""

LAZY_OPS = """
import torch
from lazy.helper import op

@op("lazy::twice")
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)
"""


def test_modules_that_register_and_are_not_imported_are_imported_each_by_itself(tmp_path: Path) -> None:
    module(
        tmp_path,
        "lazy",
        __init__="",
        helper=LAZY_HELPER,
        ops=LAZY_OPS,
        needs="import not_there_at_all\nfrom . import helper\nhelper.op('lazy::never')(None)\n",
        half="import torch\nlib = torch.library.Library('half', 'FRAGMENT')\nimport not_there_at_all\n",
        dies="import os\nfrom . import helper\nos.abort()\nhelper.op('lazy::never')(None)\n",
    )
    code, found = checked(tmp_path, "lazy")
    assert (code, found["nothing"]) == (0, [])
    assert found["registered"].startswith("1 operator and ")
    imported, half, missing, died = found["notes"]
    assert half.startswith("not imported: lazy.half: ")
    assert imported == "imported after lazy: lazy.ops"
    assert missing.startswith("not imported: lazy.needs: ModuleNotFoundError: No module named 'not_there_at_all'")
    assert died.startswith("lazy.dies cannot be imported: it ended its process with signal SIGABRT")
    code, found = checked(tmp_path, "lazy", "--no-submodules")
    assert (code, found["nothing"]) == (2, ["lazy"])
    assert found["summary"].startswith("lazy: nothing is registered: name a module that registers: lazy.dies, ")


TWO_BLOCKS = """
import os, sys

sys.stderr.write(
    "terminate called after throwing an instance of 'c10::Error'\\n  what():  Only a single TORCH_LIBRARY can be used "
    "to register the namespace twice_opened; please put all of your definitions in a single TORCH_LIBRARY block. "
    "Previous registration of TORCH_LIBRARY was registered at /src/a.cpp:5; latest registration was registered at "
    "/src/b.cpp:7\\nException raised from registerLibrary at Dispatcher.cpp:1 (most recent call first):\\n"
    "frame #0: first\\nframe #1: second\\nframe #2: third\\n"
)
sys.stderr.flush()
os.abort()
"""


def test_what_pytorch_says_when_it_ends_the_process_is_the_finding(tmp_path: Path) -> None:
    module(tmp_path, "twice_opened", __init__=TWO_BLOCKS)
    code, found = checked(tmp_path, "twice_opened")
    (one,) = answer(found, "trials")["findings"]
    assert (code, one["code"], one["operator"]) == (1, "WHY202", "twice_opened")
    assert "a.cpp:5" in one["message"]
    assert "b.cpp:7" in one["message"]


def test_operators_that_pytorch_registers_meanwhile_are_not_the_packages(tmp_path: Path) -> None:
    module(
        tmp_path, "clean", __init__="import torch.ao.quantization.fx._decomposed\nfrom clean import ops\n", ops=CLEAN
    )
    code, found = checked(tmp_path, "clean")
    assert (code, answer(found, "trials")["text"].partition(":")[0]) == (0, "1 operator")


def test_a_crash_on_a_generated_value_is_open(tmp_path: Path) -> None:
    crash = CLEAN.replace("return x + x", "__import__('os').kill(__import__('os').getpid(), 8)")
    module(tmp_path, "clean", __init__="from clean import ops\n", ops=crash)
    _, found = checked(tmp_path, "clean")
    assert answer(found, "trials")["findings"] == []
    assert any("call has no result: SIGFPE on a generated input" in note for note in answer(found, "trials")["notes"])


def test_a_fake_that_checks_its_arguments_refuses_generated_ones_without_a_finding(tmp_path: Path) -> None:
    strict = CLEAN.replace(
        "def _(x):\n", "def _(x):\n    torch._check(x.dtype == torch.int8, lambda: 'x must be int8')\n"
    )
    module(tmp_path, "clean", __init__="from clean import ops\n", ops=strict)
    code, found = checked(tmp_path, "clean")
    assert (code, answer(found, "trials")["findings"]) == (0, [])
    broken = CLEAN.replace("return torch.empty_like(x)", "return torch.empty_like(x, shape=1)")
    (tmp_path / "clean" / "ops.py").write_text(broken, encoding="utf-8")
    code, found = checked(tmp_path, "clean")
    assert (code, len(answer(found, "trials")["findings"])) == (1, 1)
