"""The layers against the running PyTorch: values, dtypes, gradients, and the checks on modification in place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, Tensor, tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.lab import AutogradError, AutogradErrorKind, Lab
from dispatchlab.lab.formulas import FORMULAS
from dispatchlab.lab.schemas import NOT_DIFFERENTIABLE
from tests.call_cases import CASES, Case, flat, run, tensors

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab()


def their_operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def theirs(arrays: Sequence[Any], *, requires_grad: bool) -> list[Any]:
    def one(array: Any) -> Any:
        made = torch.from_numpy(np.array(array))
        return made.requires_grad_(requires_grad)

    return [[one(inner) for inner in array] if isinstance(array, list) else one(array) for array in arrays]


def their_run(case: Case, values: Sequence[Any]) -> Any:
    given = [values[0].clone(), *values[1:]] if case.writes else values
    return their_operator(case.operator)(*given, *case.others, **case.named)


def their_flat(values: Sequence[Any]) -> list[Any]:
    return [inner for one in values for inner in (one if isinstance(one, list) else [one])]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_result_and_gradients_are_torchs(lab: Lab, case: Case) -> None:
    arrays = case.arrays()
    their_values, our_values = theirs(arrays, requires_grad=True), tensors(arrays, requires_grad=True)
    their_result, our_result = their_run(case, their_values), run(lab, case, our_values)
    assert np.allclose(our_result.numpy(), their_result.detach().numpy(), rtol=1e-6, atol=1e-12)
    assert our_result.requires_grad == their_result.requires_grad
    if not our_result.requires_grad:
        assert case.operator in NOT_DIFFERENTIABLE
        return
    gradient = np.random.default_rng(7).normal(size=our_result.shape)
    their_result.backward(torch.from_numpy(np.array(gradient)))
    lab.backward(our_result, tensor(gradient))
    pairs = list(zip(flat(our_values), their_flat(their_values), strict=True))
    for ours, their in pairs:
        assert ours.grad is not None
        assert ours.grad.shape == tuple(their.grad.shape)
        assert np.allclose(ours.grad.numpy(), their.grad.numpy(), rtol=1e-6, atol=1e-12)
    assert pairs


def test_the_cases_cover_every_formula() -> None:
    assert set(FORMULAS) <= {case.operator for case in CASES}


def test_gradients_of_a_small_network_and_their_gradients_are_torchs(lab: Lab) -> None:
    random = np.random.default_rng(3)
    first, second, given = random.normal(size=(3, 4)), random.normal(size=(4, 2)), random.normal(size=(5, 3))
    weights = tensors([first, second], requires_grad=True)
    hidden = lab.relu(lab.mm(tensor(given), weights[0]))
    loss = lab.sum(lab.exp(lab.sin(lab.mm(lab.mul(hidden, hidden), weights[1]))))
    lab.backward(loss, create_graph=True)
    again = lab.sum(lab.mul(weights[0].grad, weights[0].grad))
    weights[0].grad = weights[1].grad = None
    lab.backward(again)

    their_weights = theirs([first, second], requires_grad=True)
    their_hidden = torch.relu(torch.from_numpy(given) @ their_weights[0])
    their_loss = torch.exp(torch.sin((their_hidden * their_hidden) @ their_weights[1])).sum()
    their_gradients = torch.autograd.grad(their_loss, their_weights, create_graph=True)
    their_again = (their_gradients[0] * their_gradients[0]).sum()
    expected = torch.autograd.grad(their_again, their_weights)
    for ours, their in zip(weights, expected, strict=True):
        assert np.allclose(ours.grad.numpy(), their.numpy(), rtol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_modifying_any_value_in_place_before_backward_fails_exactly_where_torch_does(lab: Lab, case: Case) -> None:
    arrays = case.arrays()
    inputs = len(their_flat(arrays))
    verdicts = []
    for at in range(inputs + 1):
        # Clones of the leaves are what is modified, for leaves cannot be.
        their_leaves, our_leaves = theirs(arrays, requires_grad=True), tensors(arrays, requires_grad=True)
        their_values = [[i.clone() for i in v] if isinstance(v, list) else v.clone() for v in their_leaves]
        our_values = [[lab.clone(i) for i in v] if isinstance(v, list) else lab.clone(v) for v in our_leaves]
        their_result = their_operator(case.operator)(*their_values, *case.others, **case.named)
        our_result = lab(case.operator)(*our_values, *case.others, **case.named)
        if not our_result.requires_grad:
            return
        their_target = (*their_flat(their_values), their_result)[at]
        our_target = (*flat(our_values), our_result)[at]
        if case.operator == "expand" and at == inputs:
            with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
                their_target.add_(1)
            with pytest.raises(CallError, match="several elements at one memory location"):
                lab.add_(our_target, 1)
            continue
        their_target.add_(torch.ones((), dtype=their_target.dtype))
        lab.add_(our_target, tensor(np.ones(())))
        their_error = our_error = None
        try:
            their_result.backward(torch.ones_like(their_result))
        except RuntimeError as error:
            their_error = str(error)
        try:
            lab.backward(our_result, tensor(np.ones(our_result.shape)))
        except AutogradError as error:
            our_error = error
        assert (our_error is None) == (their_error is None), (at, our_error, their_error)
        if our_error is not None:
            assert their_error is not None
            assert "modified by an inplace operation" in their_error
            assert our_error.kind is AutogradErrorKind.SAVED_VALUE_MODIFIED
        verdicts.append(our_error is not None)
    assert len(verdicts) >= 1
    saved = {"mul.Tensor", "sin", "cos", "exp", "relu", "mm", "threshold_backward"}
    assert any(verdicts) or case.operator not in saved


def test_the_checks_on_modification_have_refused_some_programs() -> None:
    """The test above compares; this one says that there was something to find."""
    lab = Lab()
    x = tensor(np.ones(2), requires_grad=True)
    y = lab.exp(x)
    lab.add_(y, y)
    with pytest.raises(AutogradError, match=r"ExpBackward0.*needs result as it was at version 0"):
        lab.backward(lab.sum(y))
    their_x = torch.ones(2, requires_grad=True)
    their_y = their_x.exp()
    their_y.add_(their_y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        their_y.sum().backward()


DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


def test_the_dtype_of_every_pair_is_torchs(lab: Lab) -> None:
    seen = 0
    for one, other in itertools.product(DTYPES, DTYPES):
        if "float16" in (one, other) and (one + other).count("complex"):
            continue  # may be complex32, which numpy does not have
        for shapes in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            expected = torch.ones(shapes[0], dtype=getattr(torch, one)) * torch.ones(
                shapes[1], dtype=getattr(torch, other)
            )
            made = [Tensor(np.ones(shape), dtype=DType[name]) for shape, name in zip(shapes, (one, other), strict=True)]
            assert str(lab.mul(*made).dtype) == str(expected.dtype).removeprefix("torch."), (one, other, shapes)
            seen += 1
    assert seen == 468


def test_the_dtype_of_a_tensor_and_a_number_is_torchs(lab: Lab) -> None:
    seen = 0
    for name, dtype, number in itertools.product(("add", "mul"), DTYPES, (True, 3, 2.5, 1j)):
        if dtype == "float16" and isinstance(number, complex):
            continue  # is complex32, which numpy does not have
        for shape in ((2,), ()):
            their_tensor = torch.ones(shape, dtype=getattr(torch, dtype))
            our_tensor = Tensor(np.ones(shape), dtype=DType[dtype])
            for swapped in (False, True):
                theirs, ours = (their_tensor, number), (our_tensor, number)
                expected = their_operator(f"{name}.Tensor")(*(reversed(theirs) if swapped else theirs))
                found = lab(f"{name}.Tensor")(*(reversed(ours) if swapped else ours))
                assert str(found.dtype) == str(expected.dtype).removeprefix("torch."), (name, dtype, number, shape)
                assert np.allclose(found.numpy(), expected.numpy())
                seen += 1
    assert seen == 344


def test_the_operators_that_take_numbers_for_tensors_are_torchs(lab: Lab) -> None:
    taken = []
    for case in {case.operator: case for case in CASES}.values():
        if any(isinstance(shape, list) for shape in case.shapes):
            continue
        for at in range(len(case.shapes)):
            outcomes: list[tuple[bool, Any]] = []
            arrays = case.arrays()
            for call, values in (
                (lab(case.operator), tensors(arrays)),
                (their_operator(case.operator), theirs(arrays, requires_grad=False)),
            ):
                values[at] = 2.5
                try:
                    result = call(*values, *case.others, **case.named)
                    # What writes to a number gives a number there.
                    outcomes.append((True, np.asarray(result.numpy() if hasattr(result, "numpy") else result)))
                except (CallError, RuntimeError) as error:
                    outcomes.append(("for argument" not in str(error), None))
            (ours, our_array), (their, their_array) = outcomes
            assert ours == their, (case.operator, at)
            if our_array is not None and their_array is not None and our_array.shape == their_array.shape:
                assert np.allclose(our_array, their_array)
                taken.append(case.operator)
    assert len(taken) >= 8


def test_unary_operators_and_sums_give_torchs_dtypes(lab: Lab) -> None:
    for name in ("sin", "exp", "relu", "sum", "clone"):
        for dtype in DTYPES:
            if name == "relu" and dtype in ("bool", "complex64", "complex128"):
                continue
            expected = getattr(torch, name)(torch.ones(2, dtype=getattr(torch, dtype)))
            found = lab(name)(Tensor(np.ones(2), dtype=DType[dtype]))
            assert str(found.dtype) == str(expected.dtype).removeprefix("torch."), (name, dtype)
