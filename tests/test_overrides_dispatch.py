"""`__torch_dispatch__`: what reaches a handler, in which form, and what stays as it was when one fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    FunctionSchema,
    Library,
    Operator,
    Tensor,
    operator,
    parse_schema,
    tensor,
    trace,
)
from dispatchlab.call import AutoDispatchBelowAutograd, DType, Generator, Layout, MemoryFormat, excluded, included
from dispatchlab.call.arguments import default_value, same_value
from dispatchlab.call.layers import Lab
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.call.values import CPU
from dispatchlab.model.schema import Argument
from dispatchlab.model.schema_types import ListType, OptionalType, SimpleType, TupleType, Type
from dispatchlab.overrides import (
    DispatchMode,
    HandlerError,
    HandlerRecursionError,
    Interpreter,
    NoImplementationError,
    OverrideError,
    PythonDispatch,
    as_subclass,
    disabled,
    interpreter_of,
    make_wrapper_subclass,
    modes,
    no_dispatch,
    normalize,
    without_defaults,
)
from dispatchlab.registry.bundled import open_bundled
from examples import logging_tensor
from examples.logging_tensor import Logged, LoggingTensor, logging

State = tuple[DispatchKeySet, DispatchKeySet, tuple[DispatchMode, ...]]


class Wrapper(Tensor):
    """Notes what it is asked, and answers with what it is told to, or with the call on what it wraps."""

    __slots__ = ("elem",)
    asked: list[tuple[Any, ...]]
    answer: Callable[..., Any] | None = None
    elem: Tensor

    def __init_subclass__(cls) -> None:
        cls.asked = []

    def __new__(cls, elem: Tensor, *, requires_grad: bool = False) -> Wrapper:
        made = make_wrapper_subclass(cls, elem, requires_grad=requires_grad)
        made.elem = elem
        return made

    def __init__(self, elem: Tensor, *, requires_grad: bool = False) -> None:
        """All is done."""

    @classmethod
    def __torch_dispatch__(
        cls, func: Operator, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        cls.asked.append((str(func.name), types, args, kwargs))
        if cls.answer is not None:
            return cls.answer(func, types, args, kwargs)
        result = func(*map(_inner, args), **{name: _inner(one) for name, one in kwargs.items()})
        return cls(result) if isinstance(result, Tensor) else result


def _inner(value: Any) -> Any:
    if isinstance(value, list):
        return [_inner(one) for one in value]
    return value.elem if isinstance(value, Wrapper) else value


def wrapper(answer: Callable[..., Any] | None = None, base: type[Wrapper] = Wrapper) -> type[Wrapper]:
    """A class of its own for a test."""
    body = {} if answer is None else {"answer": staticmethod(answer)}
    return type("Made", (base,), {"__slots__": (), **body})


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    with PythonDispatch(made.dispatcher):
        yield made


@pytest.fixture(autouse=True)
def _state_is_left_as_it_was() -> Iterator[None]:
    before = state()
    yield
    assert state() == before


def state() -> State:
    return included(), excluded(), modes()


# -- the key


def test_a_tensor_carries_the_python_keys_when_its_class_has_a_handler() -> None:
    x = tensor([1.0])
    plain = type("Plain", (Tensor,), {"__slots__": ()})
    off = type("Off", (Tensor,), {"__slots__": (), "__torch_dispatch__": disabled})
    kind = wrapper()
    assert not x.key_bits & PYTHON_KEYS.bits
    assert not as_subclass(x, plain).key_bits & PYTHON_KEYS.bits
    assert not as_subclass(x, off).key_bits & PYTHON_KEYS.bits
    for made in (kind(x), as_subclass(x, kind), as_subclass(as_subclass(x, kind), kind)):
        assert made.key_bits == x.key_bits | PYTHON_KEYS.bits
    is_a = type("IsA", (Tensor,), {"__slots__": (), "__torch_dispatch__": classmethod(lambda *given: None)})
    assert is_a(np.ones(2)).key_set.has(DispatchKey.Python)
    assert as_subclass(kind(x), Tensor).key_bits == x.key_bits


def test_the_fallbacks_come_and_go_with_their_registration() -> None:
    lab, kind = Lab(), wrapper()
    x = kind(tensor([1.0]))
    with pytest.raises(CallError, match="no kernel for PythonTLSSnapshot"):
        lab.sin(x)
    registered = PythonDispatch(lab.dispatcher)
    lab.sin(x)
    registered.release()
    registered.release()
    with pytest.raises(CallError, match="no kernel for PythonTLSSnapshot"):
        lab.sin(x)
    assert len(kind.asked) == 1


# -- what a handler gets


def test_arguments_are_given_without_their_defaults_and_by_name_where_they_have_to_be(lab: Lab) -> None:
    kind = wrapper()
    x = kind(tensor([[1.0, 2.0]]))
    lab.add(x, x)
    lab.add(x, x, alpha=1)
    lab.add(x, x, alpha=2)
    lab("sum.dim_IntList")(x, [1], keepdim=False)
    lab("sum.dim_IntList")(x, [1], keepdim=True, dtype=DType.float64)
    lab("sum.dim_IntList")(x, [1], dtype=DType.float64)
    assert [one[2:] for one in kind.asked] == [
        ((x, x), {}),
        ((x, x), {}),
        ((x, x), {"alpha": 2}),
        ((x, [1]), {}),
        ((x, [1], True), {"dtype": DType.float64}),
        ((x, [1]), {"dtype": DType.float64}),
    ]


def test_an_argument_that_is_added_later_with_a_default_is_not_seen_by_an_old_handler() -> None:
    seen = []
    for schema in ("foo(Tensor x) -> Tensor", "foo(Tensor x, int n=2, *, str mode='new') -> Tensor"):
        dispatcher = Dispatcher()
        with PythonDispatch(dispatcher):
            library = Library("test", "FRAGMENT", dispatcher=dispatcher)
            library.define(schema)

            def old(func: Operator, types: Any, args: Any, kwargs: Any) -> Any:
                (x,) = args
                assert kwargs == {}
                seen.append(len(func.schema.arguments))
                return x

            x = wrapper(old)(tensor([1.0]))
            assert operator(dispatcher, "test::foo").redispatch(x.key_set & PYTHON_KEYS, x) is x
    assert seen == [1, 3]


def test_lists_and_optionals_count_and_every_class_is_told(lab: Lab) -> None:
    first, other = wrapper(lambda *given: NotImplemented), wrapper()
    sub = wrapper(lambda *given: NotImplemented, first)
    x = tensor([1.0])
    a, b, c = first(x), other(x), sub(x)
    lab.stack([x, a, b, a, c])
    assert [kind.asked[0][1] for kind in (first, other, sub)] == [(sub, first, other)] * 3

    dispatcher = Dispatcher()
    with PythonDispatch(dispatcher):
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        library.define("maybe(Tensor? x, Tensor?[] list) -> Tensor?")
        called = operator(dispatcher, "test::maybe")
        made = wrapper(lambda func, types, args, kwargs: None)
        keys = DispatchKeySet.of(DispatchKey.Python)
        for values in ((made(x), []), (None, [None, made(x)]), (x, [x, made(x), None])):
            assert called.redispatch(keys, *values) is None
        assert len(made.asked) == 3


def test_all_decline_names_every_type_in_the_order_asked(lab: Lab) -> None:
    class First(Wrapper):
        answer = staticmethod(lambda *given: NotImplemented)

    class Second(First): ...

    x = tensor([1.0])
    with pytest.raises(NoImplementationError) as caught:
        lab.add(First(x), Second(x))
    assert isinstance(caught.value, TypeError)
    assert [one.rpartition(".")[2] for one in caught.value.tried] == ["Second", "First"]
    assert "no implementation found for 'aten::add.Tensor' on types that implement __torch_dispatch__" in str(
        caught.value
    )


def test_no_dispatch_leaves_every_handler_out(lab: Lab) -> None:
    kind = wrapper()
    is_a = as_subclass(tensor([1.0]), kind)
    with no_dispatch():
        assert lab.add(is_a, is_a).numpy().tolist() == [2.0]
    assert kind.asked == []


def test_a_view_and_a_write_go_through_the_handler(lab: Lab) -> None:
    kind = wrapper()
    x = kind(tensor([[1.0, 2.0]]))
    row = lab.select(x, 0, 0)
    assert row.base is x
    assert lab.add_(x, x) is x
    assert (x.version, row.version) == (1, 1)
    assert row.elem.numpy().tolist() == [2.0, 4.0]
    assert [one[0] for one in kind.asked] == ["aten::select.int", "aten::add_.Tensor"]


def test_detach_and_the_copies_that_autograd_keeps_go_through_the_handler(lab: Lab) -> None:
    kind = wrapper()
    x = kind(tensor([0.5]), requires_grad=True)
    y = lab.exp(x)
    assert [one[0] for one in kind.asked] == ["aten::exp", "aten::detach"]
    lab.backward(y)
    assert [one[0].removeprefix("aten::") for one in kind.asked[2:]] == [
        *("ones_like", "detach"),
        *("detach", "mul.Tensor"),
        *("new_empty_strided", "copy_"),
    ]
    assert isinstance(x.grad, kind)
    assert np.allclose(x.grad.elem.numpy(), np.exp(0.5))
    assert not lab.detach(x).requires_grad


# -- defaults


def _values_of(type_: Type, choose: random.Random) -> Any:
    match type_:
        case OptionalType(element):
            return None if choose.random() < 0.3 else _values_of(element, choose)
        case ListType(element, size):
            return [_values_of(element, choose) for _ in range(choose.randint(0, 3) if size is None else size)]
        case TupleType(elements):
            return tuple(_values_of(one, choose) for one in elements)
        case SimpleType(name) if name in _MAKERS:
            return _MAKERS[name](choose)
        case _:
            return object()


_MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "Tensor": lambda choose: tensor([choose.random()]),
    "int": lambda choose: choose.randint(-2, 2),
    "SymInt": lambda choose: choose.randint(-2, 2),
    "float": lambda choose: choose.choice([0.0, 1.0, -0.5, 1e-5]),
    "bool": lambda choose: choose.random() < 0.5,
    "SymBool": lambda choose: choose.random() < 0.5,
    "complex": lambda choose: complex(choose.randint(0, 1), 1),
    "Scalar": lambda choose: choose.choice([0, 1, 1.0, True, 2.5]),
    "str": lambda choose: choose.choice(["", "mean", "none"]),
    "ScalarType": lambda choose: choose.choice([*DType]),
    "Layout": lambda choose: choose.choice([*Layout]),
    "Device": lambda choose: CPU,
    "Generator": lambda choose: Generator(seed=choose.randint(0, 9)),
    "MemoryFormat": lambda choose: choose.choice([*MemoryFormat]),
    "NoneType": lambda choose: None,
}


def _value(argument: Argument, choose: random.Random) -> Any:
    if argument.default is not None and choose.random() < 0.5:
        return default_value(argument)
    return _values_of(argument.type, choose)


def test_without_defaults_and_normalized_again_is_the_same_for_every_operator_of_the_bundled_registry() -> None:
    operators = shortened = by_name = 0
    for recorded in open_bundled():
        if not recorded.schema:
            continue
        schema = parse_schema(recorded.schema)
        choose = random.Random(str(schema))
        operators += 1
        for _ in range(3):
            given = [_value(argument, choose) for argument in schema.arguments]
            values = normalize(schema, *_all(schema, given))
            args, kwargs = without_defaults(schema, values)
            again = normalize(schema, args, kwargs)
            assert len(again) == len(values) == len(schema.arguments)
            assert all(map(same_value_or_same, again, values)), (schema, values, again)
            positional = [one for one in schema.arguments if not one.kwarg_only]
            assert set(kwargs) <= {one.name for one in schema.arguments if one.kwarg_only}
            if args:
                last = positional[len(args) - 1]
                assert last.default is None or not same_value(args[-1], default_value(last)), schema
            shortened += len(args) < len(positional)
            by_name += bool(kwargs)
    assert operators >= 3_500
    assert shortened > 1_000
    assert by_name > 1_500


def _all(schema: FunctionSchema, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    pairs = list(zip(schema.arguments, values, strict=True))
    return [value for one, value in pairs if not one.kwarg_only], {
        one.name: value for one, value in pairs if one.kwarg_only
    }


def same_value_or_same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value_or_same, one, other))
    return one is other or same_value(one, other)


def test_normalize_refuses_what_a_call_refuses() -> None:
    schema = parse_schema("ns::f(Tensor x, int n=1, *, str mode='a') -> Tensor")
    x = tensor([1.0])
    assert normalize(schema, [x]) == (x, 1, "a")
    assert normalize(schema, [x], {"n": 2, "mode": "b"}) == (x, 2, "b")
    for args, kwargs, told in (
        ([], {}, "missing a value for argument 'x'"),
        ([x, 1, "b"], {}, "takes 2 positional arguments but 3 were given"),
        ([x], {"nn": 1}, "no argument 'nn'"),
        ([x, "no"], {}, "expects int for argument 'n'"),
    ):
        with pytest.raises(CallError, match=told):
            normalize(schema, args, kwargs)


# -- modes


class Noting(DispatchMode):
    """Notes every call and lets it go on."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__()
        self.name, self.log = name, log

    def __torch_dispatch__(self, func: Operator, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.log.append(f"{self.name} {func.name}")
        return func(*args, **(kwargs or {}))


def test_modes_see_every_call_in_their_scope_innermost_first_then_the_arguments(lab: Lab) -> None:
    log: list[str] = []
    kind = wrapper()
    x = tensor([1.0])
    outer, inner = Noting("outer", log), Noting("inner", log)
    with outer, inner:
        assert modes() == (outer, inner)
        lab.add(x, x)
        lab.sin(kind(x))
    assert log == ["inner aten::add.Tensor", "outer aten::add.Tensor", "inner aten::sin", "outer aten::sin"]
    assert len(kind.asked) == 1
    lab.add(x, x)
    assert modes() == ()


def test_a_mode_sees_factories_and_may_decline(lab: Lab) -> None:
    class Zero(DispatchMode):
        def __torch_dispatch__(self, func: Operator, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return tensor([0.0]) if func.name.name == "empty" else NotImplemented

    x = wrapper(lambda func, types, args, kwargs: args[0])(tensor([0.0]))
    with Zero():
        assert lab.empty([3]).numpy().tolist() == [0.0]
        assert lab.sin(x) is x
        with pytest.raises(NoImplementationError, match="Zero"):
            lab.sin(tensor([1.0]))
    assert lab.empty([3]).shape == (3,)


def test_a_mode_belongs_to_its_thread(lab: Lab) -> None:
    log: list[str] = []
    with Noting("mode", log):
        thread = threading.Thread(target=lambda: lab.sin(tensor([1.0])))
        thread.start()
        thread.join()
    assert log == []


def test_modes_that_are_left_in_a_wrong_order_are_refused_and_stay(lab: Lab) -> None:
    log: list[str] = []
    outer, inner = Noting("outer", log), Noting("inner", log)
    with outer:
        with inner:
            with pytest.raises(OverrideError, match="Noting is inside of it; leave modes in the reverse order"):
                outer.__exit__(None, None, None)
            assert modes() == (outer, inner)
            lab.sin(tensor([1.0]))
        assert modes() == (outer,)
    assert log == ["inner aten::sin", "outer aten::sin"]
    with pytest.raises(OverrideError, match="no mode is open in this thread"):
        outer.__exit__(None, None, None)


def test_a_mode_without_a_handler_says_so(lab: Lab) -> None:
    with (
        DispatchMode(),
        pytest.raises(NotImplementedError, match="DispatchMode is a mode without a __torch_dispatch__"),
    ):
        lab.sin(tensor([1.0]))


# -- interpreters


def test_a_call_goes_to_the_interpreter_of_the_first_argument_that_has_one(lab: Lab) -> None:
    one, other = Interpreter("one"), Interpreter("other")
    log: list[tuple[str, list[str]]] = []

    def note(name: str) -> Callable[..., Any]:
        def answer(func: Operator, types: Any, args: Any, kwargs: Any) -> Any:
            log.append((name, [kind.__name__ for kind in types]))
            return func(
                *[a.elem if isinstance(a, Wrapper) and interpreter_of(type(a)) is owners[name] else a for a in args]
            )

        return answer

    owners = {"one": one, "other": other}
    ones = one.own(type("Ones", (wrapper(note("one")),), {"__slots__": ()}))
    deeper = type("Deeper", (ones,), {"__slots__": ()})
    others = other.own(type("Others", (wrapper(note("other")),), {"__slots__": ()}))
    assert [interpreter_of(kind) for kind in (ones, deeper, others, Tensor)] == [one, one, other, None]
    x = tensor([2.0])
    for values, wanted in (
        ((ones(x), others(x)), [("one", ["Ones"]), ("other", ["Others"])]),
        ((others(x), ones(x)), [("other", ["Others"]), ("one", ["Ones"])]),
        ((x, others(x)), [("other", ["Others"])]),
        ((ones(x), deeper(x)), [("one", ["Deeper", "Ones"])]),
    ):
        log.clear()
        assert lab.mul(*values).numpy().tolist() == [4.0]
        assert log == wanted


# -- nesting: logging, batching, autograd


class Silent(Wrapper):
    """A wrapper that only passes on, so that something can require gradients around a batched tensor."""


def _function(lab: Lab, x: Any, y: Any) -> Any:
    return lab.sum(lab.mul(lab.sin(x), y))


def _rows(lab: Lab, wrap: Callable[[Any], Any], x: Any, y: Any) -> Any:
    def row(one: Any) -> Any:
        return _unwrapped(_function(lab, wrap(one), y))

    return lab.vmap(row)(x)


def _unwrapped(value: Any) -> Any:
    while isinstance(value, LoggingTensor | Silent):
        value = value.elem
    return value


def _leaf(array: Any) -> Tensor:
    return tensor(array, requires_grad=True)


_ORDERS: dict[str, Callable[[Lab, Any, Any], Any]] = {
    "batching autograd logging": lambda lab, x, y: _rows(
        lab, lambda row: row, LoggingTensor(tensor(x), requires_grad=True), y
    ),
    "batching logging autograd": lambda lab, x, y: _rows(lab, lambda row: row, LoggingTensor(_leaf(x)), y),
    "logging batching autograd": lambda lab, x, y: _rows(lab, LoggingTensor, _leaf(x), y),
    "autograd logging batching": lambda lab, x, y: _rows(
        lab, lambda row: LoggingTensor(row, requires_grad=True), tensor(x), y
    ),
    "autograd batching logging": lambda lab, x, y: _rows(
        lab, lambda row: Silent(row, requires_grad=True), LoggingTensor(tensor(x)), y
    ),
    "logging autograd batching": lambda lab, x, y: _rows(
        lab, lambda row: LoggingTensor(Silent(row, requires_grad=True)), tensor(x), y
    ),
}


_PYTHON, _ELEMENT = ["PythonTLSSnapshot", "AutogradCPU", "Python"], ["AutogradCPU", "CPU"]
_KEYS_OF_SIN: dict[str, list[str]] = {
    "batching autograd logging": ["Batched", *2 * (_PYTHON + _ELEMENT)],
    "batching logging autograd": ["Batched", *2 * (_PYTHON + _ELEMENT)],
    "logging batching autograd": [*_PYTHON, "Batched", *2 * _ELEMENT],
    "autograd logging batching": [*_PYTHON, "Batched", *2 * _ELEMENT],
    "autograd batching logging": [*_PYTHON, "Batched", *2 * (_PYTHON + _ELEMENT)],
    "logging autograd batching": [*_PYTHON, *_PYTHON, "Batched", *2 * _ELEMENT],
}
"""Every tensor has autograd's key; which of them requires gradients is not seen in the keys."""


@pytest.mark.parametrize("order", _ORDERS)
def test_logging_batching_and_autograd_nest_in_every_order(lab: Lab, order: str) -> None:
    x, y = np.array([[0.5, 1.0], [1.5, 2.0]]), tensor(np.array([3.0, 4.0]))
    with logging() as log, trace() as seen:
        result: Any = _ORDERS[order](lab, x, y)
    assert np.allclose(_unwrapped(result).numpy(), (np.sin(x) * [3.0, 4.0]).sum(1))
    assert {"aten::sin", "aten::mul.Tensor", "aten::sum"} <= {one.operator for one in log.calls}
    calls = [call for call in seen.calls if call.operator == "aten::sin"]
    descents: list[list[DispatchKey]] = []
    for call in calls:
        if call.kind in ("[call]", "[callBoxed]"):
            descents.append([])
        descents[-1].append(call.keys.highest())
    functionality = [[DispatchKeySet.of(key).slot() for key in one] for one in descents]
    assert all(first > second for one in functionality for first, second in pairwise(one))
    assert [str(key) for one in descents for key in one] == _KEYS_OF_SIN[order]


def _inside(lab: Lab, wrap: Callable[[Any], tuple[Any, Any]], x: Any, y: Any) -> Any:
    """The gradient of every row, taken inside of the batch; `wrap` makes an argument, and the leaf in it."""

    def row(one: Any) -> Any:
        argument, leaf = wrap(one)
        result = _function(lab, argument, y)
        lab.backward(result if leaf is argument else result.elem)
        return _unwrapped(leaf.grad)

    return lab.vmap(row)(x)


def _outside(lab: Lab, leaf: Any, result: Any) -> Any:
    lab.backward(lab.sum(result))
    return leaf.grad


def _both(wrapped: Any) -> tuple[Any, Any]:
    return wrapped, wrapped


def _logging_around(leaf: Any) -> tuple[Any, Any]:
    return LoggingTensor(leaf), leaf


def _gradient_inside_of_logging(lab: Lab, x: Any, y: Any) -> Any:
    leaf = _leaf(x)
    return _outside(lab, leaf, _rows(lab, lambda row: row, LoggingTensor(leaf), y).elem)


def _gradient_outside(lab: Lab, leaf: Any, wrap: Callable[[Any], Any], y: Any) -> Any:
    return _outside(lab, leaf, _rows(lab, wrap, leaf, y))


_GRADIENTS: dict[str, Callable[[Lab, Any, Any], Any]] = {
    "batching autograd logging": lambda lab, x, y: _gradient_outside(
        lab, LoggingTensor(tensor(x), requires_grad=True), lambda row: row, y
    ),
    "batching logging autograd": _gradient_inside_of_logging,
    "logging batching autograd": lambda lab, x, y: _gradient_outside(lab, _leaf(x), LoggingTensor, y),
    "autograd logging batching": lambda lab, x, y: _inside(
        lab, lambda row: _both(LoggingTensor(row, requires_grad=True)), tensor(x), y
    ),
    "autograd batching logging": lambda lab, x, y: _inside(
        lab, lambda row: _both(Silent(row, requires_grad=True)), LoggingTensor(tensor(x)), y
    ),
    "logging autograd batching": lambda lab, x, y: _inside(
        lab, lambda row: _logging_around(Silent(row, requires_grad=True)), tensor(x), y
    ),
}


@pytest.mark.parametrize("order", _GRADIENTS)
def test_gradients_through_every_nesting_equal_the_plain_ones(lab: Lab, order: str) -> None:
    assert set(_GRADIENTS) == set(_ORDERS)
    x, y = np.array([[0.5, 1.0], [1.5, 2.0]]), tensor(np.array([3.0, 4.0]))
    with logging() as log:
        gradient = _GRADIENTS[order](lab, x, y)
    seen = {one.operator for one in log.calls}
    # What is around autograd sees the call alone, what is inside of it sees those of the formula, too.
    order_of = order.split()
    assert ("aten::cos" in seen) == (order_of.index("logging") > order_of.index("autograd"))
    assert "aten::sin" in seen
    assert np.allclose(_unwrapped(gradient).numpy(), np.cos(x) * [3.0, 4.0])


def test_a_wrapper_inside_a_wrapper_logs_once_for_each_depth(lab: Lab) -> None:
    for depth in range(1, 12):
        x: Tensor = tensor([1.0])
        for _ in range(depth):
            x = LoggingTensor(x)
        with logging() as log:
            y: Any = lab.add(x, x)
        assert [one.operator for one in log.calls] == ["aten::add.Tensor"] * depth
        for _ in range(depth):
            y = y.elem
        assert y.numpy().tolist() == [2.0]


def test_the_trace_is_written_with_numbers(lab: Lab) -> None:
    with logging() as log:
        x, y = LoggingTensor(tensor([1.0])), LoggingTensor(tensor([2.0]))
        log.input("x", x)
        log.input("y", y)
        lab.stack([lab.add(x, y, alpha=3), y], 0)
        lab.add_(x, y)
    assert str(log).splitlines() == [
        "$0 = input('x')",
        "$1 = input('y')",
        "$2 = aten.add($0, $1, alpha=3)",
        "$3 = aten.stack([$2, $1])",
        "$0 = aten.add_($0, $1)",
    ]
    assert log.calls[0] == Logged("aten::add.Tensor", ("$0", "$1", "alpha=3"), ("$2",))


def test_the_example_shows_autograd_nesting_and_batching(capsys: pytest.CaptureFixture[str]) -> None:
    logging_tensor.main()
    printed = capsys.readouterr().out
    assert "$3 = aten.add($0, $1, alpha=2)\n" in printed
    assert "$1 = aten.mul($0, $0)\n$3 = aten.mul($2, $2)\n" in printed
    assert printed.endswith(
        "batched\n$1 = aten.select($0, 0, 0)\n$2 = aten.sin($1)\n$3 = aten.select($0, 0, 1)\n"
        "$4 = aten.sin($3)\n$5 = aten.stack([$2, $4])\n"
    )


def test_a_trace_of_calls_shows_the_hops_through_the_python_key(lab: Lab) -> None:
    x = LoggingTensor(tensor([1.0]))
    with trace() as seen:
        lab.sin(x)
    assert [(call.kind, str(call.keys.highest())) for call in seen.calls] == [
        ("[call]", "PythonTLSSnapshot"),
        ("[redispatchBoxed]", "AutogradCPU"),
        ("[redispatchBoxed]", "Python"),
        ("[call]", "AutogradCPU"),
        ("[redispatchBoxed]", "CPU"),
    ]


# -- errors


def _raises(func: Operator, types: Any, args: Any, kwargs: Any) -> Any:
    raise KeyError("broken")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda *given: (1, 2), "returned tuple and should return Tensor"),
        (lambda *given: 5, "returned int and should return Tensor"),
    ],
)
def test_a_wrong_return_is_told_with_handler_and_schema(lab: Lab, answer: Any, told: str) -> None:
    x = wrapper(answer)(tensor([1.0]))
    before = state()
    with pytest.raises(HandlerError) as caught:
        lab.sin(x)
    assert str(caught.value).splitlines()[0] == f"a handler of aten::sin {told}"
    assert "aten::sin(Tensor self) -> Tensor" in str(caught.value)
    assert "handlers: __torch_dispatch__ of" in str(caught.value)
    assert state() == before


def test_a_wrong_number_of_values_is_told() -> None:
    dispatcher = Dispatcher()
    with PythonDispatch(dispatcher):
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        library.define("two(Tensor x) -> (Tensor, Tensor)")
        library.define("none(Tensor x) -> ()")
        keys = DispatchKeySet.of(DispatchKey.Python)
        x = wrapper(lambda func, types, args, kwargs: (args[0],))(tensor([1.0]))
        with pytest.raises(HandlerError, match="returned 1 values and should return 2"):
            operator(dispatcher, "test::two").redispatch(keys, x)
        with pytest.raises(HandlerError, match="returned tuple and should return None"):
            operator(dispatcher, "test::none").redispatch(keys, x)


def test_an_error_in_a_handler_names_the_chain_and_leaves_guards_and_modes(lab: Lab) -> None:
    inner = wrapper(_raises)(tensor([1.0]))
    outer = LoggingTensor(inner)
    with AutoDispatchBelowAutograd(), Noting("mode", []):
        before = state()
        with pytest.raises(KeyError, match="broken") as caught:
            lab.sin(outer)
        assert state() == before
    (note,) = caught.value.__notes__
    assert [one.partition(" for ")[0].rpartition(".")[2] for one in note.split(" > ")][-2:] == ["LoggingTensor", "Made"]
    assert note.count("aten::sin") >= 3
    assert lab.sin(tensor([0.0])).numpy().tolist() == [0.0]


def test_a_handler_that_comes_back_to_itself_is_told_and_nothing_is_left_behind(lab: Lab) -> None:
    def loops(func: Operator, types: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    before = state()
    with pytest.raises(HandlerRecursionError, match="calls back into itself without a guard") as caught:
        lab.sin(wrapper(loops)(tensor([1.0])))
    assert len(caught.value.chain) > 3
    assert "__torch_dispatch__ of" in str(caught.value)
    assert state() == before
    assert lab.sin(LoggingTensor(tensor([0.0]))).elem.numpy().tolist() == [0.0]
