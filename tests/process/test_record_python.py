"""`dispatchlab record` of packages that register in Python beside the dispatch tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.scenario.load import load_scenario
from tests.live.packages import dispatchlab, package

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

_OPERATORS = """\
import torch
from torch._decomp import register_decomposition
from torch._subclasses.fake_impls import register_op_impl

lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
lib.impl("door", lambda x: x + 1, "CPU")


@torch.library.custom_op("street::gate", mutates_args=(), device_types="cpu")
def gate(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@gate.register_fake
def gate_fake(x):
    return torch.empty_like(x)


torch.library.register_autocast("street::door", "cuda", torch.float16)


@torch.library.register_fake("street::door")
def door_fake(x):
    return torch.empty_like(x)


@register_decomposition(torch.ops.street.door.default)
def door_pieces(x):
    return x + 1


def for_functionalization(operator):
    def register(function):
        return operator.py_impl(torch._C.DispatchKey.Functionalize)(function)

    return register


for_functionalization(torch.ops.street.door.default)(lambda x: x)


@register_op_impl(torch.ops.street.door.default)
def door_rule(mode, function, x):
    return x


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    pass


@torch.library.register_torch_dispatch("street::door", Mode)
def door_under_mode(mode, function, types, args=(), kwargs=None):
    return args[0]
"""

_LOWERINGS = """\
import torch
from torch._inductor.lowering import lowerings, make_fallback, register_lowering

lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
lib.define("gate(Tensor x) -> Tensor")


@register_lowering(torch.ops.street.door.default)
def lower_door(x):
    return x


make_fallback(torch.ops.street.gate.default)
lowerings[torch.ops.aten.add.Tensor] = lower_door
"""


def _recorded(folder: Path, init: str) -> tuple[list[tuple[str, str, str, str]], str]:
    """What is listed of a package, and the lines on standard error."""
    package(folder, "street", init=init)
    done = dispatchlab(folder, "record", "street", "-o", "street.yaml")
    assert done.returncode == 0, done.stderr
    python = load_scenario(folder / "street.yaml").python
    return [(one.registry, one.operator, one.key, one.site) for one in python], done.stderr


def test_each_registration_is_listed_with_the_line_of_the_package(tmp_path: Path) -> None:
    listed, lines = _recorded(tmp_path, _OPERATORS)
    at = "street/__init__.py:{}".format
    lined = {line: number for number, line in enumerate(_OPERATORS.splitlines(), start=1)}

    def site(line: str) -> str:
        return at(lined[line])

    calls = "for_functionalization(torch.ops.street.door.default)(lambda x: x)"
    inner = "        return operator.py_impl(torch._C.DispatchKey.Functionalize)(function)"
    decomposition = site("@register_decomposition(torch.ops.street.door.default)")
    assert listed == [
        ("py_kernels", "street::door", "Functionalize", f"{site(calls)} via {site(inner)}"),
        ("decompositions", "street::door", "post_autograd", decomposition),
        ("fake_rules", "street::door", "", site("@register_op_impl(torch.ops.street.door.default)")),
        (
            "torch_library",
            "street::door",
            "torch_dispatch street.Mode",
            site('@torch.library.register_torch_dispatch("street::door", Mode)'),
        ),
    ]
    assert "4 registrations of Python beside the dispatch tables: 1 of Python kernels, 1 of decompositions" in lines
    assert "torch/library.py" not in (tmp_path / "street.yaml").read_text()


def test_what_pytorch_brings_by_itself_is_not_of_the_package(tmp_path: Path) -> None:
    listed, _ = _recorded(tmp_path, _LOWERINGS)
    names = [(registry, operator) for registry, operator, _, _ in listed]
    assert names == [
        ("inductor_lowerings", "aten::add.Tensor"),
        ("inductor_lowerings", "street::door"),
        ("inductor_lowerings", "street::gate"),
        ("inductor_fallbacks", "street::gate"),
    ]


def test_a_record_is_checked_in_python_as_well(tmp_path: Path) -> None:
    _recorded(tmp_path, _OPERATORS)
    assert dispatchlab(tmp_path, "record", "--check", "street.yaml").returncode == 0
    changed = _OPERATORS.replace("@register_op_impl(torch.ops.street.door.default)\n", "")
    (tmp_path / "street" / "__init__.py").write_text(changed)
    done = dispatchlab(tmp_path, "record", "--check", "street.yaml")
    assert done.returncode == 1
    assert "fake_rules street::door" in done.stdout


_PIECES = """\
import torch
from torch._decomp import decomposition_table


def pieces(x, *rest):
    return x


decomposition_table[torch.ops.aten.bincount.default] = pieces
"""


def test_what_a_package_writes_over_is_listed_before_what_is_there_at_the_end(tmp_path: Path) -> None:
    for name in ("left", "right"):
        package(tmp_path, name, init=_PIECES)
    done = dispatchlab(tmp_path, "record", "left", "right", "-o", "both.yaml")
    assert done.returncode == 0, done.stderr
    python = load_scenario(tmp_path / "both.yaml").python
    assert [(one.slot, one.site) for one in python] == [
        (("decompositions", "aten::bincount", "post_autograd"), f"{name}/__init__.py:5") for name in ("left", "right")
    ]
    linted = dispatchlab(tmp_path, "lint", "both.yaml")
    assert linted.returncode == 1, linted.stderr
    assert "from right/__init__.py:5 took the place of that of left/__init__.py:5" in " ".join(linted.stdout.split())
    assert dispatchlab(tmp_path, "record", "--check", "both.yaml").returncode == 0


def test_no_verdict_on_a_record_is_about_what_was_not_explored(tmp_path: Path) -> None:
    _recorded(tmp_path, _OPERATORS)
    done = dispatchlab(tmp_path, "permute", "street.yaml", "--require-proof")
    assert done.returncode == 3
    assert "verdict: no violation found in the C++ layer; 4 registrations of Python not explored" in done.stdout
