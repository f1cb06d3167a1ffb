"""The examples of PyTorch's design of `__torch_function__`: each runs, on the lab's functions."""

from __future__ import annotations

import inspect
import itertools
from contextlib import suppress
from typing import Any

import pytest

from dispatchlab import CallError, Lab, Tensor
from dispatchlab.lab.overrides import Functions, SignatureMismatchError, torch_function_dispatch
from examples import diagonal_tensor
from examples.diagonal_tensor import DiagonalTensor


@pytest.fixture(scope="module")
def functions() -> Functions:
    return Functions(Lab())


def test_the_diagonal_tensor_handles_what_it_implements(capsys: pytest.CaptureFixture[str]) -> None:
    diagonal_tensor.main()
    assert capsys.readouterr().out.splitlines() == [
        "sum: 4.0",
        "mm: DiagonalTensor(N=2, value=4)",
        "mm with a tensor: [[2.0, 4.0], [6.0, 8.0]]",
        "unique: [0.0, 2.0]",
        "tensordot: 10.0",
        "lu: DiagonalTensor(N=2, value=2)",
        "broadcast_tensors: [(2, 2), (2, 2)]",
        "mm with a subclass: a product of scaled matrices",
        "neg: no implementation found for 'dispatchlab.lab.overrides.functions.neg'",
    ]
    assert repr(DiagonalTensor(5, 2)) == "DiagonalTensor(N=5, value=2)"


def test_what_is_overridable_keeps_its_signature_and_its_implementation(functions: Functions) -> None:
    signature = "(input, sorted=True, return_inverse=False, return_counts=False, dim=None)"
    assert str(inspect.signature(functions.unique)) == signature
    assert repr(functions.unique).startswith("<function unique at 0x")
    assert functions.unique is not functions.unique._implementation
    functions.unique.__dict__["__repr__"] = lambda: "another text"
    assert functions.unique.__repr__() == "another text"
    assert str(inspect.signature(functions.broadcast_tensors)) == "(*tensors)"


def test_the_functions_that_the_design_measures_find_tensors_in_lists_and_ducks() -> None:
    @torch_function_dispatch(lambda *tensors: tensors)
    def mock_broadcast_tensors(*tensors: Any) -> str:
        return "broadcast"

    def dispatcher(tensors: Any, dim: Any = None, out: Any = None) -> Any:
        return itertools.chain(tensors, (out,)) if out is not None else tensors

    @torch_function_dispatch(dispatcher)
    def mock_concatenate(tensors: Any, dim: int = 0, out: Any = None) -> str:
        return "concatenate"

    class Duck:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
            return "duck"

    x = diagonal_tensor.functions.tensor([1.0])
    many = [x] * 10_000
    assert (mock_broadcast_tensors(x), mock_broadcast_tensors(Duck())) == ("broadcast", "duck")
    assert (mock_concatenate([x, x]), mock_concatenate([x, Duck()])) == ("concatenate", "duck")
    assert (mock_concatenate(many), mock_concatenate([*many, Duck()])) == ("concatenate", "duck")
    assert mock_concatenate([x], out=Duck()) == "duck"


def test_more_than_32_arguments_have_handlers() -> None:
    kinds = [
        type(f"K{at}", (), {"__torch_function__": classmethod(lambda cls, *args: NotImplemented)}) for at in range(40)
    ]

    @torch_function_dispatch(lambda *values: values)
    def function(*values: Any) -> None: ...

    with pytest.raises(TypeError) as caught:
        function(*(kind() for kind in kinds))
    assert all(kind.__name__ in str(caught.value) for kind in kinds)


def test_a_dispatcher_of_another_signature_is_found_out_when_the_function_is_made() -> None:
    with pytest.raises(SignatureMismatchError, match="'dim' missing"):

        @torch_function_dispatch(lambda tensors: tensors)
        def function(tensors: Any, dim: int = 0) -> None: ...


@pytest.mark.filterwarnings("ignore:This overload of")
def test_every_operator_and_method_of_a_tensor_is_overridable(functions: Functions) -> None:
    called: list[str | None] = []

    class Duck(functions.Tensor):  # type: ignore[misc, name-defined]  # a class that is made at run time
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(functions.resolve_name(func))
            return 7

    class Anything:
        __torch_function__ = Duck.__torch_function__

    one = functions.tensor([4.0, 2.0]).as_subclass(Duck)
    missing = []
    for name in sorted({*vars(functions.Tensor), *functions.Tensor.__mro__[1].__dict__}):
        if name in _NOT_FUNCTIONS or isinstance(inspect.getattr_static(functions.Tensor, name), property):
            continue
        called.clear()
        member = getattr(one, name)
        if not callable(member):
            continue  # a field, such as the shape
        for count in range(6):
            with suppress(CallError, TypeError):
                member(*[Anything()] * count)
        if not called or called[0] is None:
            missing.append(name)
    assert missing == []


_NOT_FUNCTIONS = {
    # What Python itself or the lab calls: PyTorch's are not overridable either, or are fields there.
    *("__doc__", "__hash__", "__init__", "__iter__", "__module__", "__new__", "__repr__", "__slots__", "__weakref__"),
    # One asks no handler in PyTorch either, and one wants an argument by name.
    *("nonzero_static", "set_"),
    *("__torch_dispatch__", "__torch_function__", "_is_plain", "as_subclass", "start_history"),
}


def test_plain_tensors_are_no_overrides(functions: Functions) -> None:
    x = functions.tensor([3.0, 4.0])
    assert [type(one) for one in (x / 2, x[0], x < 1, 1 - x, 1 / x, x.unique())] == [functions.Tensor] * 6
    assert (x / 2).tolist() == [1.5, 2.0]
    assert (x[0].item(), (x < 3.5).tolist(), (8 / x).tolist()[1]) == (3.0, [True, False], 2.0)
    assert [one.item() for one in x] == [3.0, 4.0]
    assert (len(x), 4 in x, 5 in x, bool(x[0]), int(x[0]), float(x[1])) == (2, True, False, True, 3, 4.0)
    x[0] = 9
    x[1] = x[0]
    assert x.tolist() == [9.0, 9.0]
    leaf = functions.tensor([3.0], requires_grad=True)
    (leaf * leaf).backward()
    assert isinstance(leaf.grad, Tensor)
    assert leaf.grad.numpy().tolist() == [6.0]
    with pytest.raises(TypeError, match="unsupported operand"):
        x / "text"
