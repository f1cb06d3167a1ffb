"""Registrations of Python are made on the running PyTorch by the calls of packages, and taken back without a trace."""

from __future__ import annotations

import importlib
import random
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from dispatchlab.model.python_layer import (
    EVERY_REGISTRY,
    IMPORTS,
    PYTHON_REGISTRIES,
    REGISTRY_NAMED,
    PythonRegistration,
    Second,
)
from dispatchlab.pytorch.bridge.python_calls import (
    MadeInPython,
    PythonCallNotExpressibleError,
    entry_now,
    forget_operator,
    operator_object,
    python_call,
)
from dispatchlab.pytorch.introspection.python_registries import read_operators

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

_KEYS = {
    "py_kernels": ("Autograd", "CompositeImplicitAutograd", "Meta"),
    "mode_rules": ("street.Mode", "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode"),
    "decompositions": ("post_autograd", "pre_autograd"),
    "torch_library": ("torch_dispatch street.Mode",),
    "higher_order": ("CPU", "street.Mode", "functorch Vmap", ""),
    "dtensor_rules": ("rule", "strategy"),
}
_NO_CALLS = {each.name for each in EVERY_REGISTRY if each.no_call}


def _one(registry: str, key: str, operator: str = "door") -> PythonRegistration:
    namespace = "higher_order" if registry.startswith("higher_order") else "street"
    return PythonRegistration(registry, f"{namespace}::{operator}", key, f"street:{operator}_{registry}")


CASES = [
    _one(each.name, key)
    for each in PYTHON_REGISTRIES
    if each.name not in _NO_CALLS
    for key in _KEYS.get(each.name, ("",))
]


@pytest.fixture(scope="module", autouse=True)
def street() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these modules use parts of PyTorch that are deprecated
        for module in (*IMPORTS, "torch._decomp.decompositions_for_jvp"):
            importlib.import_module(module)
    library = torch.library.Library("livestreet", "DEF")
    library.define("door(Tensor x) -> Tensor")
    library.define("gate(Tensor x) -> Tensor")
    yield library
    library._destroy()


_OPERATORS = "livestreet::door", "livestreet::gate", "higher_order::door", "higher_order::gate"


@cache
def _missing() -> tuple[str, ...]:
    return read_operators(_OPERATORS).missing


def _read() -> list[PythonRegistration]:
    return list(read_operators(_OPERATORS))


@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.registry} {one.key}".strip())
def test_an_entry_is_made_by_the_call_of_its_registry_and_goes_without_a_trace(one: PythonRegistration) -> None:
    if one.registry in _missing():
        pytest.skip(f"this PyTorch has no {one.registry}")
    before = _read()
    call = python_call(one, "live")
    made = call()
    assert made.is_in_force()
    assert entry_now(one, "live") is made.value
    if not one.operator.startswith("higher_order"):  # an operator that stands in for one is hidden from readers
        (found,) = [each for each in _read() if each not in before]
        assert (found.registry, found.operator, found.key) == (one.registry, f"live{one.operator}", one.key)
    if one.registry == "torch_library" or (one.rule is not None and one.rule.second is Second.REFUSED):
        with pytest.raises(RuntimeError, match=r"already|duplicate|override"):
            call()
        assert made.is_in_force()
    else:
        over = call()
        assert over.is_in_force()
        assert not made.is_in_force()
        over.reset()
        assert made.is_in_force()
    made.reset()
    made.reset()
    assert _read() == before
    assert entry_now(one, "live") is None


@pytest.mark.parametrize("registry", sorted({one.registry for one in CASES if not one.registry.startswith("higher")}))
def test_an_operator_that_does_not_exist_is_a_refusal(registry: str) -> None:
    one = _one(registry, _KEYS.get(registry, ("",))[0], "window")
    with pytest.raises(RuntimeError, match="has no attribute 'window'"):
        python_call(one, "live")()
    assert entry_now(one, "live") is None


@pytest.mark.parametrize("registry", sorted(_NO_CALLS))
def test_what_is_no_call_by_itself_says_so(registry: str) -> None:
    with pytest.raises(PythonCallNotExpressibleError, match="cannot be made on the live PyTorch"):
        python_call(_one(registry, ""))
    assert set(REGISTRY_NAMED) == {one.registry for one in CASES} | _NO_CALLS


def test_a_fallback_is_refused_beside_a_decomposition_of_inductor() -> None:
    decomposition = python_call(_one("inductor_decompositions", ""), "live")()
    with pytest.raises(RuntimeError, match="both a fallback and a decomp for same op"):
        python_call(_one("inductor_fallbacks", ""), "live")()
    decomposition.reset()
    python_call(_one("inductor_fallbacks", ""), "live")().reset()


def test_an_entry_of_pytorch_comes_back() -> None:
    """The oldest of what was written over is put back when the last of ours goes, in whatever order they go."""
    lowering = PythonRegistration("inductor_lowerings", "aten::relu", "", "street:relu")
    kernel = PythonRegistration("py_kernels", "aten::relu", "Meta", "street:relu")
    own = entry_now(lowering)
    assert own is not None
    made = [python_call(lowering)() for _ in range(3)]
    made[1].reset()
    assert entry_now(lowering) is made[2].value
    made[2].reset()
    assert entry_now(lowering) is made[0].value
    made[0].reset()
    assert entry_now(lowering) is own
    assert entry_now(kernel) is not None
    with pytest.raises(RuntimeError, match="override"):
        python_call(kernel)()


def test_an_operator_that_is_defined_anew_has_none_of_it() -> None:
    """The entry is that of the operator object, and a new def has another one."""
    dispatch, one = torch._C._dispatch_library, _one("decompositions", "post_autograd", "lamp")
    kept = []
    for _ in range(2):
        library = dispatch("FRAGMENT", "livestreet", "", __file__, 1)
        library.define("lamp(Tensor x) -> Tensor", "")
        made = python_call(one, "live")()
        assert made.is_in_force()
        kept.append(operator_object("street::lamp", "live"))
        library.reset()
        forget_operator("livestreet::lamp")
        assert entry_now(one, "live") is None
        if len(kept) == 2:
            made.reset()
    assert kept[0] is not kept[1]
    python_calls = importlib.import_module("dispatchlab.pytorch.bridge.python_calls")
    assert [each.key for each in python_calls._written.values()] == [kept[0]]
    torch._decomp.decomposition_table.pop(kept[0])
    python_calls._written.clear()


def test_random_makes_and_resets_leave_what_was_there() -> None:
    random_numbers = random.Random(0)
    cases = [each._replace(operator=each.operator.replace("door", name)) for each in CASES for name in ("door", "gate")]
    cases = [each for each in cases if each.registry not in _missing()]
    before, alive = _read(), list[MadeInPython]()
    for _ in range(2000):
        if alive and random_numbers.random() < 0.4:
            alive.pop(random_numbers.randrange(len(alive))).reset()
        else:
            with suppress(RuntimeError):
                alive.append(python_call(random_numbers.choice(cases), "live")())
    assert len(alive) > 20
    for made in random_numbers.sample(alive, len(alive)):
        made.reset()
    assert _read() == before
