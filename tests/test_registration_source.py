"""Modules of all that is generated for functions outside of structured groups, too: they register, and calls run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dispatchlab import Dispatcher, DispatchKey, Tensor, tensor
from dispatchlab.call.operators import operator
from dispatchlab.call.tensor_options import Device, DeviceType
from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.emit.layer_formulas import generated_formulas
from dispatchlab.codegen.emit.registration_source import registration_files
from dispatchlab.codegen.emit.registrations import FunctionRegistrations, registrations_of
from dispatchlab.codegen.read.derivatives import read_derivatives
from dispatchlab.errors import CallError
from dispatchlab.layers import AutogradError, no_grad, recording
from dispatchlab.layers.backward import backward
from dispatchlab.layers.functional_tensors import FunctionalTensor, reapplied_views

NATIVES = """\
- func: empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, \
bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
  dispatch: {CPU: empty_cpu, Meta: empty_meta_symint}
  autogen: empty.memory_format_out
- func: normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)
  dispatch: {CPU: normal_}
  autogen: normal, normal.out
  tags: nondeterministic_seeded
- func: zeros_like(Tensor self) -> Tensor
  dispatch: {CPU: zeros_like}
- func: sin(Tensor self) -> Tensor
  dispatch: {CPU: sin}
- func: cos(Tensor self) -> Tensor
  dispatch: {CPU: cos}
- func: mul.Tensor(Tensor self, Tensor other) -> Tensor
  dispatch: {CPU: mul}
- func: view(Tensor(a) self, SymInt[] size) -> Tensor(a)
  dispatch: {CPU: view}
- func: view_copy(Tensor self, SymInt[] size) -> Tensor
  dispatch: {CompositeExplicitAutogradNonFunctional: view_copy}
  autogen: view_copy.out
  tags: view_copy
- func: unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]
  dispatch: {CPU: unbind}
- func: unbind_copy.int(Tensor self, int dim=0) -> Tensor[]
  dispatch: {CompositeExplicitAutogradNonFunctional: unbind_copy_int}
  tags: view_copy
- func: detach(Tensor(a) self) -> Tensor(a)
  dispatch: {CompositeExplicitAutograd: detach}
- func: detach_copy(Tensor self) -> Tensor
  dispatch: {CompositeExplicitAutogradNonFunctional: detach_copy}
  autogen: detach_copy.out
  tags: view_copy
- func: twice(Tensor self) -> Tensor
- func: lambda(Tensor self) -> Tensor
  dispatch: {CPU: my::own::lambda}
"""
DERIVATIVES = """\
- name: sin(Tensor self) -> Tensor
  self: grad * self.cos().conj()
- name: cos(Tensor self) -> Tensor
  self: grad.unheard_of()
- name: normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)
  self: zeros_like(grad)
- name: mul.Tensor(Tensor self, Tensor other) -> Tensor
  self: mul_tensor_backward(grad, other, self.scalar_type())
"""


class ByHand:
    """The functions that NATIVES names."""

    def empty_cpu(self, size: list[int], *options: Any) -> Tensor:
        return Tensor(np.zeros(size, np.float32))

    def empty_meta_symint(self, size: list[int], *options: Any) -> Tensor:
        return Tensor(np.zeros(size, np.float32), device=Device(DeviceType.META))

    def normal_(self, self_: Tensor, mean: float, std: float, generator: object) -> Tensor:
        self_.data[...] = mean
        return self_

    def normal(self, self_: Tensor, mean: float, std: float, generator: object) -> Tensor:
        return Tensor(np.full_like(self_.data, mean))

    def view_copy(self, self_: Tensor, size: list[int]) -> Tensor:
        return Tensor(self_.data.reshape(size).copy())

    def zeros_like(self, self_: Tensor) -> Tensor:
        return Tensor(np.zeros_like(self_.data))

    def sin(self, self_: Tensor) -> Tensor:
        return Tensor(np.sin(self_.data))

    def cos(self, self_: Tensor) -> Tensor:
        return Tensor(np.cos(self_.data))

    def mul(self, self_: Tensor, other: Tensor) -> Tensor:
        return Tensor(self_.data * other.data)

    def view(self, self_: Tensor, size: list[int]) -> Tensor:
        return Tensor(self_.data.reshape(size))

    def unbind(self, self_: Tensor, dim: int) -> list[Tensor]:
        return [Tensor(one) for one in np.moveaxis(self_.data, dim, 0)]

    def twice(self, self_: Tensor) -> Tensor:
        return self_

    def lambda_(self, self_: Tensor) -> Tensor:
        return self_


def registrations() -> tuple[FunctionRegistrations, ...]:
    natives = read_native_functions(NATIVES)
    return registrations_of(natives, read_derivatives(DERIVATIVES, natives))


def modules() -> dict[str, ModuleType]:
    natives = read_native_functions(NATIVES)
    derivatives = read_derivatives(DERIVATIVES, natives)
    formulas = generated_formulas(natives, derivatives).generated
    found: dict[str, ModuleType] = {}
    for name, text in registration_files(registrations_of(natives, derivatives), "n.yaml", formulas).items():
        if name.endswith(".py"):
            module = ModuleType(name)
            exec(compile(text, name, "exec"), module.__dict__)
            found[name.removesuffix("_registrations.py")] = module
    return found


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    made = Dispatcher()
    with ExitStack() as held:
        for module in modules().values():
            held.enter_context(module.register(made, ByHand()))
        yield made


def test_modules_register_what_the_registrations_say_and_take_it_down_again() -> None:
    made = Dispatcher()
    held = [module.register(made, ByHand()) for module in modules().values()]
    made.check_invariants()
    for each in registrations():
        snapshot = made.snapshot(each.function.name)
        assert snapshot is not None
        expected = [(kernel.key, f"{kernel.name} ({kernel.file}, n.yaml:") for kernel in each.kernels]
        dump = made.dump(each.function.name)
        for key, debug in expected:
            assert f"\n{key}" in dump
            assert debug in dump
    for one in held:
        one.close()
    assert not made.operators()


def test_a_factory_goes_to_the_backend_of_its_options(dispatcher: Dispatcher) -> None:
    empty = operator(dispatcher, "aten::empty.memory_format")
    assert empty([2, 3]).shape == (2, 3)
    assert str(empty([2], device=Device(DeviceType.META)).device) == "meta"


def test_meta_writes_nothing_and_refuses_to_write_a_tensor_with_elements(dispatcher: Dispatcher) -> None:
    normal_ = operator(dispatcher, "aten::normal_")
    x = Tensor(np.zeros((2,), np.float32), device=Device(DeviceType.META))
    assert normal_(x, 3.0) is x
    with pytest.raises(CallError, match="got a tensor with elements to write"):
        normal_.call_boxed_for_key(DispatchKey.Meta, [tensor([1.0]), 0.0, 1.0, None])


def test_a_write_raises_the_version_and_a_view_shares_it(dispatcher: Dispatcher) -> None:
    normal_, view = operator(dispatcher, "aten::normal_"), operator(dispatcher, "aten::view")
    x = tensor([1.0, 2.0])
    seen = view(x, [2, 1])
    assert normal_(x, 3.0, 0.0) is x
    assert (x.version, seen.version) == (1, 1)


def test_a_formula_gives_the_gradient_and_a_stub_says_that_there_is_none(dispatcher: Dispatcher) -> None:
    def calls(name: str) -> Any:
        return operator(dispatcher, f"aten::{name}")

    x = tensor([0.5, 1.0], requires_grad=True)
    result = calls("sin")(x)
    assert result.grad_fn.name == "SinBackward0"
    weights = tensor([1.0, 2.0])
    node = result.grad_fn
    (gradient,) = node.backward(node, [weights])
    assert np.allclose(gradient.numpy(), np.cos([0.5, 1.0]) * [1.0, 2.0])
    stub = calls("cos")(tensor([1.0], requires_grad=True))
    with pytest.raises(AutogradError, match="has no formula for gradients"):
        backward(calls, stub, tensor([1.0]))


def test_a_trace_has_the_call(dispatcher: Dispatcher) -> None:
    sin = operator(dispatcher, "aten::sin")
    with recording() as calls:
        sin(tensor([1.0]))
    assert str(calls) == "%1 = aten::sin(%0)"


@pytest.mark.parametrize("reapplied", [False, True])
def test_a_write_of_a_functional_view_reaches_the_base_and_no_memory(
    dispatcher: Dispatcher,
    reapplied: bool,  # noqa: FBT001
) -> None:
    value = tensor([1.0, 2.0])
    base = FunctionalTensor(value)
    with reapplied_views(reapplied):
        seen = operator(dispatcher, "aten::view")(base, [2, 1])
        assert seen.value.numpy().base is (value.numpy() if reapplied else None)
        assert operator(dispatcher, "aten::normal_")(seen, 3.0) is seen
        base.sync()
    assert base.value.numpy().tolist() == [3.0, 3.0]
    assert seen.shape == (2, 1)
    assert value.numpy().tolist() == [1.0, 2.0]


def test_one_of_several_views_knows_its_base_and_is_not_written_where_gradients_are_recorded(
    dispatcher: Dispatcher,
) -> None:
    normal = operator(dispatcher, "aten::normal_")
    leaf = tensor([[1.0], [2.0]], requires_grad=True)
    base = operator(dispatcher, "aten::sin")(leaf)
    first, second = operator(dispatcher, "aten::unbind.int")(base)
    assert first.base is second.base is base
    part = operator(dispatcher, "aten::view")(second, [1, 1])
    for view in (first, part):
        with pytest.raises(AutogradError, match="one of several that one call made, and a write to it"):
            normal(view)
    with no_grad():
        normal(first, 3.0)
    assert base.version == second.version == 1
    assert base.numpy().tolist()[0] == [3.0]
    with pytest.raises(AutogradError, match="one of several that one call made, and its memory was written since"):
        _ = second.grad_fn
    with no_grad():
        under, _ = operator(dispatcher, "aten::unbind.int")(base)
    with pytest.raises(AutogradError, match="made under no_grad"):
        normal(under)


def test_the_result_of_an_out_variant_is_a_new_value_of_out(dispatcher: Dispatcher) -> None:
    value = tensor([[0.0]])
    out = FunctionalTensor(value)
    assert operator(dispatcher, "aten::view_copy.out")(tensor([1.0, 2.0]), [1, 2], out=out) is out
    assert (out.value.numpy().tolist(), out.shape) == ([[1.0, 2.0]], (1, 2))
    assert value.numpy().tolist() == [[0.0]]


def test_what_by_hand_is_missing_is_named_when_it_is_called() -> None:
    made = Dispatcher()
    held = [module.register(made, object()) for module in modules().values()]
    assert held
    with pytest.raises(
        CallError, match=r"has no function lambda_, which this kernel is made of: write lambda_\(self\)"
    ):
        operator(made, "aten::lambda")(tensor([1.0]))
