"""What packages register becomes a scenario: true call sites, the calls of torch.library, and its replay."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from importlib.metadata import PackageNotFoundError, version

from dispatchlab.model.registration import AliasKind, Block, Claim, Def, Fallback, Impl, TorchLibraryFunction
from dispatchlab.prover.chains import Module
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.scenario.write import scenario_text
from tests.live.packages import HELPER, SHOP, dispatchlab, line_of, package


def is_installed(name: str, wanted: str = "") -> bool:
    try:
        return version(name).startswith(wanted)
    except PackageNotFoundError:
        return False


needs_torchao = pytest.mark.skipif(not is_installed("torchao"), reason="pip install --no-deps torchao")
needs_quanto = pytest.mark.skipif(
    not is_installed("optimum-quanto", "0.2.7"), reason="pip install --no-deps optimum-quanto==0.2.7"
)


def recorded(folder: Path, *packages: str) -> tuple[Scenario, str]:
    """The scenario of packages, and what the command printed."""
    done = dispatchlab(folder, "record", *packages, "-o", "found.yaml")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return load_scenario(folder / "found.yaml"), done.stderr


def free(record: Path) -> None:
    """Write a record without its modules beside it, whose registrations come and go in any order."""
    (record.parent / "free.yaml").write_text(scenario_text(replace(load_scenario(record), modules=(), packages=())))


def functions(scenario: Scenario) -> Counter[str]:
    return Counter(
        str(each.made_by.function) if isinstance(each, Block) and each.made_by else type(each).__name__
        for each in scenario.registrations
    )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scenario, str]:
    folder = tmp_path_factory.mktemp("shop")
    lazy = "import torch._inductor.test_operators\n"
    package(folder, "shop", init=SHOP, helper=HELPER, lazy=lazy)
    return folder, *recorded(folder, "shop")


def test_a_record_without_a_file_is_printed_and_names_no_folder(tmp_path: Path) -> None:
    package(
        tmp_path, "mill", init='import torch\nlib = torch.library.Library("mill", "DEF")\nlib.define("f() -> int")\n'
    )
    printed = dispatchlab(tmp_path, "record", "mill")
    written = dispatchlab(tmp_path, "record", "mill", "-o", "mill.yaml")
    assert (printed.returncode, written.returncode) == (0, 0), printed.stderr
    text = (tmp_path / "mill.yaml").read_text()
    assert text.partition("\n")[2] == printed.stdout
    assert text.startswith("# Written by dispatchlab.")
    assert str(tmp_path) not in text
    notes = [line.partition(": ")[2] for line in written.stderr.splitlines() if not line.startswith("wrote ")]
    assert [line.partition(": ")[2] for line in printed.stderr.splitlines()] == notes
    assert notes


def test_every_call_of_torch_library_is_a_registration_and_refused_or_released_ones_are_not(
    shop: tuple[Path, Scenario, str],
) -> None:
    _, scenario, printed = shop
    assert functions(scenario) == {
        "define": 4,
        "impl": 5,
        "register_fake": 1,
        "register_autograd": 1,
        "register_vmap": 1,
        "register_autocast": 1,
        "custom_op": 1,
        "Impl": 1,
        "Def": 1,
        "Claim": 1,
    }
    assert "gone" not in {name.name for name in scenario.operators}
    assert next(each for each in scenario.registrations if isinstance(each, Claim)).namespace == "other_shop"
    foundation = scenario.registrations[0]
    assert isinstance(foundation, Def)
    assert str(foundation.operator) == "aten::cumsum"
    assert "16 registrations, made by 18 lines of Python: " in printed
    assert "kernels are for operators of others, whose defs come first: aten::cumsum\n" in printed
    assert (scenario.registry, scenario.packages) == (
        "torch-2.13-cpu" if is_installed("torch", "2.13") else None,
        ("shop",),
    )
    assert "registrations that PyTorch made for itself on the way were left out" in printed


def test_sites_are_where_the_package_calls_and_helpers_are_named_besides(shop: tuple[Path, Scenario, str]) -> None:
    _, scenario, _ = shop
    sites = {each.debug for each in scenario.registrations if isinstance(each, Block)}
    assert f"registered at shop/__init__.py:{line_of(SHOP, 'lib.define')}" in sites
    first = line_of(SHOP, 'helper.register(lib, "first")')
    assert {f"registered at shop/__init__.py:{first} via shop/helper.py:{line}" for line in (2, 3)} <= sites
    assert not any("torch/library.py" in site or "test_operators" in site for site in sites)
    made = next(
        each
        for each in scenario.registrations
        if isinstance(each, Block) and each.made_by and each.made_by.function is TorchLibraryFunction.CUSTOM_OP
    )
    assert made.made_by is not None
    assert made.made_by.on == ("cpu",)
    assert [(str(part.function), part.on, part.debug) for part in made.made_by.parts] == [
        ("register_fake", (), f"registered at shop/__init__.py:{line_of(SHOP, '@made.register_fake')}"),
        ("register_kernel", ("cuda",), f"registered at shop/__init__.py:{line_of(SHOP, '@made.register_kernel')}"),
    ]
    keys = [str(one.key) for one in made.registrations if isinstance(one, Impl)]
    assert keys == ["Meta", "Autograd", "CPU", "CUDA"]


def test_a_record_is_replayed_at_the_level_at_which_it_was_made(shop: tuple[Path, Scenario, str]) -> None:
    folder, _, _ = shop
    kept = json.loads(dispatchlab(folder, "permute", "found.yaml", "--engine", "torch", "--format", "json").stdout)
    assert (kept["verdict"], kept["walk"], kept["modules"]) == ("no violation found", "imports", 1), kept
    free(folder / "found.yaml")
    done = dispatchlab(folder, "permute", "free.yaml", "--engine", "torch", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (1, "order-dependent"), done.stderr
    # With releases in any order, a def may go before what looks it up, and a cast leaves its Python kernel behind.
    assert report["counterexample"]["flaw"] in ("asymmetry", "undo")
    for semantics in ("strict", "torch-2.13"):
        options = "--semantics", semantics, "--format", "json"
        lab = json.loads(dispatchlab(folder, "permute", "found.yaml", *options).stdout)
        assert (lab["verdict"], lab["conflicts"]) == ("no violation found", []), lab
        assert any(note.startswith("checked: the one order of importing shop") for note in lab["notes"])
        lab = json.loads(dispatchlab(folder, "permute", "free.yaml", *options).stdout)
        assert lab["verdict"] == "order-dependent"
        assert lab["counterexample"]["flaw"] in ("asymmetry", "undo")


def test_a_replay_shows_what_the_package_shows(shop: tuple[Path, Scenario, str]) -> None:
    folder, _, _ = shop
    for name in ("shop::plain", "shop::bought", "shop::made", "shop::first"):
        live = dispatchlab(folder, "dump", name, "--engine", "torch", "--from", "shop", "--format", "json")
        again = dispatchlab(folder, "dump", name, "--from", "found.yaml", "--engine", "torch", "--format", "json")
        lab = dispatchlab(folder, "dump", name, "--from", "found.yaml", "--semantics", "torch-2.13", "--format", "json")
        shown = [json.loads(done.stdout)["operators"][0] for done in (live, again, lab)]
        kernels = [[(each["key"], each["active"]) for each in one["kernels"]] for one in shown]
        assert kernels[0] == kernels[1] == kernels[2], name
        assert shown[0]["schema"] == shown[1]["schema"] == shown[2]["schema"]


_NAMED = """\
import torch

lib = torch.library.Library("mall", "FRAGMENT")
lib.define(schema="add(Tensor x) -> Tensor", alias_analysis="CONSERVATIVE")
lib.impl(op_name="add", fn=lambda x: x, dispatch_key="CPU")
low = torch._C._dispatch_library(kind="FRAGMENT", name="mall", dispatch="", file="low.py", linenum=3)
low.define(schema="low(Tensor x) -> Tensor", alias_analysis="CONSERVATIVE", tags=[torch.Tag.core])
low.def_(schema="defined(Tensor x) -> Tensor", alias="CONSERVATIVE")
low.def_legacy(schema="legacy(Tensor x) -> Tensor")
low.impl(name="low", dispatch=torch._C.DispatchKey.CPU, func=lambda x: x, with_keyset=False)
low.impl_t_t(name="low", dispatch="CUDA", debug="named")
low.impl_t_t("defined")


@torch.library.custom_op("mall::made", mutates_args=())
def made(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


made.register_autocast(cast_inputs=torch.float16, device_type="cuda")
below = torch._C._dispatch_library(kind="IMPL", name="_", dispatch="FPGA")
below.fallback_fallthrough(dispatch="FPGA")
"""


def test_keyword_arguments_are_read_like_positional_ones(tmp_path: Path) -> None:
    package(tmp_path, "mall", init=_NAMED)
    scenario, _ = recorded(tmp_path, "mall")
    assert functions(scenario) == {
        "define": 1,
        "impl": 1,
        "custom_op": 1,
        "Def": 3,
        "Impl": 3,
        "Fallback": 1,
    }
    low = [each for each in scenario.registrations if isinstance(each, Def | Impl | Fallback)]
    assert [str(each.key) for each in low if isinstance(each, Impl)] == ["CPU", "CUDA", "None"]
    assert [str(each.alias) for each in low if isinstance(each, Def)] == ["CONSERVATIVE", "CONSERVATIVE", "None"]
    assert [sorted(each.tags) for each in low if isinstance(each, Def)] == [["core"], [], []]
    blocks = [each for each in scenario.registrations if isinstance(each, Block)]
    assert [one.alias for one in blocks[0].registrations if isinstance(one, Def)] == [AliasKind.CONSERVATIVE]
    made = next(each.made_by for each in blocks if each.made_by and each.made_by.parts)
    assert [(part.function, part.on) for part in made.parts] == [(TorchLibraryFunction.REGISTER_AUTOCAST, ("cuda",))]


_MAKER = """\
import torch


@torch.library.custom_op("maker::made", mutates_args=())
def made(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


made.register_fake(lambda x: x)
"""

_USER = """\
import torch
import maker

torch.library.register_fake("maker::made", lambda x: x + 1)
torch.library.register_kernel("maker::made", "cuda", lambda x: x)
"""


def test_what_another_package_calls_for_a_custom_op_is_a_registration_of_its_own(tmp_path: Path) -> None:
    package(tmp_path, "maker", init=_MAKER)
    package(tmp_path, "left", init=_USER)
    package(tmp_path, "right", init=_USER)
    scenario, _ = recorded(tmp_path, "maker", "left", "right")
    calls = [each.made_by for each in scenario.registrations if isinstance(each, Block) and each.made_by]
    assert [str(each.function) for each in calls] == ["custom_op", *["register_fake", "register_kernel"] * 2]
    assert [str(part.function) for part in calls[0].parts] == ["register_fake"]
    for engine in ("lab", "torch"):
        done = dispatchlab(tmp_path, "permute", "found.yaml", "--engine", engine, "--format", "json")
        found = json.loads(done.stdout)
        assert (found["verdict"], found["walk"]) == ("order-dependent", "imports"), engine
        assert "custom_ops fake" in found["counterexample"]["diff"]


@needs_torchao
def test_torchao_is_recorded_with_its_sites(tmp_path: Path) -> None:
    scenario, printed = recorded(tmp_path, "torchao")
    assert "PyTorch made for itself" in printed
    sites = {each.debug for each in scenario.registrations if isinstance(each, Block)}
    assert all(site.startswith("registered at torchao/") for site in sites)
    defs = [
        one
        for each in scenario.registrations
        if isinstance(each, Block)
        for one in each.registrations
        if isinstance(one, Def)
    ]
    assert len(defs) >= 18
    assert len(sites) >= 18
    done = dispatchlab(tmp_path, "permute", "found.yaml", "--engine", "torch", "--format", "json")
    report = json.loads(done.stdout)
    assert report["verdict"] == "no violation found"
    report = json.loads(dispatchlab(tmp_path, "permute", "found.yaml", "--format", "json").stdout)
    assert (report["verdict"], report["unexplored"]) == ("no violation found", len(scenario.python))


@needs_quanto
def test_the_kernel_of_quanto_for_mps_dangles_in_the_record_too(tmp_path: Path) -> None:
    scenario, printed = recorded(tmp_path, "optimum.quanto")
    assert "12 registrations, made by 12 lines of Python: 4 operators and 8 kernels\n" in printed
    assert "kernels without a def dangle: quanto_py::qbytes_mm" in printed
    dangling = next(
        each for each in scenario.registrations if isinstance(each, Block) and each.namespace == "quanto_py"
    )
    assert dangling.debug == "registered at optimum/quanto/library/qbytes_mm.py:108"
    done = dispatchlab(tmp_path, "dump", "quanto_py::qbytes_mm", "--from", "found.yaml", "--engine", "torch")
    assert done.stdout.startswith(
        "name: quanto_py::qbytes_mm\nschema: (none)\nMPS: registered at optimum/quanto/library/qbytes_mm.py:108 "
    )
    done = dispatchlab(tmp_path, "permute", "found.yaml", "--engine", "torch", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "no violation found")
    done = dispatchlab(tmp_path, "permute", "found.yaml", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "no violation found")


def test_what_cannot_be_recorded_is_an_error(tmp_path: Path) -> None:
    package(tmp_path, "broken", init="raise ValueError('nobody home')\n")
    done = dispatchlab(tmp_path, "record", "broken", "-o", "found.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("broken cannot be imported: ValueError: nobody home")
    assert not (tmp_path / "found.yaml").exists()
    (tmp_path / "elsewhere").mkdir()  # here it is the package of the checkout
    done = dispatchlab(tmp_path / "elsewhere", "record", "-o", "found.yaml")
    assert done.returncode == 2
    assert "name packages to import, or use --all" in done.stderr


_OPS = """\
import torch

torch.library.define("mart::bought", "(Tensor x) -> Tensor")


@torch.library.impl("mart::bought", "cpu")
def bought(x):
    return x.clone()
"""
_FAKES = """\
import torch
from mart import ops


@torch.library.register_fake("mart::bought")
def bought_fake(x):
    return torch.empty_like(x)


torch.library.register_autograd("mart::bought", lambda ctx, grad: grad)
"""
_OVERRIDE = """\
import torch

lib = torch.library.Library("mart", "FRAGMENT")
lib.impl("bought", lambda x: x + 1, "CPU")
"""


def test_a_package_and_the_modules_that_it_imports_are_one_whole(tmp_path: Path) -> None:
    package(tmp_path, "mart", init="from . import ops, fakes\n", ops=_OPS, fakes=_FAKES)
    scenario, _ = recorded(tmp_path, "mart")
    assert (scenario.modules, scenario.order) == ((Module("mart", (0, 1, 2, 3)),), ())
    for more in (["--engine", "torch"], ["--semantics", "torch-2.13"]):
        done = dispatchlab(tmp_path, "permute", "found.yaml", *more, "--format", "json")
        report = json.loads(done.stdout)
        assert (done.returncode, report["orders"], report["modules"], report["conflicts"]) == (0, "1", 1, []), report
        assert any("each module as a whole; nothing is released" in note for note in report["notes"])


def test_a_module_comes_after_those_that_it_imports(tmp_path: Path) -> None:
    package(tmp_path, "mart", ops=_OPS, fakes=_FAKES)
    scenario, _ = recorded(tmp_path, "mart.fakes", "mart.ops")
    assert scenario.modules == (Module("mart.ops", (0, 1)), Module("mart.fakes", (2, 3)))
    assert scenario.order == ((1, 2),)


def test_two_modules_that_override_each_other_are_found_in_a_record(tmp_path: Path) -> None:
    package(tmp_path, "mart", init="from . import ops, fakes\n", ops=_OPS, fakes=_FAKES)
    (tmp_path / "discount.py").write_text(_OVERRIDE)
    scenario, _ = recorded(tmp_path, "mart", "discount")
    assert scenario.modules[-1] == Module("discount", (4,))
    done = dispatchlab(tmp_path, "permute", "found.yaml", "--engine", "torch", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (1, "order-dependent")
    assert report["counterexample"]["flaw"] == "non-commuting"
    found = {report["counterexample"]["expected_sequence"], report["counterexample"]["actual_sequence"]}
    assert all("+4" in sequence and "-" not in sequence for sequence in found)


def test_a_module_that_needs_another_and_does_not_import_it_is_found(tmp_path: Path) -> None:
    fakes = _FAKES.replace("from mart import ops\n", "")
    package(tmp_path, "mart", ops=_OPS, fakes=fakes)
    recorded(tmp_path, "mart.ops", "mart.fakes")
    done = dispatchlab(tmp_path, "permute", "found.yaml", "--engine", "torch", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["counterexample"]["flaw"]) == (1, "outcome"), report
    assert report["counterexample"]["actual_sequence"] == "+2"


_FOR_A_WHILE = """\
import torch

for kind, namespace in ("FRAGMENT", "street"), ("DEF", "avenue"), ("IMPL", "_"):
    gone = torch.library.Library(namespace, kind)
    if kind == "FRAGMENT":
        gone.define("door(Tensor x) -> Tensor")
        gone.define("alone(Tensor x) -> Tensor")
    elif kind == "IMPL":
        gone.fallback(torch.library.fallthrough_kernel, "PrivateUse2")
    gone._destroy()
"""
_FOR_GOOD = """\
import torch

street = torch.library.Library("street", "FRAGMENT")
street.define("door(Tensor x) -> Tensor")
avenue = torch.library.Library("avenue", "DEF")
every = torch.library.Library("_", "IMPL")
every.fallback(torch.library.fallthrough_kernel, "PrivateUse2")
"""


def test_what_is_registered_for_a_while_is_not_in_the_record_and_an_order_of_imports_shows_it(tmp_path: Path) -> None:
    (tmp_path / "visitor.py").write_text(_FOR_A_WHILE)
    (tmp_path / "tenant.py").write_text(_FOR_GOOD)
    scenario, _ = recorded(tmp_path, "visitor", "tenant")
    assert {module.name for module in scenario.modules} == {"tenant"}
    done = dispatchlab(tmp_path, "check", "--orders", "visitor", "tenant")
    assert (done.returncode, "differs: import of visitor" in done.stdout) == (1, True), done.stdout
    assert "+RuntimeError: Tried to register an operator (street::door" in done.stdout
    alone, _ = recorded(tmp_path, "visitor")
    assert alone.registrations == ()


_THREADS = """\
import threading
import torch

yard = torch.library.Library("yard", "DEF")
yard.define("door(Tensor x) -> Tensor")


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""
_IN_THREAD = """\
import torch
import yard

lib = torch.library.Library("yard", "IMPL")
yard.in_thread(lambda: lib.impl("door", lambda x: x, "CPU"))
"""
_MEANWHILE = """\

class Tags(tuple):
    def __contains__(self, tag):  # PyTorch is inside of define now
        if not self:
            yard.in_thread(lambda: torch.library.Library.impl(lib, "door", lambda x: x, "CUDA"))
        return False


other = torch.library.Library("yard", "FRAGMENT")
other.define("gate(Tensor x) -> Tensor", tags=Tags())
"""


def test_what_a_thread_registers_is_of_the_module_that_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "yard.py").write_text(_THREADS)
    (tmp_path / "left.py").write_text(_IN_THREAD)
    (tmp_path / "right.py").write_text(_IN_THREAD + _MEANWHILE)
    scenario, _ = recorded(tmp_path, "left", "right")
    assert scenario.modules == (
        Module("yard", (0, 1)),
        Module("left", (2,)),
        Module("right", (3, *range(4, len(scenario.registrations)))),
    )
    made = Counter(each for one in scenario.registrations if isinstance(one, Block) for each in one.registrations)
    kernels = Counter((str(each.operator), str(each.key)) for each in made.elements() if isinstance(each, Impl))
    assert kernels["door", "CPU"] == 2
    assert {key for _, key in kernels} == {"CPU", "CUDA"}, "a call of a thread is none of the call of another one"
    done = dispatchlab(tmp_path, "permute", "found.yaml", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (1, "order-dependent"), done.stdout


_IN_PYTHON = """\
import torch
from torch._decomp import decomposition_table

torch.utils.rename_privateuse1_backend("spinner")


def absolute(x):
    return x


decomposition_table[torch.ops.aten.addcdiv.default] = absolute
"""


def test_what_a_package_puts_into_registries_of_python_is_listed_and_checked(tmp_path: Path) -> None:
    (tmp_path / "tables.py").write_text(_IN_PYTHON)
    scenario, printed = recorded(tmp_path, "tables")
    line = line_of(_IN_PYTHON, "def absolute")
    assert [(one.registry, one.operator, one.function, one.site) for one in scenario.python] == [
        ("decompositions", "aten::addcdiv", "tables:absolute", f"tables.py:{line}"),
        ("privateuse1_name", scenario.python[-1].operator, "spinner", ""),
    ]
    assert scenario.privateuse1 == "spinner"
    assert "2 entries of the registries of Python, which permute does not explore: " in printed
    assert dispatchlab(tmp_path, "record", "--check", "found.yaml").returncode == 0
    (tmp_path / "tables.py").write_text(_IN_PYTHON.replace("absolute", "other"))
    done = dispatchlab(tmp_path, "record", "--check", "found.yaml")
    assert (done.returncode, "+ tables:other" in done.stdout) == (1, True), done.stdout
    found = dispatchlab(tmp_path, "check", "found.yaml")
    assert "DL016" in found.stdout, found.stdout
