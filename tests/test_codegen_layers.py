"""The layers over generated kernels: the same values and gradients as over kernels that were written one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dispatchlab import Dispatcher
from dispatchlab.call import Tensor, tensor
from dispatchlab.errors import RegistrationError
from dispatchlab.lab.lab import Lab
from tests.structured_kernels.lab import StructuredLayers, lab_functions


def scalar_of(lab: Lab, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
    """A number that depends on everything by way of structured operators."""
    inner = lab.sub(lab.mul(lab.add(x, y, alpha=2), lab.sin(x)), lab.exp(lab.neg(y)))
    product = lab.mm(inner, m)
    result: Tensor = lab.sum(lab("sum.dim_IntList")(lab.cos(product), [0], keepdim=True))
    return result


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    random = np.random.default_rng(1)
    shapes = ((2, 3), (3,), (3, 2))
    x, y, m = (tensor(random.standard_normal(shape).astype(np.float32)) for shape in shapes)
    for one in (x, y, m):
        one.requires_grad = True
    return x, y, m


def test_values_and_gradients_are_those_of_the_layers_own_kernels() -> None:
    found = []
    for lab in (Lab(), StructuredLayers()):
        given = inputs()
        result = scalar_of(lab, *given)
        assert result.requires_grad
        lab.backward(result)
        gradients = [one.grad.data for one in given if one.grad is not None]
        assert len(gradients) == 3
        found.append([result.data, *gradients])
    for own, generated in zip(*found, strict=True):
        np.testing.assert_allclose(generated, own, rtol=1e-6)


def test_the_gradient_reaches_through_a_kernel_that_was_generated() -> None:
    lab = StructuredLayers()
    dump = lab.dispatcher.dump("aten::mul.Tensor")
    assert "CPU: wrapper_CPU_mul_Tensor (mul_Tensor.py, operators.yaml:" in dump
    x = tensor([2.0, 3.0], requires_grad=True)
    lab.backward(lab.sum(lab.mul(x, x)))
    assert x.grad is not None
    assert x.grad.data.tolist() == [4.0, 6.0]


@pytest.mark.parametrize("name", ["add_.Tensor", "sin_", "clamp_", "cumsum_", "addmm_"])
def test_every_write_in_place_raises_the_version(name: str) -> None:
    lab = StructuredLayers()
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    rest = {"add_.Tensor": (x,), "clamp_": (0, 1), "cumsum_": (0,), "addmm_": (x, x)}.get(name, ())
    before = x.version
    lab(name)(x, *rest)
    assert x.version == before + 1


def test_batching_runs_generated_kernels() -> None:
    lab = StructuredLayers()
    rows = tensor([[1.0, 2.0], [3.0, 4.0]])
    doubled = lab.vmap(lambda row: lab.add(row, row))(rows)
    assert doubled.data.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_releasing_the_layers_leaves_no_operator() -> None:
    dispatcher = Dispatcher()
    lab = StructuredLayers(dispatcher)
    assert len(dispatcher.operators()) > len(
        [one for each in lab_functions().structured_groups for one in each.functions]
    )
    lab.release()
    assert not dispatcher.operators()


def test_a_second_set_of_layers_is_refused_until_the_first_is_released() -> None:
    dispatcher = Dispatcher()
    lab = StructuredLayers(dispatcher)
    with pytest.raises(RegistrationError):
        StructuredLayers(dispatcher)
    lab.release()
    StructuredLayers(dispatcher).release()
