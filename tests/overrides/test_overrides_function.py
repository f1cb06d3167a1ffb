"""`__torch_function__`: the handlers that are called and their order, and what an overridable function keeps."""

from __future__ import annotations

import inspect
import itertools
from abc import ABCMeta
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, Tensor, tensor
from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import (
    DisableTorchFunction,
    Functions,
    HandlerRecursionError,
    NoImplementationError,
    SignatureMismatchError,
    as_subclass,
    disabled,
    has_torch_function,
    is_torch_function_enabled,
    overloaded_args,
    torch_function_dispatch,
)
from dispatchlab.lab.schemas import SCHEMAS
from tests.handler_orders import Implementation, compare_orders

pytestmark = pytest.mark.filterwarnings("ignore:Defining your `__torch_function__`")  # instance methods are tested, too


def _first_dispatcher(tensors: Iterable[Any], dim: Any = None, out: Any = None) -> Iterable[Any]:
    return tensors if out is None else itertools.chain(tensors, (out,))


@torch_function_dispatch(_first_dispatcher)
def first(tensors: list[Any], dim: int = 0, out: Any = None) -> Any:
    """The first one."""
    return ("implementation", tensors[0], dim, out)


class Duck:
    """Records the calls that it gets."""

    answer: Any = "duck"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, types, args, kwargs))
        return self.answer


class Declines(Duck):
    answer = NotImplemented


@pytest.fixture(scope="module")
def functions() -> Functions:
    return Functions(Lab())


def test_tensors_and_everything_without_a_handler_go_to_the_implementation() -> None:
    x = tensor([1.0])
    assert first([x], 3) == ("implementation", x, 3, None)
    assert first([1, "two"], out=4) == ("implementation", 1, 0, 4)
    assert first(tensors=[x], dim=2, out=x) == ("implementation", x, 2, x)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((0,), {}),
        ((0, 1), {}),
        ((0, 1, None), {}),
        ((0,), {"dim": 1}),
        ((0,), {"out": None}),
        ((0,), {"out": None, "dim": 1}),
        ((0, 1), {"out": 5}),
        ((), {"tensors": 0}),
        ((), {"tensors": 0, "dim": 1}),
    ],
)
def test_a_handler_gets_the_arguments_as_they_were_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    duck = Duck()
    given: list[Any] = [tensor([1.0]), duck]
    args = tuple(given if one == 0 and at == 0 else one for at, one in enumerate(args))
    kwargs = {name: given if name == "tensors" else one for name, one in kwargs.items()}
    assert first(*args, **kwargs) == "duck"
    assert duck.calls == [(first, (Tensor, Duck), args, kwargs)]


def test_a_dispatcher_that_returns_an_iterator_loses_no_argument() -> None:
    duck = Duck()
    x = tensor([1.0])
    assert first([x], out=duck) == "duck"
    assert duck.calls == [(first, (Tensor, Duck), ([x],), {"out": duck})]


def test_a_wrong_call_is_refused_in_the_name_of_the_function() -> None:
    with pytest.raises(TypeError, match=r"^first\(\) missing a required argument: 'tensors'"):
        first()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'dims'"):
        first([1], dims=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^first\(\) multiple values for argument 'dim'"):
        first([1], 2, dim=2)  # type: ignore[misc]


def test_name_docstring_signature_module_and_repr_are_those_of_the_implementation() -> None:
    made = torch_function_dispatch(_first_dispatcher, module="torch")(first._implementation)  # type: ignore[attr-defined]
    assert (made.__name__, made.__qualname__, made.__doc__) == ("first", "first", "The first one.")
    assert str(inspect.signature(made)) == "(tensors: 'list[Any]', dim: 'int' = 0, out: 'Any' = None) -> 'Any'"
    assert made.__module__ == "torch"
    assert first.__module__ == __name__
    assert repr(made).startswith("<function first at 0x")
    assert made._implementation is first._implementation  # type: ignore[attr-defined]
    assert made._implementation([5]) == ("implementation", 5, 0, None)


def test_the_docstring_can_come_from_the_dispatcher() -> None:
    def dispatcher(x: Any) -> Any:
        """From the dispatcher."""
        return (x,)

    def function(x: Any) -> Any:
        return x

    assert torch_function_dispatch(dispatcher, docs_from_dispatcher=True)(function).__doc__ == "From the dispatcher."


@pytest.mark.parametrize(
    ("dispatcher", "expected"),
    [
        (lambda a, b: (), "it has 'b' where 'dim' stands"),
        (lambda a, dim=0: (), "the default of 'dim' has to be None there, and is 0"),
        (lambda a, dim: (), "'dim' has no default there"),
        (lambda a, *, dim=None: (), "'dim' is keyword-only there and positional or keyword here"),
        (lambda a: (), "'dim' missing"),
        (lambda a, dim=None, c=None: (), "'c' too many"),
        (lambda a=None, dim=None: (), "'a' has a default there"),
    ],
)
def test_a_dispatcher_of_another_signature_is_refused_with_both(dispatcher: Any, expected: str) -> None:
    def function(a: Any, dim: int = 0) -> None: ...

    with pytest.raises(SignatureMismatchError) as caught:
        torch_function_dispatch(dispatcher)(function)
    assert isinstance(caught.value, TypeError)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith(f"function does not take what the implementation takes: {expected}")
    assert lines[1] == "  implementation: (a: 'Any', dim: 'int' = 0) -> 'None'"
    assert lines[2] == f"  dispatcher:     {inspect.signature(dispatcher)}"
    torch_function_dispatch(dispatcher, verify=False)(function)


def test_a_dispatcher_that_returns_no_arguments_raises_a_type_error() -> None:
    @torch_function_dispatch(lambda x: None)  # type: ignore[arg-type, return-value]
    def function(x: Any) -> Any:
        return x

    with pytest.raises(TypeError, match=r"the dispatcher of .*function has to return the arguments .*, not NoneType"):
        function(1)


def test_a_call_that_every_handler_declines_names_every_type_in_the_order_called() -> None:
    class Sub(Declines): ...

    with pytest.raises(NoImplementationError) as caught:
        first([tensor([1.0]), Declines(), Sub(), 3])
    assert isinstance(caught.value, TypeError)
    assert [name.rpartition(".")[2] for name in caught.value.tried] == ["Tensor", "Sub", "Declines"]
    assert f"no implementation found for '{__name__}.first'" in str(caught.value)
    assert all(name in str(caught.value) for name in caught.value.tried)


def test_class_methods_static_methods_and_instance_methods_are_handlers() -> None:
    class OfClass:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return cls, func, types, args, kwargs

    class Static:
        @staticmethod
        def __torch_function__(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func, types, args, kwargs

    given: list[Any] = [OfClass()]
    assert first(given, dim=1) == (OfClass, first, (OfClass,), (given,), {"dim": 1})
    given = [Static()]
    assert first(given) == (first, (Static,), (given,), {})


def test_a_class_can_want_no_handler() -> None:
    class Off(Duck):
        __torch_function__ = disabled

    class None_(Duck):
        __torch_function__ = None  # type: ignore[assignment]

    for kind in (Off, None_):
        one = kind()
        assert first([one]) == ("implementation", one, 0, None)
        assert one.calls == []


def test_handlers_are_switched_off_for_a_block_even_when_it_fails() -> None:
    duck = Duck()
    with DisableTorchFunction() as block:
        with block:
            assert first([duck])[0] == "implementation"
        assert not is_torch_function_enabled()
        with pytest.raises(ZeroDivisionError), DisableTorchFunction():
            _ = 1 / 0
        assert first([duck])[0] == "implementation"
    assert is_torch_function_enabled()
    assert first([duck]) == "duck"


# -- the order


def test_one_argument_for_each_type_subclasses_before_superclasses() -> None:
    a, sub, b, again = Declines(), type("Sub", (Declines,), {})(), type("B", (Duck,), {})(), Declines()
    assert overloaded_args([a, 1, b, sub, again, None], "__torch_function__") == [sub, a, b]


def test_a_virtual_subclass_of_an_abstract_class_comes_first() -> None:
    class Abstract(metaclass=ABCMeta):  # noqa: B024 - a virtual subclass needs no more
        def __torch_function__(self, *args: Any) -> Any:
            return NotImplemented

    @Abstract.register
    class Virtual:
        def __torch_function__(self, *args: Any) -> Any:
            return NotImplemented

    class Concrete(Abstract): ...

    one, other = Concrete(), Virtual()
    assert overloaded_args([one, other], "__torch_function__") == [one, other]
    made = type("Base", (Abstract,), {})()
    Abstract.register(type(other))
    assert overloaded_args([made, other], "__torch_function__") == [made, other]
    top = Abstract()
    assert overloaded_args([top, other], "__torch_function__") == [other, top]


def test_many_arguments_cost_one_look_at_each_and_many_types_no_scan() -> None:
    compared = 0

    class Counting(type):
        def __subclasscheck__(cls, other: type) -> bool:
            nonlocal compared
            compared += 1
            return super().__subclasscheck__(other)

    class One(metaclass=Counting):
        def __torch_function__(self, *args: Any) -> Any:
            return NotImplemented

    kinds = [type(f"K{at}", (Duck,), {}) for at in range(500)]
    many: list[Any] = [kinds[at % 500]() for at in range(10_000)]
    assert [type(one) for one in overloaded_args(many, "__torch_function__")] == kinds
    assert overloaded_args([One() for _ in range(10_000)], "__torch_function__")
    assert compared == 0


def test_the_last_of_10_000_arguments_is_called_and_10_000_tensors_are_not() -> None:
    x, duck = tensor([1.0]), Duck()
    many: list[Any] = [x] * 10_000
    assert first(many, dim=1) == ("implementation", x, 1, None)
    many = [*many, duck, duck]
    assert first(many) == "duck"
    assert duck.calls == [(first, (Tensor, Duck), (many,), {})]


class NumpyLike(Tensor):
    """The root of the classes that are compared with numpy's arrays: its default is that of NEP 18."""

    __slots__ = ()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if not all(issubclass(one, NumpyLike) for one in types):
            return NotImplemented
        return func._implementation(*args, **kwargs)


def test_the_order_of_handlers_is_numpys_for_2000_hierarchies() -> None:
    overrides: Any = pytest.importorskip("numpy._core.overrides")

    def dispatcher(values: Any) -> Any:
        return values

    def function(values: Any) -> Any:
        return "implementation"

    numpys = Implementation(
        np.ndarray,
        lambda record: {"__array_function__": lambda self, func, types, args, kwargs: record(types)},
        lambda kind: np.zeros(1).view(kind),
    )
    ours = Implementation(
        NumpyLike,
        lambda record: {"__torch_function__": lambda self, func, types, args, kwargs: record(types)},
        lambda kind: as_subclass(tensor([0.0]), kind),
    )
    compare_orders(
        (numpys, overrides.array_function_dispatch(dispatcher)(function)),
        (ours, torch_function_dispatch(dispatcher)(function)),
    )


# -- the lab's functions


class Sub(Tensor):
    __slots__ = ()


class Deeper(Sub):
    __slots__ = ()


def test_a_subclass_is_preserved_and_the_deepest_wins(functions: Functions) -> None:
    x, sub, deeper = tensor([1.0, 2.0]), as_subclass(tensor([3.0, 4.0]), Sub), as_subclass(tensor([5.0, 6.0]), Deeper)
    assert type(functions.add(x, x)) is Tensor
    assert type(functions.add(x, sub)) is Sub
    found = functions.mul(sub, deeper)
    assert type(found) is Deeper
    assert found.numpy().tolist() == [15.0, 24.0]
    with pytest.raises(NoImplementationError):
        functions.add(sub, as_subclass(x, type("Other", (Tensor,), {})))


def test_super_is_the_default_and_does_not_ask_again(functions: Functions) -> None:
    class Counted(Tensor):
        calls: list[str] = []  # noqa: RUF012 - one list for all of them is meant

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    x = as_subclass(tensor([[1.0, 2.0]]), Counted)
    assert type(functions.sum(functions.matmul(x, functions.t(x)))) is Counted
    assert Counted.calls == ["t", "matmul", "sum"]


@pytest.mark.filterwarnings("ignore:This overload of")
def test_every_operator_of_the_lab_is_an_overridable_function(functions: Functions) -> None:
    names = {schema.partition("(")[0].partition(".")[0] for schema in SCHEMAS if not schema.startswith("_")}
    names |= {"unique", "tensordot", "broadcast_tensors"}
    called = 0
    for name in names:
        function = functions[name]
        if name in ("empty", "empty_strided", "randn", "zeros"):
            continue  # they take no tensors
        duck = Duck()
        given: Any = [duck] if name == "stack" else duck
        for count in range(5):  # how many arguments it takes, for of several overloads the signature does not say
            with suppress(CallError, TypeError):
                assert function(given, *[duck] * count) == "duck"
        assert duck.calls[0][0] is function
        called += 1
    assert called == len(names) - 4


def test_methods_and_operators_are_overridable_and_keep_their_class(functions: Functions) -> None:
    x, y, duck = functions.tensor([[1.0, 2.0]]), functions.tensor([[3.0, 4.0]]), Duck()
    for found, wanted in (
        (x + y, [[4.0, 6.0]]),
        (x - 1, [[0.0, 1.0]]),
        (2 * x, [[2.0, 4.0]]),
        (1 - x, [[0.0, -1.0]]),
        (-x, [[-1.0, -2.0]]),
        (x @ y.t(), [[11.0]]),
        (x.mul(y).sum([1], keepdim=True), [[11.0]]),
    ):
        assert type(found) is functions.Tensor
        assert found.numpy().tolist() == wanted
    assert [x + duck, x.mul(duck), x @ duck] == ["duck"] * 3
    assert [functions.resolve_name(one[0]) for one in duck.calls] == ["Tensor.add", "Tensor.mul", "Tensor.matmul"]
    assert [one[0] for one in duck.calls] == [functions.Tensor.add, functions.Tensor.mul, functions.Tensor.matmul]
    x += y
    assert x.numpy().tolist() == [[4.0, 6.0]]
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "text"


def test_overridable_functions_work_inside_of_vmap_and_record_gradients(functions: Functions) -> None:
    lab = Lab()
    own = Functions(lab)
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    loss = own.sum(lab.vmap(lambda row: own.sum(own.mul(row, row)))(x))
    lab.backward(loss)
    assert x.grad is not None
    assert x.grad.numpy().tolist() == [[2.0, 4.0], [6.0, 8.0]]


# -- errors


def test_what_a_handler_raises_comes_out_with_the_chain_of_handlers() -> None:
    class Raises:
        def __torch_function__(self, *args: Any) -> Any:
            raise KeyError("broken")

    class Around(Duck):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func([Raises()])

    with pytest.raises(KeyError, match="broken") as caught:
        first([Around()])
    (note,) = caught.value.__notes__
    assert [part.partition(" for ")[0].rpartition(".")[2] for part in note.split(" > ")] == ["Around", "Raises"]


def test_a_handler_that_calls_back_into_itself_is_refused_with_the_chain() -> None:
    class Loops:
        def __torch_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            return func(*args, **kwargs)

    with pytest.raises(HandlerRecursionError, match="calls back into itself without a guard") as caught:
        first([Loops()])
    assert isinstance(caught.value, RecursionError)
    assert len(caught.value.chain) > 5
    assert all("Loops for " in one for one in caught.value.chain)
    assert "... " in str(caught.value) or len(caught.value.chain) <= 12
    assert is_torch_function_enabled()
    assert first([1])[0] == "implementation"


def test_an_object_or_a_class_can_have_a_handler_of_its_own() -> None:
    class Bare:
        """Has no handler; an object of it may."""

    class Kind(type):
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return cls.__name__, types

    class OfKind(metaclass=Kind):
        """Has the handler of its metaclass, as an argument."""

    one, other = Bare(), Bare()
    other.__torch_function__ = lambda func, types, args=(), kwargs=None: (types, args)  # type: ignore[attr-defined]
    functions = Functions(Lab())
    assert functions.cumsum(other, 0) == ((Bare,), (other, 0))
    assert overloaded_args([one, other], "__torch_function__") == [other]
    assert functions.neg(OfKind) == ("OfKind", (Kind,))
    assert has_torch_function((Duck,))
    assert not has_torch_function((one, Bare))
