"""`__torch_dispatch__`: what reaches a handler, in which form, and what stays as it was when one fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    Library,
    Operator,
    Tensor,
    operator,
    tensor,
)
from dispatchlab.call import AutoDispatchBelowAutograd, DType
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import (
    HandlerError,
    HandlerRecursionError,
    Interpreter,
    NoImplementationError,
    PythonDispatch,
    as_subclass,
    disabled,
    interpreter_of,
    no_dispatch,
)
from examples.logging_tensor import LoggingTensor
from tests.overrides.wrappers import Noting, Wrapper, state, wrapper

# -- the key


def test_a_tensor_carries_the_python_keys_when_its_class_has_a_handler() -> None:
    x = tensor([1.0])
    plain = type("Plain", (Tensor,), {"__slots__": ()})
    off = type("Off", (Tensor,), {"__slots__": (), "__torch_dispatch__": disabled})
    kind = wrapper()
    assert not x.key_bits & PYTHON_KEYS.bits
    assert not as_subclass(x, plain).key_bits & PYTHON_KEYS.bits
    assert not as_subclass(x, off).key_bits & PYTHON_KEYS.bits
    assert not off(np.ones(2)).key_bits & PYTHON_KEYS.bits
    for made in (kind(x), as_subclass(x, kind), as_subclass(as_subclass(x, kind), kind)):
        assert made.key_bits == x.key_bits | PYTHON_KEYS.bits
    is_a = type("IsA", (Tensor,), {"__slots__": (), "__torch_dispatch__": classmethod(lambda *given: None)})
    assert is_a(np.ones(2)).key_set.has(DispatchKey.Python)
    assert as_subclass(kind(x), Tensor).key_bits == x.key_bits


def test_the_fallbacks_come_and_go_with_their_registration() -> None:
    lab, kind = Lab(), wrapper()
    x = kind(tensor([1.0]))
    with pytest.raises(CallError, match=r"no kernel for PythonTLSSnapshot, .* keep a .*PythonDispatch"):
        lab.sin(x)
    registered = PythonDispatch(lab.dispatcher)
    lab.sin(x)
    registered.release()
    registered.release()
    with pytest.raises(CallError, match=r"no kernel for PythonTLSSnapshot, .* keep a .*PythonDispatch"):
        lab.sin(x)
    assert len(kind.calls) == 1


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
    assert [one[2:] for one in kind.calls] == [
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


def test_handlers_get_the_classes_of_lists_and_optionals(lab: Lab) -> None:
    first, other = wrapper(lambda *given: NotImplemented), wrapper()
    sub = wrapper(lambda *given: NotImplemented, first)
    x = tensor([1.0])
    a, b, c = first(x), other(x), sub(x)
    lab.stack([x, a, b, a, c])
    assert [kind.calls[0][1] for kind in (first, other, sub)] == [(sub, first, other)] * 3

    dispatcher = Dispatcher()
    with PythonDispatch(dispatcher):
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        library.define("maybe(Tensor? x, Tensor?[] list) -> Tensor?")
        called = operator(dispatcher, "test::maybe")
        made = wrapper(lambda func, types, args, kwargs: None)
        keys = DispatchKeySet.of(DispatchKey.Python)
        for values in ((made(x), []), (None, [None, made(x)]), (x, [x, made(x), None])):
            assert called.redispatch(keys, *values) is None
        assert len(made.calls) == 3


def test_all_decline_names_every_type_in_the_order_called(lab: Lab) -> None:
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
    assert kind.calls == []


def test_a_view_and_a_write_go_through_the_handler(lab: Lab) -> None:
    kind = wrapper()
    x = kind(tensor([[1.0, 2.0]]))
    row = lab.select(x, 0, 0)
    assert row.base is x
    assert lab.add_(x, x) is x
    assert (x.version, row.version) == (1, 1)
    assert row.elem.numpy().tolist() == [2.0, 4.0]
    assert [one[0] for one in kind.calls] == ["aten::select.int", "aten::add_.Tensor"]


def test_detach_and_the_copies_that_autograd_keeps_go_through_the_handler(lab: Lab) -> None:
    kind = wrapper()
    x = kind(tensor([0.5]), requires_grad=True)
    y = lab.exp(x)
    assert [one[0] for one in kind.calls] == ["aten::exp", "aten::detach"]
    lab.backward(y)
    assert [one[0].removeprefix("aten::") for one in kind.calls[2:]] == [
        *("ones_like", "detach"),
        *("detach", "mul.Tensor"),
        *("new_empty_strided", "copy_"),
    ]
    assert isinstance(x.grad, kind)
    assert np.allclose(x.grad.elem.numpy(), np.exp(0.5))
    assert not lab.detach(x).requires_grad


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


# -- errors


def _raises(func: Operator, types: Any, args: Any, kwargs: Any) -> Any:
    raise KeyError("broken")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda *given: (1, 2), "returned tuple and should return Tensor"),
        (lambda *given: 5, "returned int and should return Tensor"),
    ],
)
def test_a_wrong_return_is_reported_with_handler_and_schema(lab: Lab, answer: Any, expected: str) -> None:
    x = wrapper(answer)(tensor([1.0]))
    before = state()
    with pytest.raises(HandlerError) as caught:
        lab.sin(x)
    assert str(caught.value).splitlines()[0] == f"a handler of aten::sin {expected}"
    assert "aten::sin(Tensor self) -> Tensor" in str(caught.value)
    assert "handlers: __torch_dispatch__ of" in str(caught.value)
    assert state() == before


def test_a_wrong_number_of_returned_values_is_refused() -> None:
    dispatcher = Dispatcher()
    with PythonDispatch(dispatcher):
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        library.define("two(Tensor x) -> (Tensor, Tensor)")
        library.define("none(Tensor x) -> ()")
        keys = DispatchKeySet.of(DispatchKey.Python)
        x = wrapper(lambda func, types, args, kwargs: (args[0],))(tensor([1.0]))
        with pytest.raises(HandlerError, match="returned 1 values and should return 2"):
            operator(dispatcher, "test::two").redispatch(keys, x)
        x = wrapper(lambda func, types, args, kwargs: (args[0],) * 3)(tensor([1.0]))
        with pytest.raises(HandlerError, match="returned 3 values and should return 2"):
            operator(dispatcher, "test::two").redispatch(keys, x)
        x = wrapper(lambda func, types, args, kwargs: (args[0],))(tensor([1.0]))
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


def test_a_handler_that_comes_back_to_itself_is_refused_and_leaves_nothing_behind(lab: Lab) -> None:
    def loops(func: Operator, types: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    before = state()
    with pytest.raises(HandlerRecursionError, match="calls back into itself without a guard") as caught:
        lab.sin(wrapper(loops)(tensor([1.0])))
    assert len(caught.value.chain) > 3
    assert "__torch_dispatch__ of" in str(caught.value)
    assert state() == before
    assert lab.sin(LoggingTensor(tensor([0.0]))).elem.numpy().tolist() == [0.0]


def test_an_interpreter_of_the_first_version_gives_every_argument_by_position() -> None:
    lab, seen = Lab(), list[Any]()

    @Interpreter("first", keywords=False).own
    class First(Tensor):
        __slots__ = ()

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((str(func.name), args[2:], kwargs))
            stack = [as_subclass(one, Tensor) if isinstance(one, cls) else one for one in args]
            func.call_boxed(stack)
            return stack[0]

    x = as_subclass(tensor([1.0, 2.0]), First)
    with PythonDispatch(lab.dispatcher):
        assert lab.add(x, tensor([1.0, 1.0])).numpy().tolist() == [2.0, 3.0]
        assert lab.add(x, x, alpha=3).numpy().tolist() == [4.0, 8.0]
    assert seen == [("aten::add.Tensor", (1,), {}), ("aten::add.Tensor", (3,), {})]
