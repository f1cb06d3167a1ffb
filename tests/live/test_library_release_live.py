"""What `torch.library` objects release of the Python layer when they are destroyed, and what they leave."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

import torch

from dispatchlab.pytorch.bridge.registry_tables import overloads
from dispatchlab.pytorch.introspection.python_registries import read_operators

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # when decompositions are read

_NAME = "library_release::door"

HAS_TORCH_DISPATCH = hasattr(torch.library, "register_torch_dispatch")
OVERRIDES = "allow_override" in inspect.signature(torch.library.Library.impl).parameters
"""Which of this PyTorch has; tests/data/library_rules.json has the versions."""


def has(operator: str = _NAME) -> list[tuple[str, str]]:
    """The registries that have something for an operator now, and its keys."""
    return [(one.registry, one.key) for one in read_operators([operator])]


def library(kind: str = "FRAGMENT") -> Any:
    """A library of the namespace of these tests."""
    made: Any = torch.library.Library
    return made("library_release", kind)


@pytest.fixture
def door() -> Iterator[Any]:
    """A library that defines the operator; what it leaves in tables is taken out in the end."""
    defined = library()
    defined.define("door(Tensor x) -> Tensor")
    defined.impl("door", lambda x: x.clone(), "CPU")
    yield defined
    defined._destroy()
    from torch._decomp import decomposition_table
    from torch._subclasses.fake_impls import op_implementations_dict

    for table in (decomposition_table, op_implementations_dict):
        for operator in [each for each in table if str(each).startswith("library_release.")]:
            del table[operator]
    assert {key for _, key in has()} <= {"nothing"}


def test_a_library_releases_what_torch_library_registered_with_it(door: Any) -> None:
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        pass

    torch.library.register_fake(_NAME, lambda x: x, lib=door)
    if HAS_TORCH_DISPATCH:
        torch.library.register_torch_dispatch(_NAME, Mode, lambda *a, **k: None, lib=door)
    keys = [key.partition(" ")[0] for _, key in has()]
    assert keys == ["fake", *(["torch_dispatch"] if HAS_TORCH_DISPATCH else [])]
    door._destroy()
    assert has() == [("torch_library", "nothing")]  # the entry stays, and is empty


def test_a_fake_is_released_with_the_library_that_it_was_registered_with_not_with_the_def(door: Any) -> None:
    other = library()
    torch.library.register_fake(_NAME, lambda x: x, lib=other)
    assert has() == [("torch_library", "fake")]
    other._destroy()
    assert has() == [("torch_library", "nothing")]
    again = library()
    torch.library.register_fake(_NAME, lambda x: x, lib=again)  # nothing is in its way any more
    door._destroy()
    assert has() == [("torch_library", "fake")]  # and it stays although its operator is gone
    again._destroy()
    assert has() == [("torch_library", "nothing")]


def filled() -> list[tuple[str, str]]:
    """The same without the empty entry that an earlier fake implementation has left."""
    return [(registry, key) for registry, key in has() if key != "nothing"]


def test_decompositions_and_fake_rules_stay_and_are_of_an_operator_that_is_gone(door: Any) -> None:
    from torch._decomp import decomposition_table, register_decomposition
    from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

    stale = torch.ops.library_release.door.default
    register_decomposition(stale)(lambda x: x)
    register_op_impl(stale)(lambda mode, function, x: x)
    stale.py_impl(torch._C.DispatchKey.Functionalize)(lambda x: x)
    left = [("decompositions", "post_autograd"), ("fake_rules", "")]
    assert filled() == [("py_kernels", "Functionalize"), *left]
    door._destroy()
    assert filled() == left
    assert not hasattr(torch.ops.library_release, "door")

    again = library()
    again.define("door(Tensor x) -> Tensor")
    fresh = torch.ops.library_release.door.default
    assert fresh != stale
    assert fresh in list(overloads())
    assert stale.py_kernels  # the kernels of Python stay with the object that nothing leads to
    assert not fresh.py_kernels
    assert stale in decomposition_table
    assert fresh not in decomposition_table  # what was registered for the operator does not apply to it any more
    assert fresh not in op_implementations_dict
    register_decomposition(fresh)(lambda x: x)  # it is no duplicate
    assert filled() == [left[0], left[0], left[1]]
    again._destroy()


def test_a_custom_op_stays_in_python_when_its_library_is_destroyed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    schema = "(Tensor x) -> Tensor"  # PyTorch 2.4 infers none from annotations that are texts
    made: Any = torch.library.custom_op("library_release::made", function, mutates_args=(), schema=schema)
    made.register_fake(lambda x: x)
    name = "library_release::made"
    parts = [("custom_ops", "custom_op"), ("custom_ops", "fake")]
    assert sorted(has(name)) == [*parts, ("torch_library", "fake")]
    made._lib._destroy()
    assert sorted(has(name)) == [*parts, ("torch_library", "nothing")]
    del torch._library.custom_ops.OPDEFS[name]
    assert has(name) == [("torch_library", "nothing")]


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")  # of the override
def test_an_override_that_is_released_still_runs_under_a_mode(door: Any) -> None:
    door.impl("door", lambda x: x + 1, "AutogradCPU")
    override = library()
    if not OVERRIDES:
        with pytest.raises(RuntimeError, match="there's already a kernel registered from python"):
            override.impl("door", lambda x: x + 2, "AutogradCPU")
        return
    override.impl("door", lambda x: x + 2, "AutogradCPU", allow_override=True)
    x, called = torch.zeros((), requires_grad=True), torch.ops.library_release.door.default

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def under_a_mode() -> float:
        with Mode():  # type: ignore[no-untyped-call]
            return float(called(x).detach())

    assert (float(called(x).detach()), under_a_mode()) == (2, 2)
    override._destroy()
    assert (float(called(x).detach()), under_a_mode()) == (1, 2)  # dumps show the first kernel, and the second runs
