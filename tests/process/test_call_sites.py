"""Commands on `live` name the lines that registered, as `record` does, and compare packages by them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.model.registration import Block, Def, Impl, TorchLibraryFunction
from dispatchlab.registries.file import open_registry
from dispatchlab.scenario.load import load_scenario
from tests.live.packages import HELPER, SHOP, dispatchlab, package

FIRST = """
import torch
torch.library.impl("aten::hypot", "PrivateUse1", lambda x, y: x)
"""

LOOP = """
import torch
from loop import helper

torch.library.define("loop::last", "(Tensor x) -> Tensor")
helper.register_all(torch.library.Library("loop", "FRAGMENT"), ["one", "two"])
helper.register_all(helper.LATER, ["three"])
torch.library.impl("aten::hypot", "PrivateUse1", lambda x, y: x)
"""

LOOP_HELPER = """
import functools
import torch

LATER = torch.library.Library("loop", "FRAGMENT")
KEPT = []


def register_all(library, names):
    KEPT.append(library)
    for name in names:
        register = functools.partial(register_one, library)
        register(name)


def register_one(library, name):
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x, "CPU")
"""


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A folder with a package that registers in a loop of a helper."""
    package(tmp_path, "loop", init=LOOP, helper=LOOP_HELPER)
    return tmp_path


def test_packages_that_override_each_other_differ_though_both_register_in_a_line_of_torch(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(FIRST)
    done = dispatchlab(tmp_path, "check", "--orders", "first", "second")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(
        "first, second: differs: the registrations at first.py:3 and second.py:3 both set the PrivateUse1 kernel of "
        "aten::hypot"
    )
    assert "    +PrivateUse1: registered at first.py:3 " in done.stdout


def test_a_loop_in_a_helper_is_named_with_its_callers(loop: Path) -> None:
    done = dispatchlab(loop, "dump", "--from", "loop", "loop::*", "--key", "CPU")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("CPU: ") and line.endswith("[kernel]")]
    assert rows == [
        f"CPU: registered at loop/__init__.py:{line} via loop/helper.py:13 via loop/helper.py:18 [kernel]"
        for line in (6, 7, 6)
    ]
    whole = dispatchlab(loop, "dump", "--from", "loop", "loop::*", "--format", "text")
    assert "debug: registered at loop/__init__.py:5\n" in whole.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("check", "loop", "--only", "lint", "--select", "DL006"),
        ("diff", "live", "loop", "--format", "json"),
        ("explain", "loop::one", "--from", "loop"),
    ],
)
def test_commands_on_live_name_the_line_that_registered(loop: Path, command: tuple[str, ...]) -> None:
    done = dispatchlab(loop, *command)
    assert done.returncode in (0, 1), done.stderr
    assert "loop/__init__.py:" in done.stdout
    assert "torch/library.py" not in done.stdout


def test_explain_names_the_kernel_of_a_custom_op_that_another_module_replaced(tmp_path: Path) -> None:
    made = (
        "import torch\n@torch.library.custom_op('two::f', mutates_args=(), device_types='cpu')\n"
        "def f(x: torch.Tensor) -> torch.Tensor: return x * 2\n"
    )
    later = "from two.ops import f\n@f.register_kernel('cpu')\ndef other(x): return x * 3\n"
    package(tmp_path, "two", init="import two.ops, two.later", ops=made, later=later)
    done = dispatchlab(tmp_path, "explain", "two::f", "cpu", "--from", "two")
    assert "kernel: registered at two/later.py:2 [kernel], at CPU" in done.stdout, done.stdout + done.stderr


def test_a_registry_and_a_record_of_a_package_name_the_same_lines(tmp_path: Path) -> None:
    package(tmp_path, "shop", init=SHOP, helper=HELPER, lazy="")
    assert dispatchlab(tmp_path, "record", "shop", "-o", "shop.yaml").returncode == 0
    assert dispatchlab(tmp_path, "record", "--all", "shop", "-o", "all.dlreg").returncode == 0
    registry = open_registry(str(tmp_path / "all.dlreg")).load()
    compared = 0
    for block in load_scenario(tmp_path / "shop.yaml").registrations:
        if not isinstance(block, Block) or block.made_by is None:
            continue
        if block.made_by.function is TorchLibraryFunction.CUSTOM_OP:
            continue
        for one in block.registrations:
            assert isinstance(one, Def | Impl)
            name = f"{block.namespace}::{one.operator.without_namespace}"
            operator = registry.operator(name)
            assert operator is not None
            if isinstance(one, Def):
                assert operator.debug == one.debug
            else:
                assert one.debug in {kernel.debug for kernel in operator.kernels if one.key in (None, kernel.key)}
            compared += 1
    assert compared >= SHOP.count("lib.") + 4
