"""Listeners hear of schemas, and of nothing else; one that raises refuses a def."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.errors import RegistrationError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, BlockKind, Def, NameOnly
from dispatchlab.model.schema import FunctionSchema
from tests.engine_shorthand import (
    BAR,
    BOXED,
    FOO,
    TYPED,
    K,
    block,
    define,
    each_semantics,
    fallback,
    impl,
    refused,
    state,
    typed,
)


class Recorder:
    """Writes down what it hears, and what can be seen of the schema at that moment."""

    def __init__(self, dispatcher: Dispatcher, name: str = "", diary: list[str] | None = None) -> None:
        self.dispatcher, self.name = dispatcher, name
        self.diary: list[str] = [] if diary is None else diary
        self.on_register: Callable[[OperatorName], None] | None = None
        self.on_deregister: Callable[[OperatorName], None] | None = None

    def on_operator_registered(self, name: OperatorName, schema: FunctionSchema) -> None:
        assert self.dispatcher.find_schema(name) == schema
        self.diary.append(f"{self.name}+{name}")
        if self.on_register is not None:
            self.on_register(name)

    def on_operator_deregistered(self, name: OperatorName, schema: FunctionSchema) -> None:
        assert self.dispatcher.find_schema(name) == schema
        self.diary.append(f"{self.name}-{name}")
        if self.on_deregister is not None:
            self.on_deregister(name)


def fail(_: OperatorName) -> None:
    raise ZeroDivisionError("on purpose")


@each_semantics
def test_a_listener_hears_of_defs_and_of_nothing_else(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    recorder = Recorder(dispatcher)
    listening = dispatcher.add_listener(recorder)
    kernel = dispatcher.register(impl(K.CPU))
    name = dispatcher.register(NameOnly(FOO))
    everywhere = dispatcher.register(fallback(K.FPGA))
    assert recorder.diary == []
    definition = dispatcher.register(define())
    assert recorder.diary == ["+test::foo"]
    definition.release()
    kernel.release()
    name.release()
    everywhere.release()
    assert recorder.diary == ["+test::foo", "-test::foo"]
    listening.release()
    dispatcher.register(define()).release()
    assert len(recorder.diary) == 2


def test_a_new_listener_hears_of_every_operator_that_has_a_schema() -> None:
    dispatcher = Dispatcher()
    handles = [dispatcher.register(one) for one in (define("test::b() -> ()"), define("test::a() -> ()"), impl(K.CPU))]
    recorder = Recorder(dispatcher)
    listening = dispatcher.add_listener(recorder)
    assert recorder.diary == ["+test::a", "+test::b"]
    assert (len(handles), listening.is_released) == (3, False)


@each_semantics
def test_a_refused_def_is_not_heard_of(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    recorder = Recorder(dispatcher)
    listening = dispatcher.add_listener(recorder)
    kernel = dispatcher.register(impl(K.CPU, "", typed("(int _0) -> int _0")))
    refused(dispatcher, define())
    assert recorder.diary == []
    assert [handle.is_released for handle in (kernel, listening)] == [False, False]


def test_the_part_of_a_refused_def_that_pytorch_keeps_is_heard_of() -> None:
    clash = Def(define().schema, kernel=typed("(int _0) -> int _0"), key=K.CPU)
    heard = {}
    for semantics in ("strict", "torch-2.13"):
        dispatcher = Dispatcher(semantics)
        recorder = Recorder(dispatcher)
        with dispatcher.add_listener(recorder):
            refused(dispatcher, clash)
        heard[semantics] = (recorder.diary, dispatcher.find_schema(FOO) is not None)
    assert heard == {"strict": ([], False), "torch-2.13": (["+test::foo"], True)}


def test_of_several_defs_the_first_and_the_last_are_heard_of() -> None:
    dispatcher = Dispatcher("pr35061")
    recorder = Recorder(dispatcher)
    with dispatcher.add_listener(recorder):
        one, two = dispatcher.register(define()), dispatcher.register(define())
        one.release()
        assert recorder.diary == ["+test::foo"]
        two.release()
    assert recorder.diary == ["+test::foo", "-test::foo"]


def test_a_block_is_heard_of_def_by_def_in_its_order() -> None:
    dispatcher = Dispatcher()
    recorder = Recorder(dispatcher)
    library = block(BlockKind.FRAGMENT, define("b() -> ()"), define("a() -> ()"), impl(K.CPU, operator=BAR))
    with dispatcher.add_listener(recorder), dispatcher.register(library):
        assert recorder.diary == ["+test::b", "+test::a"]
    assert recorder.diary == ["+test::b", "+test::a", "-test::b", "-test::a"]


def test_the_same_listener_twice_hears_twice_and_each_handle_ends_one() -> None:
    dispatcher = Dispatcher()
    recorder = Recorder(dispatcher)
    first, second = dispatcher.add_listener(recorder), dispatcher.add_listener(recorder)
    handle = dispatcher.register(define())
    assert recorder.diary == ["+test::foo"] * 2
    first.release()
    handle.release()
    assert recorder.diary == ["+test::foo"] * 2 + ["-test::foo"]
    assert not second.is_released


@each_semantics
def test_a_listener_that_raises_undoes_the_def_for_the_listeners_before_it(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    before = state(dispatcher)
    diary: list[str] = []
    recorders = [Recorder(dispatcher, name, diary) for name in "abc"]
    recorders[1].on_register = fail
    listening = [dispatcher.add_listener(recorder) for recorder in recorders]
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        dispatcher.register(define())
    assert diary == ["a+test::foo", "b+test::foo", "a-test::foo"]
    assert state(dispatcher) == before
    recorders[1].on_register = None
    with dispatcher.register(define()):
        assert len(diary) == 6
    assert [handle.is_released for handle in listening] == [False] * 3


def test_what_is_raised_while_a_def_is_taken_back_is_a_note_on_the_first_error() -> None:
    dispatcher = Dispatcher()
    first, second = Recorder(dispatcher), Recorder(dispatcher)
    first.on_deregister, second.on_register = fail, fail
    with dispatcher.add_listener(first), dispatcher.add_listener(second):
        with pytest.raises(ZeroDivisionError) as caught:
            dispatcher.register(define())
        assert len(caught.value.__notes__) == 1
        assert caught.value.__notes__[0].startswith("notified of the release of test::foo, ")
    assert dispatcher.find_op(FOO) is None


def test_a_listener_that_raises_takes_a_whole_block_back() -> None:
    dispatcher = Dispatcher()
    before = state(dispatcher)
    recorder = Recorder(dispatcher)
    recorder.on_register = lambda name: fail(name) if name == BAR else None
    library = block(BlockKind.DEF, define("foo() -> ()"), define("bar() -> ()"), impl(K.CPU))
    with dispatcher.add_listener(recorder):
        with pytest.raises(ZeroDivisionError):
            dispatcher.register(library)
        assert recorder.diary == ["+test::foo", "+test::bar", "-test::foo"]
    assert state(dispatcher) == before


def test_a_release_goes_on_whatever_listeners_raise() -> None:
    dispatcher = Dispatcher()
    before = state(dispatcher)
    diary: list[str] = []
    recorders = [Recorder(dispatcher, name, diary) for name in "abc"]
    listening = [dispatcher.add_listener(recorder) for recorder in recorders]
    handle = dispatcher.register(define())
    recorders[0].on_deregister = fail
    with pytest.raises(ZeroDivisionError):
        handle.release()
    assert diary[3:] == ["a-test::foo", "b-test::foo", "c-test::foo"]
    assert state(dispatcher) == before
    handle = dispatcher.register(define())
    recorders[2].on_deregister = fail
    with pytest.raises(ExceptionGroup) as caught:
        handle.release()
    assert len(caught.value.exceptions) == 2
    assert state(dispatcher) == before
    assert len(listening) == 3


def test_a_listener_that_raises_when_it_is_added_is_not_added() -> None:
    dispatcher = Dispatcher()
    recorder = Recorder(dispatcher)
    recorder.on_register = fail
    handle = dispatcher.register(define())
    with pytest.raises(ZeroDivisionError):
        dispatcher.add_listener(recorder)
    handle.release()
    assert recorder.diary == ["+test::foo"]


@each_semantics
def test_a_listener_can_register_when_a_def_comes(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    before = state(dispatcher)
    added: list[RegistrationHandle] = []
    recorder = Recorder(dispatcher)
    recorder.on_register = lambda name: added.append(dispatcher.register(impl(K.CPU, "mine", TYPED, name)))
    with dispatcher.add_listener(recorder):
        with dispatcher.register(define()), dispatcher.register(define("test::bar(Tensor x) -> Tensor")):
            assert len(added) == 2
            assert all("CPU: mine [kernel]\n" in dispatcher.dump_slots(name) for name in (FOO, BAR))
            dispatcher.check_invariants()
        assert dispatcher.dangling_impls() == (BAR, FOO)
    for handle in added:
        handle.release()
    assert state(dispatcher) == before


@each_semantics
def test_a_listener_can_register_when_a_def_goes(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    before = state(dispatcher)
    added: list[RegistrationHandle] = []
    recorder = Recorder(dispatcher)
    recorder.on_deregister = lambda name: added.append(dispatcher.register(impl(K.CPU, "mine", TYPED, name)))
    with dispatcher.add_listener(recorder):
        dispatcher.register(define()).release()
        assert dispatcher.def_and_impl_count(FOO) == 1
        assert dispatcher.dangling_impls() == (FOO,)
    added[0].release()
    assert state(dispatcher) == before


def test_a_listener_that_defines_and_adds_listeners_misses_and_repeats_nothing() -> None:
    dispatcher = Dispatcher()
    handles = [dispatcher.register(define())]
    late = Recorder(dispatcher, "late")

    def more(name: OperatorName) -> None:
        if name == FOO:
            handles.append(dispatcher.register(define("test::bar() -> ()")))
            handles.append(dispatcher.add_listener(late))

    recorder = Recorder(dispatcher)
    recorder.on_register = more
    handles.append(dispatcher.add_listener(recorder))
    assert sorted(recorder.diary) == ["+test::bar", "+test::foo"]
    assert sorted(late.diary) == ["late+test::bar", "late+test::foo"]
    assert len(handles) == 4


def test_a_new_listener_does_not_hear_of_what_it_takes_down_meanwhile() -> None:
    dispatcher = Dispatcher()
    handles = [dispatcher.register(define(f"test::{name}() -> ()")) for name in "abc"]
    recorder = Recorder(dispatcher)
    recorder.on_register = lambda name: handles[2].release() if name.name == "a" else None
    listening = dispatcher.add_listener(recorder)
    assert recorder.diary == ["+test::a", "-test::c", "+test::b"]
    assert not listening.is_released


def test_a_listener_that_a_listener_ends_hears_no_more() -> None:
    dispatcher = Dispatcher()
    first, second = Recorder(dispatcher, "a"), Recorder(dispatcher, "b")
    handles = [dispatcher.add_listener(first), dispatcher.add_listener(second)]
    first.on_register = lambda _: handles[1].release()
    definition = dispatcher.register(define())
    assert (first.diary, second.diary) == (["a+test::foo"], [])
    assert not definition.is_released


def test_a_registration_of_a_listener_can_be_refused_and_refuses_the_def_with_it() -> None:
    dispatcher = Dispatcher()
    recorder = Recorder(dispatcher)
    wrong = impl(K.CPU, "", typed("(int _0) -> int _0"))
    recorder.on_register = lambda _: dispatcher.register(wrong).release()
    with dispatcher.add_listener(recorder), pytest.raises(RegistrationError, match="schema_mismatch"):
        dispatcher.register(define(alias=AliasKind.PURE_FUNCTION))
    assert dispatcher.find_op(FOO) is None
    assert BOXED.inferred is None
