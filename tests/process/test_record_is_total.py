"""Whatever packages register is recorded, and every command on the record gives a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.model.registration import Block, Def, Fallback, Impl
from dispatchlab.scenario.load import load_scenario
from tests.live.native_extension import library
from tests.live.packages import dispatchlab, package

ODD = """\
import torch

lib = torch.library.Library("odd", "DEF")
lib.define("fresh(Tensor! out, Tensor(a)?[] xs, int[] n=[1,1], Device? on='cuda') -> ()")
lib.define("named(Tensor x, float eps=strided, complex z=2j) -> Tensor")
lib.define("united(Union(Tensor, Scalar) x, str s='\\\\015\\\\377') -> Tensor")
lib.impl("fresh", lambda *a: None, "CPU")
aten = torch.library.Library("aten", "IMPL")
aten.impl("cumsum", lambda a, b: a, "PrivateUse1")
low = torch._C._dispatch_library("FRAGMENT", "odd", "", "two\\nlines.py", 3)
low.define("lines(Tensor x) -> Tensor", "")
low.impl("lines", "CPU", lambda x: x)
"""

PRINTED = "odd::fresh(Tensor($0! -> ) out, Tensor?(a)[] xs, int[] n=1, Device? on=cuda) -> ()"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    package(folder, "odd", init=ODD)
    done = dispatchlab(folder, "record", "odd", "-o", "odd.yaml")
    assert (done.returncode, "left out: " in done.stderr) == (0, False), done.stderr
    return folder


def test_schemas_that_pytorch_prints_and_does_not_read_are_recorded(odd: Path) -> None:
    scenario = load_scenario(odd / "odd.yaml")
    assert {str(name) for name in scenario.operators} == {
        "aten::cumsum",
        "odd::fresh",
        "odd::named",
        "odd::united",
        "odd::lines",
    }
    blocks = [one for each in scenario.registrations if isinstance(each, Block) for one in each.registrations]
    assert any(isinstance(one, Def) and str(one.schema).startswith("fresh(Tensor($0! -> ) out") for one in blocks)
    assert sum(isinstance(one, Impl) for one in (*blocks, *scenario.registrations)) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "odd::fresh", "--engine", "torch", "--from", "odd"),
        ("diff", "torch-2.13-cpu", "odd", "--operator", "odd::*"),
        ("permute", "odd.yaml", "--engine", "torch", "--format", "json"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_survive_such_a_schema_on_the_running_pytorch(odd: Path, arguments: tuple[str, ...]) -> None:
    done = dispatchlab(odd, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if arguments[0] != "permute":
        assert PRINTED.partition("(")[2] in " ".join(done.stdout.split())


def test_certify_of_the_running_pytorch_is_about_what_the_packages_add(odd: Path) -> None:
    done = dispatchlab(odd, "permute", "odd", "--format", "json")
    found = json.loads(done.stdout)
    names = {each["operator"] for each in found["certificates"]} | set(found["known"])
    assert {"odd::fresh", "odd::named", "odd::united", "odd::lines", "aten::cumsum"} <= names
    assert done.returncode == 0, done.stderr
    assert found["against"].startswith("torch-")
    assert found["left_out"] > 3000


def test_a_package_that_registers_nothing_has_an_empty_record(tmp_path: Path) -> None:
    package(tmp_path, "nothing", init="import torch\n")
    done = dispatchlab(tmp_path, "record", "nothing", "-o", "nothing.yaml")
    assert done.returncode == 0, done.stderr
    assert "nothing is registered when this is imported" in done.stderr
    assert load_scenario(tmp_path / "nothing.yaml").registrations == ()
    (tmp_path / "nothing" / "__init__.py").write_text(
        "import torch\nlib = torch.library.Library('nothing', 'FRAGMENT')\nlib.define('now() -> ()')\n"
    )
    done = dispatchlab(tmp_path, "record", "--check", "nothing.yaml")
    assert (done.returncode, "came: def nothing::now" in done.stdout) == (1, True), done.stderr


def test_symint_kernels_and_classes_of_a_package_in_cpp_are_recorded(tmp_path: Path) -> None:
    built = library("symint_kernels")
    package(tmp_path, "native", init=f"import torch\ntorch.ops.load_library({str(built)!r})\n")
    done = dispatchlab(tmp_path, "record", "native", "-o", "native.yaml")
    assert (done.returncode, "left out: " in done.stderr) == (0, False), done.stderr
    assert "all in C++: 4 operators and 3 kernels\n" in done.stderr
    text = (tmp_path / "native.yaml").read_text()
    assert "classes: [dlabtest_symint.Counter]\n" in text
    kernels = {
        each.operator.name: each.kernel
        for each in load_scenario(tmp_path / "native.yaml").registrations
        if isinstance(each, Impl)
    }
    assert {name: kernel.symint for name, kernel in kernels.items()} == {
        "resized": True,
        "plain": False,
        "written": False,
    }
    for arguments in (("check", "native.yaml"), ("permute", "native.yaml"), ("record", "--check", "native.yaml")):
        done = dispatchlab(tmp_path, *arguments)
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr


NEWER_FALLBACK = """\
import torch
from . import loads

lib = torch.library.Library("_", "IMPL")
lib.fallback(lambda operator, *args, **kwargs: None, "AutogradPrivateUse1")
"""


@pytest.fixture(scope="module")
def accel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("accel")
    load = f"import torch\ntorch.ops.load_library({str(library('fallbacks'))!r})\n"
    package(folder, "accel", init="from . import loads\n", loads=load, newer=NEWER_FALLBACK)
    return folder


def fallbacks_in(folder: Path, *packages: str) -> tuple[set[tuple[str, str, bool]], str]:
    """The module, the key and whether it is a fallthrough, of each fallback in a record; and what was printed."""
    (folder / "accel.yaml").unlink(missing_ok=True)
    done = dispatchlab(folder, "record", *packages, "-o", "accel.yaml")
    scenario = load_scenario(folder / "accel.yaml")
    numbers = [(module.name, number) for module in scenario.modules for number in module.registrations]
    made = [(name, scenario.registrations[number]) for name, number in numbers]
    return {(name, str(one.key), one.kernel.is_fallthrough) for name, one in made if isinstance(one, Fallback)}, (
        done.stderr
    )


OF_CPP = {
    ("accel", "PrivateUse1", False),
    ("accel", "AutocastPrivateUse1", True),
    ("accel", "AutogradPrivateUse1", True),
}


def test_backend_fallbacks_of_cpp_are_in_the_record_as_they_are_live(accel: Path) -> None:
    found, printed = fallbacks_in(accel, "accel")
    assert (found, "3 registrations, all in C++: 0 operators and 3 kernels\n" in printed) == (OF_CPP, True)
    compared = dispatchlab(accel, "diff", "accel.yaml", "accel", "--exit-code")
    assert (compared.returncode, "no difference" in compared.stdout) == (0, True), compared.stdout
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        sources = ("accel.yaml",), ("accel",)
        recorded, live = (dispatchlab(accel, "coverage", *one, "--key", key, "--format", "json") for one in sources)
        counts = json.loads(recorded.stdout)["counts"]
        assert "was refused" not in recorded.stderr
        assert counts == json.loads(live.stdout)["counts"]
        assert counts["missing"] == 0 < counts["fallback"]
    assert dispatchlab(accel, "record", "--check", "accel.yaml").returncode == 0


def test_a_fallback_of_cpp_is_in_the_record_where_python_replaces_it(accel: Path) -> None:
    found, printed = fallbacks_in(accel, "accel.newer")
    assert found == {*OF_CPP, ("accel.newer", "AutogradPrivateUse1", False)}
    assert "4 registrations, 3 of them in C++ and 1 made by 1 line of Python: 0 operators and 4 kernels\n" in printed


CLASSES = """\
claim: Defs name custom classes that only the C++ of their package can register.
classes: [mine.Labels, mine.Map]
registrations:
  - def: load(str file) -> __torch__.torch.classes.mine.Map
  - impl: load
    dispatch: CompositeImplicitAutograd
    kernel: (str _0) -> __torch__.torch.classes.mine.Map _0
  - def: labels(__torch__.torch.classes.mine.Map? map) -> __torch__.torch.classes.mine.Labels[]
"""


def test_the_classes_of_a_package_that_is_not_imported_have_stand_ins(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(CLASSES)
    done = dispatchlab(tmp_path, "permute", "mine.yaml", "--engine", "torch")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(dispatchlab(tmp_path, "permute", "mine.yaml", "--engine", "torch", "--format", "json").stdout)
    assert found["never_accepted"] == []
    assert "note: classes of PyTorch stand in schemas for mine.Labels, mine.Map, which " in done.stdout
