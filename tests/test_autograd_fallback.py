"""What autograd does with an operator that has no Autograd kernel, and with views whose memory is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest

from dispatchlab import Dispatcher, Library, Operator, Tensor, operator, tensor
from dispatchlab.call import InferenceMode
from dispatchlab.lab import (
    AutogradError,
    AutogradFallbackMode,
    Lab,
    autograd_fallback_mode,
    no_grad,
    set_autograd_fallback_mode,
)


@pytest.fixture
def lab() -> Iterator[Lab]:
    yield Lab(Dispatcher("torch-2.13"))
    set_autograd_fallback_mode("warn")
    for library in LIBRARIES:
        library.release()
    LIBRARIES.clear()


LIBRARIES: list[Library] = []


def made(lab: Lab, schema: str, kernel: Callable[..., object]) -> Operator:
    library = Library("custom", "FRAGMENT", dispatcher=lab.dispatcher)
    LIBRARIES.append(library)
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, kernel, "CPU")
    return operator(lab.dispatcher, f"custom::{name}")


def warned(lab: Lab, result: Tensor) -> int:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lab.backward(result)
    return sum("has no Autograd kernel" in str(one.message) for one in caught)


def test_a_new_result_warns_and_gets_no_gradient_through(lab: Lab) -> None:
    x = tensor([2.0], requires_grad=True)
    result = made(lab, "f(Tensor x) -> Tensor", lambda x: tensor([1.0]))(x)
    assert str(result.grad_fn) == "<WarnNotImplemented>"
    assert warned(lab, lab.mul(result, result)) == 1
    assert x.grad is None


def test_a_result_with_a_history_keeps_it_and_a_hook_warns(lab: Lab) -> None:
    x = tensor([2.0], requires_grad=True)
    call = made(lab, "f(Tensor x) -> Tensor", lambda x: x)
    result = call(lab.mul(x, x))
    assert str(result.grad_fn) == "<MulBackward0>"
    assert warned(lab, result) == 1
    assert x.grad is not None
    assert x.grad.item() == 4
    leaf = tensor([2.0], requires_grad=True)
    assert call(leaf) is leaf
    assert (leaf.grad_fn, warned(lab, lab.mul(leaf, leaf))) == (None, 1)
    assert warned(lab, lab.mul(leaf, leaf)) == 1  # the hook stays with the leaf


def test_an_input_without_a_history_that_comes_back_is_moved_into_the_graph_unless_it_was_written(lab: Lab) -> None:
    x, y = tensor([2.0], requires_grad=True), tensor([3.0])
    written = made(lab, "w(Tensor(a!) x, Tensor y) -> Tensor(a!)", lambda x, y: x)
    assert written(y, x) is y
    assert not y.requires_grad
    assert made(lab, "f(Tensor x, Tensor y) -> Tensor", lambda x, y: x)(y, x) is y
    assert str(y.grad_fn) == "<WarnNotImplemented>"


def test_a_node_that_no_gradient_arrives_at_warns_and_looks_at_what_it_saved(lab: Lab) -> None:
    x = tensor([2.0], requires_grad=True)
    call = made(lab, "f(Tensor x) -> Tensor", lambda x: tensor([1.0]))
    assert warned(lab, call(call(x))) == 2
    kept = lab.exp(x)
    result = call(kept)
    with no_grad():
        lab.mul_(kept, kept)
    with pytest.raises(AutogradError, match="saved_value_modified"), pytest.warns(UserWarning, match="Autograd kernel"):
        lab.backward(result)


def test_the_mode_nothing_records_nothing(lab: Lab) -> None:
    assert autograd_fallback_mode() is AutogradFallbackMode.WARN
    set_autograd_fallback_mode("nothing")
    assert autograd_fallback_mode() is AutogradFallbackMode.NOTHING
    x = tensor([2.0], requires_grad=True)
    assert not made(lab, "f(Tensor x) -> Tensor", lambda x: tensor([1.0]))(x).requires_grad
    assert warned(lab, made(lab, "g(Tensor x) -> Tensor", lambda x: x)(lab.mul(x, x))) == 0
    with pytest.raises(ValueError, match="error"):
        set_autograd_fallback_mode("error")


def test_a_view_follows_its_base_after_a_write_that_was_not_recorded(lab: Lab) -> None:
    base = lab.exp(tensor([1.0, 2.0], requires_grad=True))
    view = lab.view(base, [2])
    with no_grad():
        silent = lab.view(base, [2])
        lab.mul_(base, tensor([2.0, 2.0]))
    assert str(view.grad_fn) == "<AsStridedBackward0>"
    with pytest.raises(AutogradError, match="made under no_grad"):
        _ = silent.grad_fn
    assert "grad_fn" not in repr(silent)


def test_what_detach_makes_of_an_inference_tensor_can_be_written(lab: Lab) -> None:
    with InferenceMode():
        x = tensor([1.0])
    detached = lab.detach(x)
    assert detached.is_inference()
    lab.mul_(detached, tensor([3.0]))
    assert x.item() == 3
    with pytest.raises(AutogradError, match="inference_tensor"):
        lab.mul_(lab.view(detached, [1]), tensor([3.0]))
