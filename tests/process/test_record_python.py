"""`dispatchlab record` of packages that register in Python beside the dispatch tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.scenario.load import load_scenario
from tests.live.packages import dispatchlab, package

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

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
lib.define("make() -> Tensor")  # PyTorch has a rule for every operator that makes a tensor of none


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
        ("decompositions", "street::door", "post_autograd", decomposition),
        ("py_kernels", "street::door", "Functionalize", f"{site(calls)} via {site(inner)}"),
        ("fake_rules", "street::door", "", site("@register_op_impl(torch.ops.street.door.default)")),
        (
            "torch_library",
            "street::door",
            "torch_dispatch street.Mode",
            site('@torch.library.register_torch_dispatch("street::door", Mode)'),
        ),
    ]
    assert "4 registrations of Python beside the dispatch tables: 1 of decompositions, 1 of Python kernels" in lines
    assert "torch/library.py" not in (tmp_path / "street.yaml").read_text()


def test_a_record_over_its_registry_is_what_importing_the_package_makes(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_OPERATORS)
    assert dispatchlab(tmp_path, "record", "street", "-o", "street.yaml").returncode == 0
    if load_scenario(tmp_path / "street.yaml").registry is None:
        pytest.skip("no registry of this PyTorch is bundled")
    compared = ("diff", "street.yaml", "live", "--import", "street", "--layer", "python", "--exit-code")
    same = dispatchlab(tmp_path, *compared)
    assert (same.returncode, "no difference" in same.stdout) == (0, True), same.stdout
    more = "@register_decomposition(torch.ops.street.gate.default)\ndef gate_pieces(x):\n    return x\n"
    (tmp_path / "street" / "__init__.py").write_text(f"{_OPERATORS}\n\n{more}")
    found = dispatchlab(tmp_path, *compared)
    assert (found.returncode, "only before" in found.stdout) == (1, False)
    assert "street::gate post_autograd  only after\n      street:gate_pieces at street/" in found.stdout


def test_what_pytorch_brings_by_itself_is_not_of_the_package(tmp_path: Path) -> None:
    listed, _ = _recorded(tmp_path, _LOWERINGS)
    names = [(registry, operator) for registry, operator, _, _ in listed]
    assert names == [
        ("inductor_lowerings", "street::door"),
        ("inductor_lowerings", "street::gate"),
        ("inductor_fallbacks", "street::gate"),
        ("inductor_lowerings", "aten::add.Tensor"),
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
    permuted = dispatchlab(tmp_path, "permute", "both.yaml")
    assert permuted.returncode == 1, permuted.stderr
    for name in ("left", "right"):
        assert f"decompositions post_autograd: {name}:pieces, registered at {name}/__init__.py:5\n" in permuted.stdout


_WRITERS = {
    "": """\
import torch

lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
lib.define("gate(Tensor x) -> Tensor")
from . import first, second, third, lowers, shards
""",
    "first": """\
import torch
from torch._decomp import decomposition_table as table, register_decomposition
from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

door = torch.ops.street.door.default
table[torch.ops.aten.bincount.default] = lambda x: x
register_decomposition(torch.ops.street.door)(lambda x: x)
try:
    register_decomposition([torch.ops.street.gate.default, door])(lambda x: x)
except RuntimeError:
    pass
register_op_impl([door])(lambda mode, function, x: x)
try:
    register_op_impl([door])(lambda mode, function, x: x)
except AssertionError:
    pass
try:
    register_decomposition(torch.ops.aten.addmv)(lambda *a: a)  # PyTorch has one, in every order
except RuntimeError:
    pass
kept = torch._refs.addcdiv, table.pop(torch.ops.aten.addcdiv.default)
""",
    "second": """\
import torch
from torch._decomp import decomposition_table as table
from .first import door, kept
from torch._C import DispatchKey

table[torch.ops.aten.bincount.default] = lambda x: x
table[torch.ops.aten.addcdiv.default] = kept[1]
door.py_impl(DispatchKey.Functionalize)(lambda x: x)
try:
    door.py_impl(DispatchKey.Functionalize)(lambda x: x)
except RuntimeError:
    pass


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    pass


door.py_impl(Mode)(lambda mode, x: x)
torch.ops.higher_order.cond.py_impl(Mode)(lambda mode, x: x)
door.py_kernels[DispatchKey.CPU] = lambda x: x
""",
    "third": """\
import torch
from torch._ops import HigherOrderOperator
from torch._higher_order_ops.utils import register_fake
from torch.nested._internal.ops import register_jagged_func
from .first import door


class Avenue(HigherOrderOperator):
    def __init__(self):
        super().__init__("avenue")

    def __call__(self, x):
        return super().__call__(x)


avenue = Avenue()


@avenue.py_impl(torch._C.DispatchKey.CPU)
def avenue_cpu(x):
    return x


register_fake(avenue, lambda x: x)


@register_jagged_func(door, "x: jt")
def jagged_door(func, *args, **kwargs):
    return None
""",
    "lowers": """\
import torch
from torch._inductor.lowering import lowerings, make_fallback, register_lowering
from torch._inductor.decomposition import decompositions, register_decomposition

door, gate = torch.ops.street.door.default, torch.ops.street.gate.default
register_lowering(door)(lambda x: x)
register_lowering(door)(lambda x: x)
make_fallback(gate)
register_decomposition(gate)(lambda x: x)
lowerings[torch.ops.aten.add.Tensor] = lambda x: x
del decompositions[gate]
""",
    "shards": """\
import torch
from torch.distributed.tensor.experimental import register_sharding

gate = torch.ops.street.gate.default


@register_sharding(gate)
def shard(x):
    return []


@register_sharding(gate)
def shard_again(x):
    return []
""",
}


def test_every_write_is_listed_in_the_order_of_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assignments in two modules, calls that are refused and caught, what is taken out, put back and written twice."""
    monkeypatch.delenv("CI", raising=False)  # where it is set, Inductor's `make_fallback` refuses what it warns of
    package(tmp_path, "street", init=_WRITERS[""])
    for module, text in _WRITERS.items():
        if module:
            (tmp_path / "street" / f"{module}.py").write_text(text)
    done = dispatchlab(tmp_path, "record", "street", "-o", "street.yaml")
    assert done.returncode == 0, done.stderr
    assert (
        "decompositions, post_autograd for street::door refused, since there is one, at street/first.py" in done.stderr
    )
    own = "refused, since PyTorch has one: decompositions, post_autograd for aten::addmv at street/first.py"
    assert own in done.stderr
    assert "decompositions, post_autograd for aten::addcdiv taken out at street/first.py" in done.stderr

    def line(site: str) -> str:
        """The text of the line of a site, or the file where that is all that is known."""
        file, _, number = site.rpartition(" via ")[2].rpartition(":")
        return (tmp_path / file).read_text().splitlines()[int(number) - 1].strip() if file else site

    found = [
        (one.registry, one.operator, one.key, one.call, one.effect, line(one.site))
        for one in load_scenario(tmp_path / "street.yaml").python
    ]
    taking = "kept = torch._refs.addcdiv, table.pop(torch.ops.aten.addcdiv.default)"
    used = [one for one in found if one[4] == "used"]
    assert {(one[0], one[5]) for one in used} == {("decompositions", taking)}
    assert {one[1] for one in used} >= {"aten::bincount"}
    found = [one for one in found if one[4] != "used"]
    bincount, post = "table[torch.ops.aten.bincount.default] = lambda x: x", "post_autograd"
    again = "register_decomposition([torch.ops.street.gate.default, door])(lambda x: x)"
    rule = "register_op_impl([door])(lambda mode, function, x: x)"
    kernel = "door.py_impl(DispatchKey.Functionalize)(lambda x: x)"
    fake = "torch._subclasses.fake_tensor.FakeTensorMode"
    hop, lowered = "higher_order::avenue", "register_lowering(door)(lambda x: x)"
    assert found == [
        ("decompositions", "aten::bincount", post, "assignment", "", bincount),
        (
            "decompositions",
            "street::door",
            post,
            "register_decomposition",
            "",
            "register_decomposition(torch.ops.street.door)(lambda x: x)",
        ),
        ("decompositions", "street::door", post, "register_decomposition", "refused", again),
        ("decompositions", "street::gate", post, "register_decomposition", "", again),
        ("fake_rules", "street::door", "", "register_op_impl", "", rule),
        ("fake_rules", "street::door", "", "register_op_impl", "refused", rule),
        ("decompositions", "aten::addcdiv", post, "assignment", "removed", "street/first.py"),
        ("decompositions", "aten::bincount", post, "assignment", "", bincount),
        ("decompositions", "aten::addcdiv", post, "assignment", "", "street/second.py"),
        ("py_kernels", "street::door", "Functionalize", "py_impl", "", kernel),
        ("py_kernels", "street::door", "Functionalize", "py_impl", "refused", kernel),
        ("mode_rules", "street::door", "street.second.Mode", "py_impl", "", "door.py_impl(Mode)(lambda mode, x: x)"),
        (
            "higher_order",
            "higher_order::cond",
            "street.second.Mode",
            "py_impl",
            "",
            "torch.ops.higher_order.cond.py_impl(Mode)(lambda mode, x: x)",
        ),
        ("py_kernels", "street::door", "CPU", "assignment", "", "door.py_kernels[DispatchKey.CPU] = lambda x: x"),
        ("higher_order", hop, "", "HigherOrderOperator", "", 'super().__init__("avenue")'),
        ("higher_order", hop, "CPU", "py_impl", "", "@avenue.py_impl(torch._C.DispatchKey.CPU)"),
        ("higher_order_fakes", hop, "", "register_fake", "", "register_fake(avenue, lambda x: x)"),
        ("higher_order", hop, fake, "register_fake", "", "register_fake(avenue, lambda x: x)"),
        ("jagged", "street::door", "", "register_jagged_func", "", '@register_jagged_func(door, "x: jt")'),
        ("inductor_lowerings", "street::door", "", "register_lowering", "", lowered),
        ("inductor_lowerings", "street::door", "", "register_lowering", "", lowered),
        ("inductor_lowerings", "street::gate", "", "make_fallback", "", "make_fallback(gate)"),
        ("inductor_fallbacks", "street::gate", "", "make_fallback", "", "make_fallback(gate)"),
        (
            "inductor_decompositions",
            "street::gate",
            "",
            "register_decomposition",
            "",
            "register_decomposition(gate)(lambda x: x)",
        ),
        ("inductor_decompositions", "street::gate", "", "assignment", "removed", "street/lowers.py"),
        (
            "inductor_lowerings",
            "aten::add.Tensor",
            "",
            "assignment",
            "",
            "lowerings[torch.ops.aten.add.Tensor] = lambda x: x",
        ),
        ("dtensor_rules", "street::gate", "strategy", "register_sharding", "", "@register_sharding(gate)"),
        ("dtensor_rules", "street::gate", "strategy", "register_sharding", "", "@register_sharding(gate)"),
    ]


def test_no_verdict_on_a_record_is_about_what_was_not_explored(tmp_path: Path) -> None:
    _recorded(tmp_path, _OPERATORS)
    done = dispatchlab(tmp_path, "permute", "street.yaml", "--require-proof")
    assert done.returncode == 3
    sentence = "no violation found in the C++ layer and the Python layer; 1 registration of Python not explored"
    standing = "torch-2.13; the one order in which these modules can be imported ran"
    assert f"verdict: {sentence} ({standing})\n" in done.stdout


_HALL = """\
import torch

lib = torch.library.Library("hall", "DEF")
lib.define("door(Tensor x) -> Tensor")
"""
_SCRIPT = """\
import sys, torch

sys.kept = torch.library.Library("hall", "IMPL")
sys.kept.impl("door", lambda x: x, "CPU")
"""
_LEFT = """\
import os, runpy
import torch
from torch._decomp import decomposition_table
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
import hall

decomposition_table[torch.ops.hall.door.default] = torch._refs.abs
_register_effectful_op(torch.ops.aten.special_i1e.default, _EffectType.ORDERED)
runpy.run_path(os.path.join(os.path.dirname(__file__), "script.py"))
"""
_RIGHT = """\
import torch
from torch._decomp import decomposition_table
import hall

decomposition_table[torch.ops.hall.door.default] = lambda x: x
"""


def test_a_function_of_pytorch_that_a_package_registers_is_of_the_package(tmp_path: Path) -> None:
    for name, text in {"hall": _HALL, "script": _SCRIPT, "left": _LEFT, "right": _RIGHT}.items():
        (tmp_path / f"{name}.py").write_text(text)
    done = dispatchlab(tmp_path, "record", "left", "right", "-o", "hall.yaml")
    assert done.returncode == 0, done.stderr
    assert "left out: " not in done.stderr
    scenario = load_scenario(tmp_path / "hall.yaml")
    assert [(one.registry, one.operator, one.call, one.site) for one in scenario.python] == [
        ("decompositions", "hall::door", "assignment", "left.py"),
        ("torch_library", "aten::special_i1e", "register_effectful_op", "left.py:8"),
        ("decompositions", "hall::door", "assignment", "right.py:5"),
    ]
    numbers = {module.name: module.body for module in scenario.modules}
    assert numbers["left"] == ("hall", 3, 4, 2), "what runpy runs belongs to the module that runs it"
    done = dispatchlab(tmp_path, "permute", "hall.yaml")
    assert (done.returncode, "order-dependent" in done.stdout) == (1, True), done.stdout


_EFFECTS = """\
import torch
from torch._higher_order_ops.effects import _register_effectful_op

lib = torch.library.Library("street", "DEF")
for name in ("ring", "knock", "wave"):
    lib.define(f"{name}(Tensor x) -> ()")
ORDERED = torch.library.EffectType.ORDERED
_register_effectful_op(torch.ops.street.ring.default, ORDERED)
torch.library._register_effectful_op("street::knock", ORDERED)
lib._register_effectful_op("street::wave", ORDERED)
_register_effectful_op("aten::_print", None)
"""

_OTHER_EFFECTS = """\
import torch

torch.library._register_effectful_op("street::knock", torch.library.EffectType.ORDERED)
torch.library._register_effectful_op("street::{taken}", None)
"""


@pytest.mark.skipif(not hasattr(torch.library, "_register_effectful_op"), reason="this PyTorch has no such function")
@pytest.mark.parametrize("taken", ["bell", "wave"])
def test_effects_are_listed_and_one_that_is_taken_away_depends_on_the_order(tmp_path: Path, taken: str) -> None:
    package(tmp_path, "street", init=_EFFECTS)
    package(tmp_path, "square", init=_OTHER_EFFECTS.format(taken=taken))
    done = dispatchlab(tmp_path, "record", "street", "square", "-o", "street.yaml")
    assert done.returncode == 0, done.stderr
    listed = load_scenario(tmp_path / "street.yaml").python
    assert {one.call for one in listed} == {"register_effectful_op"}
    assert [(one.operator, one.site, one.effect) for one in listed] == [
        ("street::ring", "street/__init__.py:8", ""),
        ("street::knock", "street/__init__.py:9", ""),
        ("street::wave", "street/__init__.py:10", ""),
        ("aten::_print", "street/__init__.py:11", "removed"),
        ("street::knock", "square/__init__.py:3", ""),
        (f"street::{taken}", "square/__init__.py:4", "removed"),
    ]
    depends = taken == "wave"
    found = dispatchlab(tmp_path, "permute", "street.yaml", "--require-proof")
    assert found.returncode == (1 if depends else 0), found.stdout
    assert ("of street::wave is in Python after one of the two and not after the other" in found.stdout) is depends
    imports = ("--import", "street", "--import", "square")
    same = dispatchlab(tmp_path, "diff", "street.yaml", "live", *imports, "--layer", "python", "--exit-code")
    assert (same.returncode, "no difference" in same.stdout) == (0, True), same.stdout


_BESIDE_LAYERS = """\
import torch
from torch.utils.flop_counter import register_flop_formula

lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
torch.utils.rename_privateuse1_backend("street")
register_flop_formula(torch.ops.street.door)(lambda *arguments, **named: 1)
register_flop_formula(torch.ops.aten.cumsum)(lambda *arguments, **named: 1)
torch.onnx.register_custom_op_symbolic("aten::relu", lambda g, x: x, 17)
torch.fx.has_side_effect(torch.ops.aten.relu.default)
"""

_SECOND = """\
import torch
from torch.utils.flop_counter import register_flop_formula

torch.fx.has_side_effect(torch.ops.aten.relu.default)
torch.onnx.unregister_custom_op_symbolic("aten::relu", 17)
for register in (
    lambda: register_flop_formula(torch.ops.aten.cumsum)(print),
    lambda: register_flop_formula(torch.ops.aten.mm)(print),
    lambda: torch.utils.rename_privateuse1_backend("square"),
    lambda: torch._C._rename_privateuse1_backend("circle"),
):
    try:
        register()
    except RuntimeError:
        pass
"""

_PRIVATEUSE1 = "python::torch.utils.rename_privateuse1_backend"


def test_registries_that_no_layer_has_are_in_a_record_and_a_second_name_or_formula_is_refused(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_BESIDE_LAYERS)
    package(tmp_path, "square", init=_SECOND)
    done = dispatchlab(tmp_path, "record", "street", "square", "-o", "street.yaml")
    assert done.returncode == 0, done.stderr
    assert "refused, since PyTorch has one: formulas that count floating-point operations for aten::mm.*" in done.stderr
    listed = load_scenario(tmp_path / "street.yaml").python
    assert [(one.registry, one.operator, one.key, one.site, one.effect) for one in listed] == [
        ("privateuse1_name", _PRIVATEUSE1, "", "street/__init__.py:6", ""),
        ("flop_formulas", "street::door.*", "", "street/__init__.py:7", ""),
        ("flop_formulas", "aten::cumsum.*", "", "street/__init__.py:8", ""),
        ("onnx_functions", "aten::relu", "opset 17", "street/__init__.py:9", ""),
        ("fx_side_effects", "aten::relu", "", "street/__init__.py:10", ""),
        ("onnx_functions", "aten::relu", "opset 17", "square/__init__.py:5", "removed"),
        ("flop_formulas", "aten::cumsum.*", "", "square/__init__.py:13 via square/__init__.py:7", "refused"),
        ("privateuse1_name", _PRIVATEUSE1, "", "square/__init__.py:13 via square/__init__.py:9", "refused"),
        ("privateuse1_name", _PRIVATEUSE1, "", "square/__init__.py:13 via square/__init__.py:10", "refused"),
        ("onnx_functions", "aten::relu", "opset 17", "square/__init__.py:5", "used"),
    ]
    assert [one.function for one in listed if one.registry == "privateuse1_name"] == ["street", "square", "circle"]
    found = dispatchlab(tmp_path, "permute", "street.yaml").stdout
    for what in (f"privateuse1_name of {_PRIVATEUSE1}", "flop_formulas of aten::cumsum.*"):
        assert f"exclude one another (duplicate_python): {what} is registered already (" in found
    assert dispatchlab(tmp_path, "record", "--check", "street.yaml").returncode == 0


def test_equal_names_of_the_backend_do_not_exclude_one_another(tmp_path: Path) -> None:
    package(tmp_path, "street", init="import torch\ntorch.utils.rename_privateuse1_backend('street')\n")
    package(tmp_path, "square", init="import torch\ntorch.utils.rename_privateuse1_backend('street')\n")
    assert dispatchlab(tmp_path, "record", "street", "square", "-o", "street.yaml").returncode == 0
    assert [one.site for one in load_scenario(tmp_path / "street.yaml").python] == ["street/__init__.py:2"]
    assert dispatchlab(tmp_path, "permute", "street.yaml", "--require-proof").returncode == 0


_REPLACING = """\
import functools
import torch
import torch._inductor.lowering as inductor

impl, library, lowering = torch.library.Library.impl, torch._C._dispatch_library, inductor.register_lowering


@functools.wraps(impl)
def replaced_impl(self, *arguments, **named):
    return impl(self, *arguments, **named)


torch.library.Library.impl = replaced_impl
torch._C._dispatch_library = lambda *arguments: library(*arguments)
inductor.register_lowering = functools.wraps(lowering)(lambda *arguments: lowering(*arguments))
torch.library.a_new_function = replaced_impl
del torch.library.wrap_triton
from . import registering
"""

_REGISTERING = """\
import torch
from torch._inductor.lowering import register_lowering

lib = torch.library.Library("street", "DEF")
lib.define("door(Tensor x) -> Tensor")
lib.impl("door", lambda x: x, "CPU")
register_lowering(torch.ops.street.door.default)(lambda x: x)
"""


def test_a_function_of_pytorch_that_is_replaced_is_listed_and_what_goes_through_it_is_recorded(tmp_path: Path) -> None:
    package(tmp_path, "street", init=_REPLACING, registering=_REGISTERING)
    assert dispatchlab(tmp_path, "record", "street", "-o", "street.yaml", "--once").returncode == 0
    scenario = load_scenario(tmp_path / "street.yaml")
    assert {str(name) for name in scenario.operators} == {"street::door"}
    assert len(scenario.registrations) == 3  # the claim, the def and the kernel
    assert [(one.registry, one.operator, one.function, one.site, one.effect) for one in scenario.python] == [
        ("inductor_lowerings", "street::door", "street.registering:<lambda>", "street/registering.py:7", ""),
        *(
            ("replaced_functions", f"python::torch.{path}", function, site and f"street/__init__.py:{site}", effect)
            for path, function, site, effect in (
                ("_C._dispatch_library", "street:<lambda>", 14, ""),
                ("library.wrap_triton", "", "", "removed"),
                ("library.Library.impl", "street:replaced_impl", 8, ""),
                ("_inductor.lowering.register_lowering", "street:<lambda>", 15, ""),
            )
        ),
    ]
    found = dispatchlab(tmp_path, "permute", "street.yaml", "--require-proof")
    assert (found.returncode, "4 registrations of Python not explored" in found.stdout) == (3, True), found.stdout
