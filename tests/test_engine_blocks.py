"""What a library block may hold: every entry of the table, and the order in which the rules are asked."""

from __future__ import annotations

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import ErrorKind
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, BlockKind, Claim, Def, Fallback, Impl
from tests.engine_shorthand import (
    FOO,
    K,
    block,
    define,
    each_semantics,
    fallback,
    impl,
    kind_of,
    refused,
    state,
)

DEF, FRAGMENT, IMPL, IMPORT = BlockKind.DEF, BlockKind.FRAGMENT, BlockKind.IMPL, BlockKind.IMPORT
E = ErrorKind
FOO_DEF, FOO_IMPL = define("foo(Tensor x) -> Tensor"), impl(K.CPU, operator=OperatorName("", "foo"))


def foo_impl(key: DispatchKey | None) -> Impl:
    return impl(key, operator=OperatorName("", "foo"))


@each_semantics
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (lambda kind: block(kind), (None, None, None)),
        (lambda kind: block(kind, namespace=None), (E.WILDCARD_NAMESPACE, E.WILDCARD_NAMESPACE, None)),
        (lambda kind: block(kind, key=K.CPU), (E.KEY_ON_DEF_BLOCK, E.KEY_ON_DEF_BLOCK, None)),
        (lambda kind: block(kind, key=K.Undefined), (None, None, None)),
        (lambda kind: block(kind, FOO_DEF), (None, None, E.DEF_IN_IMPL_BLOCK)),
        (lambda kind: block(kind, foo_impl(None)), (None, None, None)),
        (lambda kind: block(kind, foo_impl(K.CPU)), (None, None, None)),
        (lambda kind: block(kind, fallback(K.FPGA)), (E.FALLBACK_OUTSIDE_IMPL,) * 2 + (E.FALLBACK_WITH_NAMESPACE,)),
        (lambda kind: block(kind, fallback(None)), (E.FALLBACK_OUTSIDE_IMPL,) * 2 + (E.FALLBACK_WITHOUT_KEY,)),
        (lambda kind: block(kind, define("other::foo() -> ()")), (E.NAMESPACE_MISMATCH,) * 2 + (E.DEF_IN_IMPL_BLOCK,)),
        (lambda kind: block(kind, define("test::foo() -> ()")), (None, None, E.DEF_IN_IMPL_BLOCK)),
        (lambda kind: block(kind, impl(K.CPU, operator=OperatorName("other", "foo"))), (E.NAMESPACE_MISMATCH,) * 3),
        (lambda kind: block(kind, impl(K.CPU, operator=FOO)), (None, None, None)),
    ],
    ids=[
        *("construct", "wildcard", "key", "key Undefined", "def", "impl", "impl key", "fallback", "fallback no key"),
        *("def elsewhere", "def here", "impl elsewhere", "impl here"),
    ],
)
def test_each_kind_of_block_holds_what_it_may_and_nothing_else(
    semantics: str, what: object, expected: tuple[ErrorKind | None, ...]
) -> None:
    dispatcher = Dispatcher(semantics)
    before = state(dispatcher)
    assert callable(what)
    assert tuple(kind_of(dispatcher, what(kind)) for kind in (DEF, FRAGMENT, IMPL)) == expected
    assert state(dispatcher) == before


@each_semantics
@pytest.mark.parametrize(
    ("of_block", "of_call", "registered_at"),
    [
        (K.CPU, None, "CPU"),
        (K.CPU, K.CPU, "CPU"),
        (K.CPU, K.Undefined, "CPU"),
        (None, K.CUDA, "CUDA"),
        (K.Undefined, K.CUDA, "CUDA"),
        (K.CPU, K.CUDA, E.KEY_MISMATCH),
        (K.Dense, K.CPU, E.KEY_MISMATCH),
        (K.AutogradOther, K.AutogradCPU, E.KEY_MISMATCH),
    ],
)
def test_an_explicit_key_agrees_with_the_key_of_the_block(
    semantics: str, of_block: DispatchKey | None, of_call: DispatchKey | None, registered_at: str | ErrorKind
) -> None:
    dispatcher = Dispatcher(semantics)
    one = block(IMPL, foo_impl(of_call), key=of_block)
    if isinstance(registered_at, ErrorKind):
        error = refused(dispatcher, one)
        assert error.kind is registered_at
        assert error.facts == {"block": "IMPL test", "key": str(of_call), "block_key": str(of_block)}
        return
    with dispatcher.register(one):
        assert dispatcher.dump(FOO).splitlines()[2].startswith(f"{registered_at}: ")


@each_semantics
@pytest.mark.parametrize(
    ("of_block", "of_call", "serves"),
    [
        (None, K.FPGA, ["FPGA"]),
        (K.FPGA, None, ["FPGA"]),
        (K.FPGA, K.Vulkan, ["Vulkan"]),  # the fallback's own key silently wins
        (K.FPGA, K.Undefined, ["FPGA"]),
        (None, None, E.FALLBACK_WITHOUT_KEY),
        (None, K.Undefined, E.FALLBACK_WITHOUT_KEY),
        (K.Undefined, None, E.FALLBACK_WITHOUT_KEY),
    ],
)
def test_a_fallback_needs_a_key_from_itself_or_from_its_block(
    semantics: str, of_block: DispatchKey | None, of_call: DispatchKey | None, serves: list[str] | ErrorKind
) -> None:
    dispatcher = Dispatcher(semantics)
    one = block(IMPL, fallback(of_call, "mine"), namespace=None, key=of_block)
    if isinstance(serves, ErrorKind):
        assert refused(dispatcher, one).kind is serves
        return
    with dispatcher.register(impl(K.CPU)), dispatcher.register(one):
        lines = dispatcher.dump_slots(FOO).splitlines()
        assert [line.split(":")[0] for line in lines if line.endswith(" mine [backend fallback]")] == serves


def test_a_fallback_at_a_functionality_key_is_accepted_by_pytorch_only_and_changes_nothing() -> None:
    one = fallback(K.Dense)
    strict, torch, old = Dispatcher("strict"), Dispatcher("torch-2.13"), Dispatcher("pr35061")
    for dispatcher in (strict, old):
        error = refused(dispatcher, one)
        assert (error.kind, error.facts) == (E.UNKNOWN_KEY, {"key": "Dense"})
        assert str(error).endswith("name its instance for one backend, such as CPU")
    before = state(torch)
    first, second = torch.register(one), torch.register(one)
    assert state(torch) == before
    first.release()
    second.release()


def test_an_impl_in_the_wildcard_block_needs_a_qualified_name_and_is_refused_by_pytorch() -> None:
    qualified, bare = block(IMPL, impl(K.CPU), namespace=None), block(IMPL, foo_impl(K.CPU), namespace=None)
    for semantics, expected in (("strict", None), ("torch-2.13", E.NAMESPACE_MISMATCH), ("pr35061", None)):
        dispatcher = Dispatcher(semantics)
        assert kind_of(dispatcher, qualified) == expected
        assert kind_of(dispatcher, bare) == E.UNQUALIFIED_NAME


@each_semantics
def test_a_second_library_of_a_namespace_is_refused_with_the_first(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    first = dispatcher.register(block(DEF, FOO_DEF, debug="first.py:1"))
    assert dispatcher.namespaces() == ("test",)
    for second in (
        block(DEF, debug="second.py:2"),
        Claim("test", "second.py:2"),
        block(DEF, key=K.CPU, debug="second.py:2"),
    ):
        error = refused(dispatcher, second)
        assert error.kind is E.DUPLICATE_LIBRARY
        assert error.facts == {"namespace": "test", "debug": "second.py:2", "other_debug": "first.py:1"}
    assert not first.is_released


@each_semantics
def test_a_namespace_is_free_again_when_its_library_is_released(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    first = dispatcher.register(block(DEF, FOO_DEF, debug="first.py:1"))
    others = [
        dispatcher.register(block(FRAGMENT)),
        dispatcher.register(block(IMPL, FOO_IMPL)),
        dispatcher.register(Claim("b")),
    ]
    assert dispatcher.namespaces() == ("b", "test")
    first.release()
    assert dispatcher.namespaces() == ("b",)
    dispatcher.register(block(DEF)).release()
    assert len(others) == 3


@each_semantics
def test_a_def_block_that_is_refused_for_its_key_gives_the_claim_back(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    before = state(dispatcher)
    assert refused(dispatcher, block(DEF, key=K.CPU)).kind is E.KEY_ON_DEF_BLOCK
    assert state(dispatcher) == before


def test_keys_are_read_before_any_rule_of_blocks_is_asked() -> None:
    dispatcher = Dispatcher("torch-2.13")
    unknown = K.Named
    cases: list[Block] = [
        block(DEF, namespace=None, key=unknown),
        block(IMPL, impl(unknown, operator=OperatorName("other", "foo"))),
        block(FRAGMENT, fallback(unknown)),
        block(IMPL, Def(FOO, kernel=FOO_IMPL.kernel, key=unknown)),
    ]
    assert [refused(dispatcher, one).kind for one in cases] == [E.UNKNOWN_KEY] * 4
    assert [refused(Dispatcher("torch-2.12"), one).kind for one in cases] == [
        *(E.WILDCARD_NAMESPACE, E.NAMESPACE_MISMATCH, E.FALLBACK_OUTSIDE_IMPL, E.DEF_IN_IMPL_BLOCK)
    ]


@each_semantics
def test_a_namespace_is_looked_at_before_a_key_and_both_before_the_state(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    handle = dispatcher.register(define())
    wrong_twice = block(IMPL, impl(K.CUDA, operator=OperatorName("other", "foo")), key=K.CPU)
    assert refused(dispatcher, wrong_twice).kind is E.NAMESPACE_MISMATCH
    assert refused(dispatcher, block(IMPL, FOO_DEF)).kind is E.DEF_IN_IMPL_BLOCK
    assert not handle.is_released


@each_semantics
def test_a_block_comes_as_a_whole_or_not_at_all(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    fine: tuple[Def | Impl | Fallback, ...] = (FOO_DEF, foo_impl(K.CPU), foo_impl(K.CUDA))
    with dispatcher.register(block(FRAGMENT, *fine)):
        assert dispatcher.def_and_impl_count(FOO) == 3
        before = state(dispatcher)
        refused(dispatcher, block(DEF, define("bar() -> ()"), foo_impl(K.XLA), define("foo() -> ()")))
        assert (dispatcher.def_and_impl_count(FOO), dispatcher.namespaces()) == (3, ())
        assert set(state(dispatcher)) == set(before)
        if semantics != "torch-2.13":
            assert state(dispatcher) == before
    assert dispatcher.find_op(FOO) is None


def test_registrations_print_the_block_when_they_have_no_text_of_their_own() -> None:
    dispatcher = Dispatcher()
    mine = impl(K.CUDA, "fn_cuda", operator=OperatorName("", "foo"))
    with dispatcher.register(block(FRAGMENT, FOO_DEF, foo_impl(K.CPU), mine, debug="registered at lib.cpp:3")):
        assert dispatcher.dump(FOO).splitlines()[2:] == [
            "debug: registered at lib.cpp:3",
            "alias analysis kind: CONSERVATIVE (default)",
            "CPU: registered at lib.cpp:3 :: (none) [ boxed ]",
            "CUDA: fn_cuda :: (none) [ boxed ]",
        ]


@each_semantics
def test_an_import_fills_in_a_missing_namespace_and_nothing_more(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    inside = (
        FOO_DEF,
        define("other::foo() -> ()"),
        foo_impl(K.CPU),
        impl(K.CPU, operator=OperatorName("third", "foo")),
    )
    with dispatcher.register(block(IMPORT, *inside)):
        assert [str(name) for name in dispatcher.operators()] == ["other::foo", "test::foo", "third::foo"]
    for one in (FOO_DEF, foo_impl(K.CPU)):
        assert refused(dispatcher, block(IMPORT, one, namespace=None)).kind is E.UNQUALIFIED_NAME
    with dispatcher.register(block(IMPORT, define(), impl(K.CPU), fallback(K.FPGA), namespace=None)):
        assert dispatcher.def_and_impl_count(FOO) == 2
    assert refused(dispatcher, block(IMPORT, fallback(K.FPGA))).kind is E.FALLBACK_WITH_NAMESPACE
    assert refused(dispatcher, block(IMPORT, fallback(None), namespace=None)).kind is E.FALLBACK_WITHOUT_KEY
