"""Pairs of packages that depend on order in what Python registers: found from their record alone, without PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from dispatchlab.prover.program import Module
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario, operators_named_by
from dispatchlab.scenario.write import scenario_text
from tests.live.packages import dispatchlab, package

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

_HOME = """\
import torch

lib = torch.library.Library("HOME", "DEF")
lib.define("door(Tensor x) -> Tensor")


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    pass
"""

_IMPORTS = """\
import torch
from torch._decomp import decomposition_table, register_decomposition
from torch._inductor import decomposition as of_inductor
from torch._inductor.lowering import make_fallback, register_lowering
import HOME

door = torch.ops.HOME.door.default
lib = torch.library.Library("HOME", "FRAGMENT")
try:
    CALL  # here
except (AssertionError, RuntimeError):
    pass
"""

_CUSTOM = 'torch.library.custom_op("HOME::gate", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")'
_RULE = 'torch.library.register_torch_dispatch("HOME::door", HOME.Mode, lambda *a: None)'
_FAKE, _META = 'torch.library.register_fake("HOME::door", lambda x: x)', 'lib.impl("door", lambda x: x, "Meta")'
_DECOMPOSITION = "register_decomposition(door)(lambda x: x)"
_LOWERING, _FALLBACK = "register_lowering(door)(lambda x: x)", "make_fallback(door)"
_TABLE = "decomposition_table[torch.ops.aten.addcdiv.default]"
_PAIRS = {
    "assigned": ("decomposition_table[door] = lambda x: x",) * 2,
    "lowered": (_LOWERING,) * 2,
    "faked": (_FAKE, _META),
    "py_impl": ("door.py_impl(torch._C.DispatchKey.Functionalize)(lambda x: x)",) * 2,
    "taken": (f"del {_TABLE}", f"{_TABLE} = lambda x: x"),
    "custom": (_CUSTOM,) * 2,
    "decomposed": (_DECOMPOSITION,) * 2,
    "ruled": (_RULE,) * 2,
    "fallback": (_FALLBACK, _LOWERING),
    "fallback_beside": (_FALLBACK, "of_inductor.register_decomposition(door)(lambda x: x)"),
    "beside_fallback": ("of_inductor.register_decomposition(door)(lambda x: x)", _FALLBACK),
    "defined": ('lib.define("wall(Tensor x) -> Tensor")',) * 2,
    "claimed": ('kept = torch.library.Library("HOME_too", "DEF")',) * 2,
    "composite": ('lib.impl("door", lambda x: x, "CompositeImplicitAutograd")', _META),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """The record of all the packages, made in one process, in one order: other orders show nothing of it."""
    folder = tmp_path_factory.mktemp("pairs")
    names = []
    for name, calls in _PAIRS.items():
        package(folder, name, init=_HOME.replace("HOME", name))
        for side, call in zip(("left", "right"), calls, strict=True):
            names.append(f"{name}_{side}")
            package(folder, names[-1], init=_IMPORTS.replace("CALL", call).replace("HOME", name))
    done = dispatchlab(folder, "record", *names, "-o", "pairs.yaml", "--once")
    assert done.returncode == 0, done.stderr
    return load_scenario(folder / "pairs.yaml")


def _restricted(whole: Scenario, name: str) -> Scenario:
    """The record of the packages of one pair."""
    count = len(whole.registrations)
    names = (name, f"{name}_left", f"{name}_right")
    modules = [module for module in whole.modules if module.name in names]
    numbers = sorted(item for module in modules for item in module.body if isinstance(item, int))
    new = {number: at for at, number in enumerate(numbers)}
    registrations = tuple(whole.registrations[number] for number in numbers if number < count)
    return replace(
        whole,
        registrations=registrations,
        operators=operators_named_by(registrations),
        modules=tuple(
            Module(
                each.name,
                tuple(
                    new[item] if isinstance(item, int) else item for item in each.body if item in new or item in names
                ),
            )
            for each in modules
        ),
        python=tuple(whole.python[number - count] for number in numbers if number >= count),
    )


def test_nothing_that_pytorch_tries_by_itself_is_in_the_record(whole: Scenario) -> None:
    sites = [one.site for one in whole.python]
    sites += [debug for one in whole.registrations if ".py" in (debug := getattr(one, "debug", ""))]
    assert len(sites) > 2 * len(_PAIRS)
    assert all(site.removeprefix("registered at ").startswith(tuple(_PAIRS)) for site in sites)


@pytest.mark.parametrize("name", _PAIRS)
def test_the_order_of_two_packages_is_found_from_their_record(whole: Scenario, name: str, tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(scenario_text(_restricted(whole, name)), encoding="utf-8")
    found = CliRunner().invoke(main, ["permute", str(file)])
    assert found.exit_code == 1, found.output
    assert "verdict: order-independent" not in found.stdout
    line = 1 + next(at for at, text in enumerate(_IMPORTS.splitlines()) if "# here" in text)
    for side in ("right",) if name == "ruled" else ("left", "right"):  # its refusal names the older rule alone
        site = f"{name}_{side}/__init__.py"
        # of what is taken out of a table, the file is known
        assert (site if (name, side) == ("taken", "left") else f"{site}:{line}") in found.stdout


_TAKING_BACK = {
    "popped": "decomposition_table.pop(door, None)",
    "put_back": "decomposition_table[door] = lambda x: x + 1\n    del decomposition_table[door]",
    "patched": "with mock.patch.dict(torch._decomp.decomposition_table, {door: lambda x: x}):\n        pass",
    "registered": None,
}


def test_code_that_may_take_out_what_another_package_registers_is_no_proof_in_one_order(tmp_path: Path) -> None:
    """None of it changes the table in the order of the record; in the other one, each but the patch does."""
    package(tmp_path, "home", init=_HOME.replace("HOME", "home"))
    lines = _IMPORTS.replace("HOME", "home").splitlines(keepends=True)
    imports = "".join(line for line in lines if "_inductor" not in line)  # which would take most of the time
    package(tmp_path, "writes", init=imports.replace("CALL", "decomposition_table[door] = lambda x: x"))
    for name, call in _TAKING_BACK.items():
        other = "register_decomposition(torch.ops.aten.addcdiv_.default, registry=decomposition_table)"
        package(tmp_path, name, init="from unittest import mock\n" + imports.replace("CALL", call or other))
        done = dispatchlab(tmp_path, "record", name, "writes", "-o", f"{name}.yaml")
        assert done.returncode == 0, done.stderr
        entries = load_scenario(tmp_path / f"{name}.yaml").python
        used = [one for one in entries if one.effect == "used"]
        found = CliRunner().invoke(main, ["permute", str(tmp_path / f"{name}.yaml"), "--require-proof"])
        if call is None:
            assert (found.exit_code, used) == (0, []), found.output
            continue
        assert {(one.registry, one.operator, one.key) for one in used} == {
            ("decompositions", "home::door", "post_autograd")
        }
        assert all(one.site.startswith(f"{name}/__init__.py:") for one in used)
        assert f"{used[0].site} names the table of" in done.stderr
        code, verdict = (0, "order-independent") if name == "patched" else (1, "order-dependent")
        assert found.exit_code == code, found.output
        assert f"verdict: {verdict} (torch-2.13; 2 of 2 import orders ran)\n" in found.stdout
        sentence = "depends on the order of imports: decompositions post_autograd of home::door\n"
        assert (sentence in found.stdout) == (name != "patched")
        once = replace(load_scenario(tmp_path / f"{name}.yaml"), imports=None)
        (tmp_path / "once.yaml").write_text(scenario_text(once), encoding="utf-8")
        found = CliRunner().invoke(main, ["permute", str(tmp_path / "once.yaml"), "--require-proof"])
        assert (found.exit_code, "verdict: no violation found" in found.stdout) == (3, True), found.output
