"""The layers: batching against a loop, Meta against CPU, factories, versions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKeySet,
    ErrorKind,
    Library,
    RegistrationError,
    Tensor,
    boxed,
    tensor,
)
from dispatchlab.call import Generator, InferenceMode
from dispatchlab.call.call_observer import CallKind, ObservedCall, observers
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED
from dispatchlab.call.tensor_options import Device, DType
from dispatchlab.lab import AutogradError, AutogradErrorKind, Lab, manual_seed, no_grad
from dispatchlab.lab.schemas import IN_PLACE, SCHEMAS, VIEWS
from dispatchlab.model.schema_parser import parse_schema
from tests.call_cases import CASES, Case, run, tensors


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab()


# -- batching


def _batched_arrays(case: Case, sizes: Sequence[int]) -> list[Any]:
    def one(shape: tuple[int, ...]) -> Any:
        return random.normal(size=(*sizes, *shape))

    random = np.random.default_rng(5)
    return [[one(inner) for inner in shape] if isinstance(shape, list) else one(shape) for shape in case.shapes]


def _flat_function(lab: Lab, case: Case, list_lengths: Sequence[int | None]) -> Any:
    """The call as a function of its tensors, those in lists, too."""

    def function(*given: Tensor) -> Tensor:
        rest = iter(given)
        values = [next(rest) if count is None else [next(rest) for _ in range(count)] for count in list_lengths]
        return run(lab, case, values)

    return function


@pytest.mark.parametrize("case", [case for case in CASES if len(case.shapes) == 2 and not case.writes], ids=str)
def test_vmap_over_one_argument_leaves_the_other_alone(lab: Lab, case: Case) -> None:
    plain, batch = case.arrays()[0], _batched_arrays(case, (4,))[1]
    function = _flat_function(lab, case, [None, None])
    rows = [function(tensor(plain), tensor(row)).numpy() for row in batch]
    found = lab.vmap(function, in_dims=(None, 0))(tensor(plain), tensor(batch))
    assert np.allclose(found.numpy(), np.array(rows), rtol=1e-12)


def test_vmap_takes_and_gives_the_batch_at_any_dimension(lab: Lab) -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    for in_dim, out_dim in itertools.product((0, 1, 2, -1), (0, 1, 2, -1)):
        found = lab.vmap(lab.sin, in_dims=in_dim, out_dims=out_dim)(tensor(array))
        assert np.allclose(found.numpy(), np.moveaxis(np.sin(array), in_dim, out_dim))


def test_gradients_go_through_vmap(lab: Lab) -> None:
    arrays = np.random.default_rng(1).normal(size=(2, 3, 4))
    x, w = tensor(arrays, requires_grad=True), tensor(arrays[0, 0], requires_grad=True)
    lab.backward(lab.sum(lab.vmap(lambda row: lab.sum(lab.exp(lab.mul(row, w))))(x)))
    inside = np.exp(arrays * arrays[0, 0])
    assert x.grad is not None
    assert w.grad is not None
    assert np.allclose(x.grad.numpy(), inside * arrays[0, 0])
    assert np.allclose(w.grad.numpy(), (inside * arrays).sum((0, 1)))


def test_a_result_that_ignores_the_batch_is_repeated(lab: Lab) -> None:
    assert lab.vmap(lambda row: tensor([1.0, 2.0]))(tensor(np.zeros((3, 2)))).shape == (3, 2)


def test_vmap_refuses_what_it_cannot_do(lab: Lab) -> None:
    x = tensor(np.ones((2, 3)))
    with pytest.raises(CallError, match="batches of one size"):
        lab.vmap(lab.add)(x, tensor(np.ones((3, 3))))
    with pytest.raises(CallError, match="would write 'self'"):
        lab.vmap(lambda row: lab.add_(tensor(np.zeros(3)), row))(x)
    with pytest.raises(CallError, match="should be a view and is a copy"):
        lab.vmap(lambda row: lab.add_(lab.view(row, [3, 1]), tensor(1.0)))(x)
    with pytest.raises(CallError, match="no elements of its own"):
        lab.vmap(lambda row: row.numpy())(x)
    assert lab.vmap(lab.sin)(x).shape == (2, 3)
    assert x.version == 0


def test_a_write_inside_of_vmap_reaches_the_tensor_outside(lab: Lab) -> None:
    x = tensor(np.zeros((2, 3, 4)))
    lab.vmap(lab.vmap(lambda row, one: lab.add_(lab.select(row, 0, 1), one)), in_dims=(0, None))(
        x, tensor(np.arange(3.0))
    )
    assert np.array_equal(x.numpy()[:, :, 1], [[0, 1, 2], [0, 1, 2]])
    assert x.numpy().sum() == 6
    assert x.version == 6


# -- Meta, devices, factories


@pytest.mark.parametrize("case", CASES, ids=str)
def test_meta_says_the_shape_and_dtype_of_the_result(lab: Lab, case: Case) -> None:
    arrays = case.arrays()
    expected = run(lab, case, tensors(arrays))
    found = run(lab, case, tensors(arrays, device="meta"))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    with pytest.raises(CallError, match="has no elements"):
        found.numpy()


def test_meta_keeps_the_dtype_that_numpy_lacks(lab: Lab) -> None:
    def results(device: str) -> list[Tensor]:
        new = {"dtype": DType.bfloat16, "device": Device.parse(device)}
        vector, matrix, batch = (lab.zeros(size, **new) for size in ([2], [2, 2], [2, 2, 2]))
        products = [lab.mm(matrix, matrix), lab.mv(matrix, vector), lab.dot(vector, vector), lab.bmm(batch, batch)]
        scattered = [lab.select_backward(vector, [2, 2], 0, 1)]
        return [*products, *scattered, lab.sum(matrix), lab("sum.dim_IntList")(matrix, [0]), lab.add(matrix, vector)]

    for here, on_meta in zip(results("cpu"), results("meta"), strict=True):
        assert (on_meta.shape, on_meta.dtype) == (here.shape, here.dtype)
        assert here.dtype is DType.bfloat16


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cuda_computes_the_same_and_stays_on_cuda(lab: Lab, case: Case) -> None:
    arrays = case.arrays()
    found = run(lab, case, tensors(arrays, device="cuda"))
    assert str(found.device) == "cuda"
    assert np.array_equal(found.numpy(), run(lab, case, tensors(arrays)).numpy())


def test_every_operator_is_in_the_cases_or_a_factory() -> None:
    defined = {str(parse_schema(f"aten::{schema}").name).removeprefix("aten::") for schema in SCHEMAS}
    assert defined == {case.operator for case in CASES} | {
        *("empty.memory_format", "empty_strided", "randn", "zeros", "new_empty_strided"),
        *("_unique2", "unique_dim"),  # several results; see test_functional_live.py
    }
    assert len(defined) == 60


def test_tensors_of_two_devices_do_not_meet(lab: Lab) -> None:
    with pytest.raises(CallError, match="cpu and cuda"):
        lab.add(tensor([1.0]), tensor([1.0], device="cuda"))
    assert str(lab.add(tensor(1.0), tensor([1.0], device="cuda")).device) == "cuda"


class Recorder:
    """Writes down each call as (kind, operator, key)."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, str]] = []
        self.sets: list[str] = []
        self.guards: list[str] = []

    def entered(self, step: ObservedCall, /) -> None:
        self.steps.append((step.kind, str(step.operator), str(step.keys.highest())))
        self.sets.append(str(step.base))

    def left(self, step: ObservedCall, error: BaseException | None, /) -> None:
        assert error is None

    def guard_opened(self, guard: object, included: DispatchKeySet, excluded: DispatchKeySet, /) -> None:
        self.guards.append(f"+{type(guard).__name__} {(excluded - DEFAULT_EXCLUDED)}")

    def guard_closed(self, guard: object, included: DispatchKeySet, excluded: DispatchKeySet, /) -> None:
        self.guards.append(f"-{type(guard).__name__} {(excluded - DEFAULT_EXCLUDED)}")

    def __enter__(self) -> Recorder:
        observers.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        observers.remove(self)


def test_add_of_two_cuda_tensors_goes_to_autograd_past_backend_select_to_cuda(lab: Lab) -> None:
    x = tensor([1.0, 2.0, 3.0], device="cuda")
    with Recorder() as recorder:
        lab.add(x, x)
    assert recorder.steps == [
        (CallKind.CALL, "aten::add.Tensor", "AutogradCUDA"),
        (CallKind.REDISPATCH_BOXED, "aten::add.Tensor", "CUDA"),
    ]
    assert recorder.sets[0] == "DispatchKeySet(CUDA, BackendSelect, ADInplaceOrView, AutogradCUDA)"
    assert recorder.sets[1] == "DispatchKeySet(CUDA)"


def test_randn_goes_through_backend_select_empty_and_normal(lab: Lab) -> None:
    with Recorder() as recorder:
        made = lab.randn([3, 3], device="cuda")
    assert str(made.device) == "cuda"
    assert [(operator.removeprefix("aten::"), key) for _, operator, key in recorder.steps] == [
        ("randn", "BackendSelect"),
        ("randn", "CUDA"),
        ("empty.memory_format", "BackendSelect"),
        ("empty.memory_format", "CUDA"),
        ("normal_", "AutogradCUDA"),
        ("normal_", "ADInplaceOrView"),
        ("normal_", "CUDA"),
    ]
    # NB: a functionality without a backend, as AutogradFunctionality is here, prints nothing.
    below = "DispatchKeySet(AutogradOther, AutogradNestedTensor)"
    assert recorder.guards == [
        f"+AutoDispatchBelowAutograd {below}",
        f"+AutoDispatchBelowADInplaceOrView {below.replace('(', '(ADInplaceOrView, ')}",
        f"-AutoDispatchBelowADInplaceOrView {below}",
        "-AutoDispatchBelowAutograd DispatchKeySet()",
    ]


def test_random_numbers_come_from_the_seed_or_the_generator(lab: Lab) -> None:
    manual_seed(3)
    first = lab.randn([4]).numpy()
    manual_seed(3)
    assert np.array_equal(lab.randn([4]).numpy(), first)
    own = [lab.normal_(lab.empty([4]), generator=Generator(seed=9)).numpy() for _ in range(2)]
    assert np.array_equal(own[0], own[1])
    assert not np.array_equal(own[0], first)


# -- versions, views, grad mode


def test_a_view_shares_memory_and_version_with_its_base(lab: Lab) -> None:
    base = tensor(np.zeros((2, 3)))
    views = [
        lab(name)(base, *arguments)
        for name, arguments in (
            ("view", ([6],)),
            ("t", ()),
            ("select.int", (0, 1)),
            ("expand", ([4, 2, 3],)),
            ("unsqueeze", (1,)),
            ("squeeze.dim", (0,)),
            ("squeeze.dims", ([0],)),
            ("transpose.int", (0, 1)),
            ("detach", ()),
            ("alias", ()),
            ("permute", ([1, 0],)),
        )
    ]
    assert len(views) == len(VIEWS)
    lab.add_(base, tensor(1.0))
    assert [one.version for one in views] == [1] * len(VIEWS)
    assert all(one.base is base and one.numpy().min() == 1 for one in views)
    lab.mul_(views[0], tensor(3.0))
    assert base.version == 2
    assert base.numpy().max() == 3
    assert lab.clone(base).version == 0


def test_every_write_raises_the_version_by_one(lab: Lab) -> None:
    for name in IN_PLACE:
        written = tensor([1.0, 2.0])
        others = () if name == "normal_" else (tensor([1.0, 1.0]),)
        assert lab(name)(written, *others) is written
        assert written.version == 1
    assert len(IN_PLACE) == 5


def test_in_inference_mode_nothing_is_recorded_and_no_version_counted(lab: Lab) -> None:
    x = tensor([1.0], requires_grad=True)
    with InferenceMode():
        made = lab.mul(x, x)
        lab.add_(made, made)
    assert made.is_inference()
    assert not made.requires_grad
    assert made.version == 0
    with InferenceMode(), InferenceMode(enabled=False):
        assert lab.mul(x, x).requires_grad


def _viewed_without_grad(lab: Lab, x: Tensor) -> Tensor:
    with no_grad():
        view: Tensor = lab.view(x, [2])
    return view


def test_autograd_refuses_what_would_give_wrong_gradients(lab: Lab) -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    kinds = []
    for attempt in (
        lambda: lab.add_(x, x),
        lambda: lab.backward(lab.sin(x)),
        lambda: lab.backward(tensor(1.0)),
        lambda: lab.backward(lab.sin(x), tensor([1.0])),
        lambda: lab.add_(lab.view(x, [2, 1]), tensor(1.0)),
        lambda: lab.add_(_viewed_without_grad(lab, lab.sin(x)), x),
    ):
        with pytest.raises(AutogradError) as caught:
            attempt()
        kinds.append(caught.value.kind)
    assert kinds == [
        AutogradErrorKind.LEAF_MODIFIED,
        AutogradErrorKind.NO_GRADIENT,
        AutogradErrorKind.NO_GRADIENT,
        AutogradErrorKind.WRONG_GRADIENT,
        AutogradErrorKind.LEAF_MODIFIED,
        AutogradErrorKind.NOT_DIFFERENTIABLE,
    ]
    loss = lab.sum(lab.sin(x))
    lab.backward(loss, retain_graph=True)
    lab.backward(loss)
    with pytest.raises(AutogradError, match="already given its saved values away"):
        lab.backward(loss)
    with no_grad():
        lab.add_(x, x)
    assert x.version == 1


def test_an_operator_without_a_formula_says_so_in_backward() -> None:
    lab = Lab()
    library = Library("aten", "FRAGMENT", dispatcher=lab.dispatcher)
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: tensor(2 * x.numpy()), "CPU")
    result = lab.twice(tensor(1.0, requires_grad=True))
    with pytest.raises(AutogradError, match="aten::twice has no formula"):
        lab.backward(result)


# -- coming and going


def test_the_layers_leave_nothing_behind() -> None:
    dispatcher = Dispatcher()
    before = dict(dispatcher.state)
    lab = Lab(dispatcher)
    assert len(dispatcher.operators()) == len(SCHEMAS)
    dispatcher.check_invariants()
    sin = lab.sin
    lab.release()
    assert dispatcher.state == before
    with pytest.raises(RegistrationError) as caught:
        sin(tensor(1.0))
    assert caught.value.kind is ErrorKind.NO_SUCH_SCHEMA
    assert not hasattr(lab, "cos")


def test_layers_that_cannot_all_come_do_not_come_at_all() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    other = Library("_", "IMPL", "Tracer", dispatcher=dispatcher)
    other.fallback(boxed(lambda operator, stack: None))
    with pytest.raises(RegistrationError) as caught:
        Lab(dispatcher)
    assert caught.value.kind is ErrorKind.DUPLICATE_FALLBACK
    assert dispatcher.operators() == ()


def test_a_users_kernel_replaces_one_layer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatcher, "_warned_of_override", False)  # a process is warned once
    lab = Lab()
    x = tensor([1.0, 2.0], requires_grad=True)
    library = Library("aten", "IMPL", "CPU", dispatcher=lab.dispatcher)
    with pytest.warns(UserWarning, match="overridden"):
        handle = library.impl("sin", lambda self: tensor(10 * np.sin(self.numpy())))
    replaced = lab.sin(x)
    assert np.allclose(replaced.numpy(), 10 * np.sin([1.0, 2.0]))
    assert replaced.requires_grad
    handle.release()
    assert np.allclose(lab.sin(x).numpy(), np.sin([1.0, 2.0]))
