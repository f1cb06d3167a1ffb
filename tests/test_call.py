"""Calls: conventions, key sets, errors, and that nothing is left behind by a call that fails."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pytest

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    ErrorKind,
    InvariantError,
    Library,
    RegistrationError,
    Tensor,
    boxed,
    fallthrough,
    operator,
    ops,
    tensor,
    unboxed,
)
from dispatchlab.call import (
    AutoDispatchBelowADInplaceOrView,
    AutoDispatchBelowAutograd,
    ExcludeDispatchKeyGuard,
    ForceDispatchKeyGuard,
    Generator,
    IncludeDispatchKeyGuard,
    InferenceMode,
    Operator,
    excluded,
    included,
    is_inference_mode,
)
from dispatchlab.call.dispatch_table import masks
from dispatchlab.model.key_set import BACKEND_BITS, FULL_BITS, functionality_bit
from dispatchlab.model.keys import RUNTIME_KEYS
from dispatchlab.model.registration import Impl, Kernel
from dispatchlab.model.schema_parser import parse_name

Scalar: TypeAlias = int | float  # read by its name, when a schema is inferred
CPU, CUDA = DispatchKeySet.of(DispatchKey.CPU), DispatchKeySet.of(DispatchKey.CUDA)
X, Y = tensor([1.0, 2.0]), tensor([3.0, 4.0])
TRUE = True
ON_CUDA = tensor([1.0], device="cuda")


class Operators:
    """Operators of the namespace `test` on a dispatcher, with the library that they are in and one for fallbacks."""

    def __init__(self, *schemas: str, semantics: str = "strict") -> None:
        self.dispatcher = Dispatcher(semantics)
        self.library = Library("test", "FRAGMENT", dispatcher=self.dispatcher)
        self.everywhere = Library("_", "IMPL", dispatcher=self.dispatcher)
        for schema in schemas:
            self.library.define(schema)

    def __call__(self, name: str) -> Operator:
        return operator(self.dispatcher, f"test::{name}")


def noting(heard: list[str], key: str) -> Callable[..., int]:
    """A kernel that says that it was called."""

    def kernel(*arguments: object, **named: object) -> int:
        heard.append(key)
        return 1

    return kernel


# -- four ways: a boxed and an unboxed kernel, each called both ways


def _python_kernels(heard: list[Any]) -> dict[str, Any]:
    """One operator `(Tensor self, Tensor other, int n=2, *, Scalar alpha=1) -> (Tensor, int)` by every convention."""

    def plain(self: Any, other: Any, n: int = 2, *, alpha: Any = 1) -> Any:
        heard.append((None, self, other, n, alpha))
        return self, n

    def plain_with_keys(keys: Any, self: Any, other: Any, n: int = 2, *, alpha: Any = 1) -> Any:
        heard.append((keys, self, other, n, alpha))
        return [self, n]

    def typed(self: Tensor, other: Tensor, n: int, alpha: Scalar) -> tuple[Tensor, int]:
        heard.append((None, self, other, n, alpha))
        return self, n

    def typed_with_keys(
        keys: DispatchKeySet, self: Tensor, other: Tensor, n: int, *, alpha: Scalar
    ) -> tuple[Tensor, int]:
        heard.append((keys, self, other, n, alpha))
        return self, n

    def stacked(op: Operator, stack: list[Any]) -> None:
        self, other, n, alpha = stack[-4:]
        heard.append((None, self, other, n, alpha))
        stack[-4:] = [self, n]

    def stacked_with_keys(op: Operator, keys: DispatchKeySet, stack: list[Any]) -> None:
        heard.append((keys, *stack[-4:]))
        stack[-4:] = [stack[-4], stack[-2]]

    return {
        "plain": (plain, False),
        "plain, keys": (plain_with_keys, True),
        "unboxed": (unboxed(typed), False),
        "unboxed, keys": (unboxed(typed_with_keys), False),
        "boxed": (boxed(stacked), False),
        "boxed, keys": (boxed(stacked_with_keys, with_keyset=True), False),
    }


CONVENTIONS = tuple(_python_kernels([]))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_kernel_hears_the_same_however_it_is_called(convention: str) -> None:
    heard: list[Any] = []
    operators = Operators("foo(Tensor self, Tensor other, int n=2, *, Scalar alpha=1) -> (Tensor, int)")
    kernel, with_keyset = _python_kernels(heard)[convention]
    operators.library.impl("foo", fallthrough, "Autograd")  # so that every way comes with the same set
    operators.library.impl("foo", kernel, "CPU", with_keyset=with_keyset)
    foo = operators("foo")

    def by_stack(call: Callable[[list[Any]], None], *values: Any) -> tuple[Any, ...]:
        stack = ["below", *values]
        call(stack)
        assert stack[0] == "below"
        return tuple(stack[1:])

    results = [
        foo(X, Y),
        foo(X, Y, 2, alpha=1),
        foo(X, other=Y),
        foo.redispatch(CPU, X, Y),
        foo.redispatch(CPU, X, other=Y, n=2),
        by_stack(foo.call_boxed, X, Y, 2, 1),
        by_stack(lambda stack: foo.redispatch_boxed(CPU, stack), X, Y, 2, 1),
    ]
    assert results == [(X, 2)] * 7
    keys = CPU if "keys" in convention else None
    assert heard == [(keys, X, Y, 2, 1)] * 7
    heard.clear()
    others = [
        foo(X, Y, 5, alpha=2.5),
        foo(X, Y, n=5, alpha=2.5),
        foo.redispatch(CPU, X, Y, 5, alpha=2.5),
        by_stack(foo.call_boxed, X, Y, 5, 2.5),
    ]
    assert others == [(X, 5)] * 4
    assert heard == [(keys, X, Y, 5, 2.5)] * 4


def test_a_python_kernel_gets_no_value_that_is_its_default() -> None:
    heard: list[Any] = []

    def kernel(*arguments: Any, **named: Any) -> Any:
        heard.append((arguments[1:], named))
        return arguments[0]

    operators = Operators("foo(Tensor x, int a=1, int b=2, *, float c=3, int[] d=[4, 5]) -> Tensor")
    operators.library.impl("foo", kernel, "CPU")
    foo = operators("foo")
    for arguments, named in (
        ((), {}),
        ((1, 2), {"c": 3, "d": [4, 5]}),
        ((7, 2), {}),
        ((1, 7), {}),
        ((), {"c": 3.5}),
        ((), {"d": (4, 6)}),
        ((True, 2), {}),
    ):
        foo(X, *arguments, **named)
    assert heard == [
        ((), {}),
        ((), {}),
        ((7,), {}),
        ((1, 7), {}),
        ((), {"c": 3.5}),
        ((), {"d": [4, 6]}),
        ((), {}),
    ]


def test_a_kernel_gets_a_list_of_its_own() -> None:
    def greedy(op: Operator, stack: list[Any]) -> None:
        stack[-1].append(9)
        seen.append(stack.pop())

    seen: list[Any] = []
    operators = Operators("foo(Tensor x, int[] d=[4, 5]) -> Tensor")
    operators.library.impl("foo", boxed(greedy), "CPU")
    for _ in range(2):
        operators("foo")(X)
        operators("foo").call_boxed([X, [4, 5]])
    assert seen == [[4, 5, 9]] * 4


def test_a_fallback_gets_the_key_set_then_the_operator_then_the_arguments() -> None:
    heard: list[Any] = []

    def fallback(*arguments: Any, **named: Any) -> Any:
        heard.append((arguments, named))
        return arguments[-1]

    operators = Operators("foo(Tensor x) -> Tensor", "bar(Tensor x, *, int n=1) -> Tensor")
    foo, bar = operators("foo"), operators("bar")
    with operators.everywhere.fallback(fallback, "CPU"):
        assert foo(X) is X
        assert bar(X, n=2) is X
    with operators.everywhere.fallback(fallback, "CPU", with_keyset=True):
        assert foo(X) is X
    assert heard == [((foo, X), {}), ((bar, X), {"n": 2}), ((CPU, foo, X), {})]


IN_PLACE_AND_OUT = (
    "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    "add.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
    "two.out(Tensor self, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))",
)


def test_unboxed_kernels_of_in_place_and_out_forms_return_the_argument_that_they_wrote() -> None:
    operators = Operators(*IN_PLACE_AND_OUT)
    fresh = tensor([0.0])
    returned: Any = None

    def one(self: Tensor, other: Tensor) -> Tensor:
        return returned  # type: ignore[no-any-return]  # nothing, or something wrong

    def two(self: Tensor, out0: Tensor, out1: Tensor) -> tuple[Tensor, Tensor]:
        return None if returned is None else (returned, returned)  # type: ignore[return-value]  # likewise

    operators.library.impl("add_", unboxed(one), "CPU")
    operators.library.impl("add.out", unboxed(one), "CPU")
    operators.library.impl("two.out", unboxed(two), "CPU")
    for wrong in (None, fresh):
        returned = wrong
        assert operators("add_")(X, Y) is X
        assert operators("add.out")(X, out=Y) is Y
        assert operators("two.out")(Y, out0=Y, out1=X) == (Y, X)
        stack: list[object] = [X, Y]
        operators("add_").call_boxed(stack)
        assert stack == [X]
    returned = "text"
    with pytest.raises(CallError) as refusal:
        operators("add_")(X, Y)
    assert refusal.value.kind == ErrorKind.WRONG_RETURN


def test_python_kernels_of_in_place_and_out_forms_return_what_they_return() -> None:
    operators = Operators(*IN_PLACE_AND_OUT)
    fresh = tensor([0.0])
    for returned in (None, fresh, X):
        with (
            operators.library.impl("add_", lambda *a, **k: returned, "CPU"),  # noqa: B023 - called at once
            operators.library.impl("add.out", lambda *a, **k: returned, "CPU"),  # noqa: B023
            operators.library.impl("two.out", lambda *a, **k: (fresh, returned), "CPU"),  # noqa: B023
        ):
            assert operators("add_")(X, Y) is returned
            assert operators("add_").redispatch(CPU, X, Y) is returned
            assert operators("add.out")(X, out=Y) is returned
            assert operators("two.out")(Y, out0=Y, out1=X) == (fresh, returned)
            stack: list[object] = [X, Y]
            operators("add_").call_boxed(stack)
            assert stack == [returned]
    with operators.library.impl("two.out", lambda *a, **k: None, "CPU"), pytest.raises(CallError) as refusal:
        operators("two.out")(Y, out0=Y, out1=X)
    assert refusal.value.kind == ErrorKind.WRONG_RETURN


# -- key sets


def test_undefined_and_empty_lists_and_generators_decide_as_upstream_has_it() -> None:
    heard: list[str] = []
    operators = Operators("foo(Tensor? x, Tensor[] y, Tensor?[] z, *, Generator? generator=None) -> int")
    for key in ("CPU", "CUDA", "CompositeExplicitAutograd"):
        operators.library.impl("foo", noting(heard, key), key)
    foo = operators("foo")
    foo(None, [], [])
    foo(None, [], [None])
    foo(X, [], [])
    foo(None, [X], [None])
    foo(None, [X], [ON_CUDA])
    foo(None, [], [], generator=Generator("cuda"))
    foo.call_boxed([None, [], [], Generator("cuda")])
    assert heard == ["CompositeExplicitAutograd"] * 2 + ["CPU"] * 2 + ["CUDA"] * 2 + ["CompositeExplicitAutograd"]


def test_masks_are_a_function_of_the_slots_that_fall_through() -> None:
    every = 0
    for slot, key in enumerate(RUNTIME_KEYS):
        found = masks(1 << slot)
        bit = functionality_bit(key.functionality)
        for backend, mask in enumerate(found.by_backend):
            assert mask == FULL_BITS & ~(bit if key.backend in (None, backend) else 0)
            assert mask & BACKEND_BITS == BACKEND_BITS
        assert found.per_backend == (key.backend is not None)
        every |= 1 << slot
    assert masks(every).applied(FULL_BITS) == BACKEND_BITS
    assert not masks(every).per_backend
    assert len(RUNTIME_KEYS) == 137


def test_the_highest_backend_decides_which_fallthroughs_count() -> None:
    heard: list[str] = []
    operators = Operators("foo(Tensor[] x) -> int")
    operators.library.impl("foo", fallthrough, "AutogradCPU")
    for key in ("CPU", "Meta", "AutogradMeta"):
        operators.library.impl("foo", noting(heard, key), key)
    meta = tensor([1.0], device="meta")
    operators("foo")([X])
    operators("foo")([X, meta])
    operators("foo").redispatch(DispatchKeySet.of(DispatchKey.CPU, DispatchKey.Meta), [X])
    assert heard == ["CPU", "AutogradMeta", "Meta"]


def test_guards_put_back_what_they_found_even_when_the_block_fails() -> None:
    before = (included(), excluded(), is_inference_mode())
    guards: list[Callable[[], Any]] = [
        lambda: IncludeDispatchKeyGuard(DispatchKey.Tracer),
        lambda: ExcludeDispatchKeyGuard(CPU),
        AutoDispatchBelowAutograd,
        AutoDispatchBelowADInplaceOrView,
        InferenceMode,
        lambda: ForceDispatchKeyGuard(CPU, CUDA),
    ]
    states = set()
    for first, second in itertools.product(guards, guards):
        with pytest.raises(ZeroDivisionError), first():  # noqa: PT012 - what is inside is what is tested
            outer = (included(), excluded(), is_inference_mode())
            with second():
                states.add((included(), excluded(), is_inference_mode()))
            assert (included(), excluded(), is_inference_mode()) == outer
            raise ZeroDivisionError
        assert (included(), excluded(), is_inference_mode()) == before
    assert len(states) == 20
    one = AutoDispatchBelowAutograd()
    with one, one:
        pass
    assert (included(), excluded(), is_inference_mode()) == before


# -- the table changes


def test_every_call_sees_the_registrations_that_were_done_before_it() -> None:
    operators = Operators("foo(Tensor x) -> int")
    foo = operators("foo")
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(foo(X))
        except (CallError, RegistrationError) as error:
            answers.append(str(error.kind))

    ask()
    composite = operators.library.impl("foo", lambda x: 1)
    ask()
    own = operators.library.impl("foo", lambda x: 2, "CPU")
    ask()
    fallback = operators.everywhere.fallback(lambda op, x: 3, "DeferredInit")
    with IncludeDispatchKeyGuard(DispatchKey.DeferredInit):
        ask()
    fallback.release()
    with IncludeDispatchKeyGuard(DispatchKey.DeferredInit):
        ask()
    own.release()
    ask()
    composite.release()
    ask()
    operators.library.handles[0].release()
    ask()
    assert answers == ["missing_kernel", 1, 2, 3, "missing_kernel", 1, "missing_kernel", "no_such_schema"]


def test_an_operator_that_is_defined_anew_takes_the_new_arguments() -> None:
    operators = Operators()
    with (
        operators.library.define("foo(Tensor x, int n=1) -> int"),
        operators.library.impl("foo", lambda x, n=1: n, "CPU"),
    ):
        foo = operators("foo")
        assert (foo(X), foo(X, 5), foo.redispatch(CPU, X, n=6)) == (1, 5, 6)
    with operators.library.define("foo(Tensor x, int m=2, *, int k=3) -> int"):
        operators.library.impl("foo", lambda x, m=2, *, k=3: 10 * m + k, "CPU")
        assert foo(X, m=4, k=5) == 45
        assert (foo(X), foo(X, 7), foo.redispatch(CPU, X, 7, k=1)) == (23, 73, 71)
    with pytest.raises(RegistrationError) as caught:
        foo(X)
    assert caught.value.kind is ErrorKind.NO_SUCH_SCHEMA


def test_packets_find_overloads_by_name() -> None:
    operators = Operators("foo(Tensor x) -> int", "foo.two(Tensor x) -> int", "bar.only(Tensor x) -> int")
    for number, name in enumerate(("foo", "foo.two", "bar.only")):
        operators.library.impl(name, lambda x, number=number: number, "CPU")
    namespace = ops(operators.dispatcher).test
    assert namespace.foo.default is operators("foo")
    assert (namespace.foo(X), namespace.foo.two(X), namespace.bar(X)) == (0, 1, 2)
    assert namespace.foo.overloads() == ("default", "two")


def test_an_unknown_operator_or_overload_is_refused_with_those_that_there_are() -> None:
    operators = Operators("foo(Tensor x) -> int", "foo.two(Tensor x) -> int", "bar.only(Tensor x) -> int")
    namespace = ops(operators.dispatcher).test
    with pytest.raises(AttributeError, match="it has default, two"):
        _ = namespace.foo.three
    with pytest.raises(AttributeError, match="no operator test::baz"):
        _ = namespace.baz
    with pytest.raises(RegistrationError, match="did you mean test::foo"):
        operator(operators.dispatcher, "test::fooo")


def test_python_words_and_strange_names_can_be_arguments() -> None:
    operators = Operators("foo(Tensor self, *, int lambda=1, int _kernel=2, int from=3) -> int")
    operators.library.impl("foo", lambda self, **named: sum(named.values()), "CPU")
    assert operators("foo")(X, **{"lambda": 10, "_kernel": 20, "from": 30}) == 60
    assert operators("foo")(X) == 0
    with pytest.raises(CallError, match="no argument '_argument1'"):
        operators("foo")(X, _argument1=5)


# -- bad calls

FOO = (
    "foo(Tensor self, int n, Tensor[] more, float f=1, *, Scalar alpha=1, int[2] size=0, Device? device=None) -> Tensor"
)
BAD_ARGUMENTS: tuple[tuple[tuple[Any, ...], dict[str, Any], ErrorKind, str], ...] = (
    ((), {}, ErrorKind.MISSING_ARGUMENT, "self"),
    ((X, 1), {}, ErrorKind.MISSING_ARGUMENT, "more"),
    ((X, 1, [], 1.0, 2), {}, ErrorKind.EXTRA_ARGUMENT, ""),
    ((X, 1, []), {"beta": 1}, ErrorKind.EXTRA_ARGUMENT, "beta"),
    ((X, 1, []), {"self": Y}, ErrorKind.EXTRA_ARGUMENT, "self"),
    ((X, 1, [], 2.0), {"f": 2.0}, ErrorKind.EXTRA_ARGUMENT, "f"),
    ((3, 1, []), {}, ErrorKind.WRONG_TYPE, "self"),
    (([X], 1, []), {}, ErrorKind.WRONG_TYPE, "self"),
    ((X, 1.5, []), {}, ErrorKind.WRONG_TYPE, "n"),
    ((X, X, []), {}, ErrorKind.WRONG_TYPE, "n"),
    ((X, 1, X), {}, ErrorKind.WRONG_TYPE, "more"),
    ((X, 1, [None]), {}, ErrorKind.WRONG_TYPE, "more"),
    ((X, 1, [3]), {}, ErrorKind.WRONG_TYPE, "more"),
    ((X, 1, [], "a"), {}, ErrorKind.WRONG_TYPE, "f"),
    ((X, 1, []), {"alpha": "a"}, ErrorKind.WRONG_TYPE, "alpha"),
    ((X, 1, []), {"alpha": X}, ErrorKind.WRONG_TYPE, "alpha"),
    ((X, 1, []), {"size": 1.5}, ErrorKind.WRONG_TYPE, "size"),
    ((X, 1, []), {"device": "cupid"}, ErrorKind.WRONG_TYPE, "device"),
    ((X, 1, []), {"device": 3}, ErrorKind.WRONG_TYPE, "device"),
)


@pytest.mark.parametrize(("arguments", "named", "kind", "argument"), BAD_ARGUMENTS)
def test_bad_arguments_are_refused_with_the_schema_and_the_argument(
    arguments: tuple[Any, ...], named: dict[str, Any], kind: ErrorKind, argument: str
) -> None:
    operators = Operators(FOO)
    called: list[Any] = []
    operators.library.impl("foo", lambda *a, **k: called.append(a), "CPU")
    foo = operators("foo")
    for call in (foo, partial(foo.redispatch, CPU)):
        with pytest.raises(CallError) as caught:
            call(*arguments, **named)
        error = caught.value
        assert error.kind is kind
        assert error.facts.get("argument", "") == argument
        assert error.facts["schema"] == str(foo.schema)
        assert str(foo.schema) in str(error)
        assert argument in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert called == []


def test_what_torch_accepts_is_converted() -> None:
    heard: list[Any] = []
    operators = Operators(FOO)

    def kernel(op: Operator, stack: list[Any]) -> None:
        heard.append(stack[1:])
        del stack[1:]

    operators.library.impl("foo", boxed(kernel), "CPU")
    operators("foo")(X, TRUE, (X,), 3, alpha=True, size=7, device="cuda:1")
    ((n, more, f, alpha, size, device),) = heard
    assert [(type(value), value) for value in (n, more, f, alpha, size)] == [
        (int, 1),
        (list, [X]),
        (float, 3.0),
        (bool, True),
        (list, [7, 7]),
    ]
    assert str(device) == "cuda:1"


RETURNS = (
    ("v(Tensor x) -> ()", 3, "returned int and should return None"),
    ("r(Tensor x) -> Tensor", 3, "returned int and should return Tensor"),
    ("r(Tensor x) -> Tensor", (X,), "returned tuple and should return Tensor"),
    ("i(Tensor x) -> int", 1.5, "returned float and should return int"),
    ("two(Tensor x) -> (Tensor, Tensor)", (X,), "returned 1 values and should return 2"),
    ("two(Tensor x) -> (Tensor, Tensor)", [X, X, X], "returned 3 values and should return 2"),
    ("two(Tensor x) -> (Tensor, Tensor)", X, "returned Tensor and should return 2 values"),
    ("two(Tensor x) -> (Tensor, Tensor)", None, "returned NoneType and should return 2 values"),
    ("two(Tensor x) -> (Tensor, Tensor)", (X, 3), "returned int as value 1 and should return Tensor"),
    ("in_(Tensor(a!) x) -> Tensor(a!)", 3, "returned int and should return Tensor"),
)


@pytest.mark.parametrize(("schema", "returned", "what"), RETURNS)
def test_a_wrong_return_is_refused_with_the_kernel(schema: str, returned: Any, what: str) -> None:
    operators = Operators(schema)
    name = schema.partition("(")[0]
    operators.library.impl(name, lambda x: returned, "CPU", debug="fn_wrong")
    call = operators(name)
    stack: list[object] = ["below", X]
    for attempt in (
        lambda: call(X),
        lambda: call(x=X),
        lambda: call.redispatch(CPU, X),
        lambda: call.call_boxed(stack),
    ):
        with pytest.raises(CallError, match=what) as caught:
            attempt()
        assert caught.value.kind is ErrorKind.WRONG_RETURN
        assert caught.value.facts["kernel"] == "fn_wrong"
        assert stack == ["below", X]


def _unbalanced() -> dict[str, Callable[[Any, list[Any]], None]]:
    return {
        "leaves the arguments": lambda op, stack: stack.append(X),
        "pushes nothing": lambda op, stack: stack.clear(),
        "pushes too much": lambda op, stack: stack.__setitem__(slice(-2, None), [X, X]),
        "takes from below": lambda op, stack: stack.__setitem__(slice(0, 2), ["mine", X]) or stack.pop(),
    }


@pytest.mark.parametrize("how", tuple(_unbalanced()))
def test_an_unbalanced_stack_is_refused_and_put_back(how: str) -> None:
    operators = Operators("foo(Tensor x, Tensor y) -> Tensor")
    operators.library.impl("foo", boxed(_unbalanced()[how]), "CPU", debug="fn_unbalanced")
    stack: list[object] = ["below", X, Y]
    with pytest.raises(CallError) as caught:
        operators("foo").call_boxed(stack)
    assert caught.value.kind is ErrorKind.UNBALANCED_STACK
    assert caught.value.facts["kernel"] == "fn_unbalanced"
    assert stack == ["below", X, Y]
    if how in ("leaves the arguments", "pushes nothing"):
        with pytest.raises(CallError) as caught:
            operators("foo")(X, Y)
        assert caught.value.kind is ErrorKind.UNBALANCED_STACK


def test_a_stack_that_is_too_short_is_refused() -> None:
    operators = Operators("foo(Tensor x, Tensor y) -> Tensor")
    stack: list[object] = [X]
    with pytest.raises(CallError, match="holds 1 values") as caught:
        operators("foo").call_boxed(stack)
    assert caught.value.kind is ErrorKind.MISSING_ARGUMENT
    assert stack == [X]


def test_a_kernel_that_raises_leaves_stack_guards_and_registrations() -> None:
    operators = Operators("foo(Tensor x, int n=1) -> Tensor")

    def kernel(op: Operator, stack: list[Any]) -> None:
        with AutoDispatchBelowAutograd():
            del stack[:]
            raise AttributeError("of the kernel's own")

    operators.library.impl("foo", boxed(kernel), "CPU")
    before, state = dict(operators.dispatcher.state), (included(), excluded())
    stack: list[object] = ["below", X, 3]
    for attempt in (
        lambda: operators("foo")(X),
        lambda: operators("foo")(X, n=2),
        lambda: operators("foo").call_boxed(stack),
    ):
        with pytest.raises(AttributeError, match="of the kernel's own"):
            attempt()
    assert stack == ["below", X, 3]
    assert (included(), excluded()) == state
    assert operators.dispatcher.state == before


# -- no kernel


def test_a_missing_kernel_names_the_key_and_those_that_there_are() -> None:
    operators = Operators("foo(Tensor x) -> Tensor")
    for key in ("CPU", "Meta"):
        operators.library.impl("foo", lambda x: x, key)
    with pytest.raises(CallError) as caught:
        operators("foo")(ON_CUDA)
    error = caught.value
    assert error.kind is ErrorKind.MISSING_KERNEL
    assert error.facts["key"] == "CUDA"
    assert error.facts["available_keys"].startswith("CPU, Meta, BackendSelect, Python, FuncTorchDynamicLayerBackMode, ")
    assert str(error) == (
        "missing_kernel: test::foo has no kernel for CUDA, the backend of this call: it has kernels for "
        'CPU, Meta; register one: lib.impl("foo", kernel, "CUDA"), or call with other tensors\n'
        "  test::foo(Tensor x) -> Tensor"
    )


def test_an_argument_whose_keys_all_fall_through_counts_as_no_tensor() -> None:
    operators = Operators("foo(Tensor? x) -> Tensor")
    operators.library.impl("foo", fallthrough, "CPU")
    for value in (None, X):
        with pytest.raises(CallError, match="got no tensor that decides the dispatch key") as caught:
            operators("foo")(value)
        assert caught.value.kind is ErrorKind.NO_TENSOR_ARGUMENTS


def test_ambiguous_and_executed_fallthroughs_have_kinds_of_their_own() -> None:
    operators = Operators("foo(Tensor x) -> Tensor")
    operators.library.impl("foo", lambda x: x)
    operators.library.impl("foo", lambda x: x, "FPGA")
    with pytest.raises(CallError) as caught:
        operators("foo")(tensor([1.0], device="fpga"))
    assert caught.value.kind is ErrorKind.AMBIGUOUS_AUTOGRADOTHER
    with pytest.raises(CallError, match="full_after") as caught:
        operators("foo").redispatch(DispatchKeySet.of(DispatchKey.BackendSelect), X)
    assert caught.value.kind is ErrorKind.FALLTHROUGH_EXECUTED


def test_a_kernel_without_a_function_says_so() -> None:
    operators = Operators("foo(Tensor x) -> Tensor")
    registration = Impl(parse_name("test::foo"), DispatchKey.CPU, Kernel(), "elsewhere")
    with (
        operators.dispatcher.register(registration),
        pytest.raises(CallError, match="elsewhere of test::foo has no Python function"),
    ):
        operators("foo")(X)


def test_a_redispatch_wants_a_key_set() -> None:
    operators = Operators("foo(Tensor x) -> Tensor")
    for arguments in ((), (X,), (DispatchKey.CPU, X)):
        with pytest.raises(CallError) as caught:
            operators("foo").redispatch(*arguments)
        assert caught.value.kind in (ErrorKind.WRONG_TYPE, ErrorKind.MISSING_ARGUMENT)
    with pytest.raises(CallError, match="pass a DispatchKeySet"):
        operators("foo").redispatch("CPU", X)


def test_a_stale_table_reports_the_invariant_and_not_the_missing_kernel() -> None:
    operators = Operators("foo(Tensor x) -> Tensor", semantics="torch-2.13")
    # Upstream forgets to refresh AutogradOther when a sparse backend gets a kernel.
    operators.library.impl("foo", lambda x: x)
    operators.library.impl("foo", lambda x: x, "SparseCPU")
    with pytest.raises(InvariantError):
        operators("foo").redispatch(DispatchKeySet.of(DispatchKey.DeferredInit), X)
