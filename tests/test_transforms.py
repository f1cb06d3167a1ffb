"""Transforms as layers: what they do, in which order the layers run, and what they leave behind."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dispatchlab import CallError, Dispatcher, DispatchKey, DispatchKeySet, Lab, Library, operator, tensor, trace
from dispatchlab.call import DType, excluded, included
from dispatchlab.layers import (
    AutogradError,
    TransformError,
    TransformErrorKind,
    autocast,
    autocast_dtype,
    is_autocast_enabled,
    manual_seed,
    no_grad,
)
from dispatchlab.layers.dynamic_layers import layers
from dispatchlab.layers.functional_tensors import FunctionalTensor
from dispatchlab.layers.level_tensors import LevelBatchedTensor, TensorWrapper


@pytest.fixture(scope="module", params=[True, False], ids=["on the builtin fallbacks", "bare"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(Dispatcher(builtin_fallbacks=request.param))


def test_a_call_goes_through_front_the_keys_of_its_layer_and_back(lab: Lab) -> None:
    lines: list[str] = []
    with trace(lambda line: lines.append(line.partition("key=[")[2].rstrip("]"))):
        lab.grad(lambda x: lab.sum(lab.vmap(lab.sin)(x)))(tensor([1.0, 2.0]))
    front, back = "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode"
    assert lines[:8] == [front, "FuncTorchBatched", back, front, "AutogradCPU", back, "AutogradCPU", "CPU"]


def test_the_arguments_of_each_transform_are_of_its_level(lab: Lab) -> None:
    seen: list[object] = []

    def look(x: object) -> object:
        seen.append(x)
        return lab.sum(x)

    lab.vmap(lab.grad(look))(tensor([[1.0, 2.0]]))
    lab.functionalize(look)(tensor([1.0]))
    wrapper, functional = seen
    assert isinstance(wrapper, TensorWrapper)
    assert isinstance(wrapper.value, LevelBatchedTensor)
    assert (wrapper.level, wrapper.value.level, wrapper.shape) == (2, 1, (2,))
    assert isinstance(functional, FunctionalTensor)
    assert functional.level == 1
    assert not wrapper.lifetime.alive


@pytest.mark.parametrize("transform", ["vmap", "grad", "functionalize"])
def test_an_error_inside_leaves_no_layer_and_no_key_behind(lab: Lab, transform: str) -> None:
    before = (included(), excluded(), layers())

    def fails(x: object) -> object:
        assert len(layers()) == 1
        assert included().has(DispatchKey.FuncTorchDynamicLayerFrontMode)
        lab.mm(x, x)
        raise AssertionError("mm refuses vectors")

    with pytest.raises(CallError):
        getattr(lab, transform)(fails)(tensor([[1.0, 2.0]]) if transform == "vmap" else tensor([1.0]))
    assert (included(), excluded(), layers()) == before == (included(), excluded(), ())


def test_transforms_belong_to_their_thread(lab: Lab) -> None:
    found: list[int] = []

    def count(x: object) -> object:
        thread = threading.Thread(target=lambda: found.append(len(layers())))
        thread.start()
        thread.join()
        return x

    lab.vmap(count)(tensor([1.0]))
    assert found == [0]


def test_a_kernel_at_a_key_of_a_transform_must_unwrap_its_arguments(lab: Lab) -> None:
    with Library("test", "DEF", dispatcher=lab.dispatcher) as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lab.clone, "CPU")
        for key, transform in (("FuncTorchBatched", lab.vmap), ("Functionalize", lab.functionalize)):
            below = DispatchKeySet.full_after(DispatchKey[key])
            f = operator(lab.dispatcher, "test::f")
            handle = library.impl(
                "f", lambda keys, x, f=f, below=below: f.redispatch(keys & below, x), key, with_keyset=True
            )
            with pytest.raises(TransformError) as caught:
                transform(f)(tensor([1.0, 2.0]))
            assert caught.value.kind is TransformErrorKind.ESCAPED_TENSOR
            handle.release()


# -- grad


def test_grad_takes_argnums_and_an_auxiliary_value(lab: Lab) -> None:
    x, y = tensor([1.0, 2.0]), tensor([3.0, 4.0])

    def function(x: object, y: object, *, scale: object) -> tuple[object, dict[str, object]]:
        product = lab.mul(lab.mul(x, y), scale)
        return lab.sum(product), {"product": product}

    (by_y, by_x), aux = lab.grad(function, (1, 0), has_aux=True)(x, y, scale=tensor(2.0))
    assert by_x.numpy().tolist() == [6.0, 8.0]
    assert by_y.numpy().tolist() == [2.0, 4.0]
    assert aux["product"].numpy().tolist() == [6.0, 16.0]
    gradient, (value, _) = lab.grad_and_value(function, -1, has_aux=True)(x, y, scale=tensor(1.0))
    assert gradient.numpy().tolist() == [1.0, 2.0]
    assert value.item() == 11.0
    assert not value.requires_grad


def test_grad_obeys_no_grad_inside_and_not_outside(lab: Lab) -> None:
    def function(x: object) -> object:
        with no_grad():
            constant = lab.mul(x, x)
        return lab.sum(lab.sub(x, constant))

    with no_grad():
        assert lab.grad(function)(tensor([3.0])).numpy().tolist() == [1.0]
        assert lab.grad(lab.grad(lambda x: lab.mul(lab.mul(x, x), x)))(tensor(2.0)).item() == 12.0


def test_a_result_that_does_not_depend_on_the_argument_has_a_gradient_of_zeros(lab: Lab) -> None:
    assert lab.grad(lambda x: lab.sum(lab.ones_like(x)))(tensor([1.0, 2.0])).numpy().tolist() == [0.0, 0.0]


def test_grad_refuses_what_it_cannot_do(lab: Lab) -> None:
    x, captured = tensor([1.0]), tensor([1.0])
    for kind, function, given in (
        ("wrong_output", lab.sin, (x,)),
        ("wrong_output", lambda x: 1.0, (x,)),
        ("wrong_argument", lab.sum, (1.0,)),
        ("wrong_argument", lab.sum, ()),
        ("captured_write", lambda x: lab.sum(lab.add_(captured, x)), (x,)),
    ):
        with pytest.raises(TransformError) as caught:
            lab.grad(function)(*given)
        assert caught.value.kind == kind
    with pytest.raises(TransformError, match="a tuple of two"):
        lab.grad(lab.sum, has_aux=True)(x)
    with pytest.raises(AutogradError, match="int64 cannot require gradients"):
        lab.grad(lab.sum)(tensor([1]))
    assert captured.numpy().tolist() == [1.0]


def test_a_tensor_that_outlives_its_grad_is_what_it_wrapped(lab: Lab) -> None:
    kept: list[object] = []

    def function(x: object) -> object:
        kept.append(lab.mul(x, x))
        return lab.sum(kept[0])

    lab.grad(function)(tensor([3.0]))
    assert lab.neg(kept[0]).numpy().tolist() == [-9.0]
    assert lab.vmap(lambda x: lab.add(x, kept[0]))(tensor([[1.0]])).numpy().tolist() == [[10.0]]


def test_a_tensor_that_outlives_its_vmap_is_refused(lab: Lab) -> None:
    kept: list[object] = []

    def keeps(x: object) -> object:
        kept.append(x)
        return x

    lab.vmap(keeps)(tensor([3.0]))
    with pytest.raises((TransformError, CallError)):
        lab.neg(kept[0])


# -- vmap


def test_vmap_maps_trees_of_arguments_and_results(lab: Lab) -> None:
    x = tensor(np.arange(6.0).reshape(2, 3))

    def function(given: dict[str, object], one: object) -> dict[str, object]:
        return {"sum": lab.sum(given["x"]), "both": [lab.add(given["x"], one), one]}

    found = lab.vmap(function, in_dims=({"x": 1}, None), out_dims={"sum": 0, "both": [1, None]})({"x": x}, tensor(1.0))
    assert found["sum"].numpy().tolist() == [3.0, 5.0, 7.0]
    assert found["both"][0].shape == (2, 3)
    assert found["both"][1].shape == ()


def test_random_operators_draw_as_the_randomness_says(lab: Lab) -> None:
    x = tensor(np.zeros((4, 1)))
    for factory in (lambda row: lab.add(row, lab.randn([1])), lambda row: lab.normal_(lab.clone(row))):
        manual_seed(3)
        assert len({*lab.vmap(factory, randomness="same")(x).numpy().ravel().tolist()}) == 1
        assert len({*lab.vmap(factory, randomness="different")(x).numpy().ravel().tolist()}) == 4


def test_the_slow_fallback_warns_and_refuses_what_it_cannot_slice(lab: Lab) -> None:
    with Library("test", "DEF", dispatcher=lab.dispatcher) as library:
        for schema in (
            *("f(Tensor x, Tensor y) -> (Tensor, Tensor)", "views(Tensor(a) x) -> Tensor(a)"),
            *(
                "listed(Tensor[] x) -> Tensor",
                "nothing(Tensor x) -> ()",
                "write_(Tensor(a!) x, Tensor y) -> Tensor(a!)",
            ),
        ):
            library.define(schema)
        library.impl("f", lambda x, y: (lab.add(x, y), lab.clone(y)), "CPU")
        library.impl("write_", lambda x, y: lab.add_(x, y), "CPU")
        x = tensor(np.arange(4.0).reshape(2, 2))
        with pytest.warns(UserWarning, match="test::f has no batching rule"):
            first, second = lab.vmap(operator(lab.dispatcher, "test::f"), in_dims=(1, None))(x, tensor(1.0))
        assert first.numpy().tolist() == [[1.0, 3.0], [2.0, 4.0]]
        assert second.numpy().tolist() == [1.0, 1.0]
        for name, wrap in (("views", lambda one: one), ("listed", lambda one: [one]), ("nothing", lambda one: one)):
            with pytest.raises(TransformError) as caught:
                lab.vmap(lambda row, name=name, wrap=wrap: operator(lab.dispatcher, f"test::{name}")(wrap(row)))(x)
            assert caught.value.kind is TransformErrorKind.NO_BATCHING_RULE
        write = operator(lab.dispatcher, "test::write_")
        with pytest.warns(UserWarning, match="test::write_"):
            lab.vmap(write, in_dims=(0, None))(x, tensor(1.0))
        assert x.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]
        with pytest.warns(UserWarning, match="test::write_"), pytest.raises(TransformError, match="unbatched_write"):
            lab.vmap(write, in_dims=(None, 0))(tensor([0.0, 0.0]), x)


# -- functionalize


def test_functionalize_writes_its_arguments_at_the_end(lab: Lab) -> None:
    x = tensor([[1.0, 2.0], [3.0, 4.0]])

    def function(x: object) -> object:
        row = lab.select(x, 0, 1)
        lab.mul_(row, tensor(10.0))
        return lab.sum(x)

    with trace() as record:
        assert lab.functionalize(function)(x).item() == 73.0
    below = [call.operator for call in record.calls if call.keys.highest() is DispatchKey.CPU]
    names = ("select.int", "mul.Tensor", "select_scatter", "select.int", "sum", "copy_")
    assert below == [f"aten::{name}" for name in names]
    assert x.numpy().tolist() == [[1.0, 2.0], [30.0, 40.0]]
    assert x.version == 1


def test_functionalize_may_remove_views_too(lab: Lab) -> None:
    with trace() as record:
        lab.functionalize(lambda x: lab.t(x), remove="mutations_and_views")(tensor([[1.0]]))
    assert "aten::t_copy" in {call.operator for call in record.calls}
    with pytest.raises(TransformError, match="'mutations' or 'mutations_and_views'"):
        lab.functionalize(lab.t, remove="views")


def test_functionalize_refuses_what_it_cannot_do(lab: Lab) -> None:
    captured = tensor([1.0])
    with pytest.raises(CallError, match="is not functional with one that is"):
        lab.functionalize(lambda x: lab.add_(captured, x))(tensor([1.0]))
    with pytest.raises(CallError, match="cannot write a result of shape"):
        lab.functionalize(lambda x: lab.add_(x, tensor([[1.0], [2.0]])))(tensor([1.0]))
    with pytest.raises(TransformError, match="one inside of the other"):
        lab.functionalize(lab.functionalize(lab.sin))(tensor([1.0]))
    with pytest.raises(CallError, match="no elements of its own"):
        lab.functionalize(lambda x: x.numpy())(tensor([1.0]))


# -- autocast


def test_autocast_casts_by_the_policy_of_each_operator(lab: Lab) -> None:
    x, wide = tensor([[1.0, 2.0], [3.0, 4.0]]), tensor(np.ones((2, 2)))
    with autocast("cpu"):
        assert is_autocast_enabled("cpu")
        assert (lab.mm(x, x).dtype, lab.exp(x).dtype) == (DType.bfloat16, DType.float32)
        assert lab.mm(wide, wide).dtype is DType.float64
        assert lab.stack([lab.mm(x, x), x]).dtype is DType.float32
        with autocast("cpu", DType.float16):
            assert lab.matmul(x, x).dtype is DType.float16
            with autocast("cpu", enabled=False):
                assert not is_autocast_enabled("cpu")
                assert lab.mm(x, x).dtype is DType.float32
        assert autocast_dtype("cpu") is DType.bfloat16
    assert lab.mm(x, x).dtype is DType.float32
    y = tensor([[1.0]], device="cuda")
    with autocast("cuda"):
        half = lab.mm(y, y)
        assert (half.dtype, lab.exp(half).dtype, lab.sum(half).dtype) == (DType.float16, DType.float32, DType.float32)
        assert lab.mm(x, x).dtype is DType.float32


def test_autocast_keeps_the_casts_of_weights_until_it_is_left(lab: Lab) -> None:
    weight, x = tensor([[1.0]], requires_grad=True), tensor([[2.0]])

    def casts(*, cache_enabled: bool | None = None) -> int:
        with trace() as record, autocast("cpu", cache_enabled=cache_enabled), autocast("cpu"):
            for _ in range(3):
                result = lab.mm(x, weight)
        lab.backward(lab.sum(result))
        return sum(call.operator == "aten::_to_copy" and call.kind == "[call]" for call in record.calls)

    assert casts() == 1 + 3
    assert casts(cache_enabled=False) == 3 + 3
    assert weight.grad is not None
    assert weight.grad.numpy().tolist() == [[4.0]]


def test_autocast_refuses_other_devices_and_dtypes() -> None:
    with pytest.raises(TransformError, match="autocast is for cpu and cuda"):
        autocast("meta")
    with pytest.raises(TransformError, match="autocast on cpu is to bfloat16 or float16, but got float64"):
        autocast("cpu", DType.float64)
    assert repr(autocast("cpu", DType.float64, enabled=False)) == "<autocast cpu off>"


def test_bfloat16_rounds_to_the_nearest_and_keeps_what_is_no_number() -> None:
    values = [1.0, 1.00390625, 1.01171875, -1.00390625, 3.0e38, float("nan"), float("-inf"), 1e-45]
    found = tensor(values, dtype=DType.bfloat16).numpy()
    assert found.dtype == np.float32
    wanted = [1.0, 1.0, 1.015625, -1.0, 3.004e38, np.nan, -np.inf, 0.0]
    assert np.allclose(found, wanted, rtol=1e-3, equal_nan=True)
    assert not (found.view(np.uint32)[[0, 1, 2, 3, 4, 6, 7]] & 0xFFFF).any()
