"""Several threads, finalizers and the garbage collector, all at the worst moment."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from dispatchlab.engine import lowering as plan
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle, release_all
from dispatchlab.engine.library import Library
from dispatchlab.errors import RegistrationError
from dispatchlab.model.keys import RUNTIME_KEYS
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema
from tests.engine_shorthand import BAR, FOO, K, define, fallback, impl, overrides_allowed, refused, state, typed
from tests.engine_stress import many_interrupts, many_threads

THREADS = 4
ROUNDS = 60


def at_once(*jobs: Callable[[], None]) -> None:
    """Run jobs in threads that start together; raise what one of them raised."""
    gate = threading.Barrier(len(jobs))
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            gate.wait()
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
def test_no_registration_of_any_thread_is_lost(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    before = state(dispatcher)
    keys = [key for key in RUNTIME_KEYS[1:] if key.name in ("CPU", "CUDA", "XLA", "Meta")]
    kept: list[list[RegistrationHandle]] = [[] for _ in range(THREADS)]

    def job(number: int) -> None:
        for turn in range(ROUNDS):
            own = OperatorName("test", f"op{number}")
            kept[number].append(dispatcher.register(impl(keys[number], f"{number}.{turn}", operator=BAR)))
            dispatcher.register(impl(keys[number], operator=own)).release()
            dispatcher.register(define(f"test::op{number}(Tensor x) -> Tensor")).release()

    with overrides_allowed():
        at_once(*(partial(job, number) for number in range(THREADS)))
    assert dispatcher.def_and_impl_count(BAR) == THREADS * ROUNDS
    entry = dispatcher.operator_entry(BAR)
    assert entry is not None
    lists = {str(kernels[0].key): [kernel.debug for kernel in kernels] for kernels in entry.kernels.values()}
    assert lists == {
        str(keys[number]): [f"{number}.{turn}" for turn in reversed(range(ROUNDS))] for number in range(THREADS)
    }
    assert dispatcher.operators() == (BAR,)
    dispatcher.check_invariants()
    at_once(*(partial(release_all, handles) for handles in kept))
    assert state(dispatcher) == before


def test_a_handle_that_two_threads_release_is_released_once() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    for _ in range(ROUNDS):
        keep = dispatcher.register(impl(K.CUDA))
        handle = dispatcher.register(impl(K.CPU))
        at_once(handle.release, handle.release, handle.release)
        assert dispatcher.def_and_impl_count(FOO) == 1
        keep.release()
    assert state(dispatcher) == {}


def test_look_ups_never_see_half_of_a_registration() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    done = threading.Event()
    looks = [0]
    operators = [OperatorName("test", name) for name in "abc"]
    always = [dispatcher.register(impl(None, "math", operator=name)) for name in operators]

    def change() -> None:
        try:
            for _ in range(ROUNDS):
                handles = [dispatcher.register(fallback(key)) for key in (K.AutogradCPU, K.Tracer, K.BackendSelect)]
                handles += [dispatcher.register(impl(key, operator=operators[0])) for key in (K.CPU, K.QuantizedCPU)]
                handles += [dispatcher.register(define("test::a(Tensor x) -> Tensor"))]
                for handle in handles:
                    handle.release()
        finally:
            done.set()

    def look() -> None:
        while not done.is_set():
            for name in operators:
                dispatcher.check_invariants(name)
                seen = dispatcher.snapshot(name)
                assert seen.slots == seen.table
                assert seen.dangling == (seen.schema is None)
                assert set(dispatcher.operators()) == set(operators)
            dispatcher.check_invariants()
            looks[0] += 1

    at_once(change, look, look)
    assert looks[0] > 0
    assert len(always) == 3


def test_one_namespace_has_one_owner_however_many_ask() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    owners: list[Library] = []
    refusals = []

    def claim() -> None:
        try:
            owners.append(Library("test", "DEF", dispatcher=dispatcher))
        except RegistrationError as error:
            refusals.append(error)

    for _ in range(ROUNDS):
        at_once(*[claim] * THREADS)
        assert len(owners) == 1
        owners.pop().release()
    assert len(refusals) == ROUNDS * (THREADS - 1)


class Interrupting:
    """Something that happens once, in the middle of a change."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.what, self.times = what, 0

    def install(self, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
        original: Any = getattr(plan, when)

        def interrupted(semantics: Any, transaction: Any, made: Any) -> None:
            original(semantics, transaction, made)
            if self.times == 0:
                self.times += 1
                self.what()

        monkeypatch.setattr(plan, when, interrupted)


@pytest.mark.parametrize("when", ["register", "release"])
@pytest.mark.parametrize("how", ["collected", "released"])
def test_a_release_in_the_middle_of_a_change_waits_until_it_is_done(
    monkeypatch: pytest.MonkeyPatch, when: str, how: str
) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    cycle: list[object] = [dispatcher.register(impl(K.CPU, "old"))]
    cycle.append(cycle)
    plain = dispatcher.register(impl(K.CUDA, "old"))
    victim = dispatcher.register(impl(K.XLA, "old"))
    during: list[int] = []

    def release() -> None:
        if how == "collected":
            holders.clear()
            gc.collect()
        else:
            plain.release()
        during.append(dispatcher.def_and_impl_count(FOO))

    holders = [cycle]
    del cycle
    gc.disable()
    try:
        interrupting = Interrupting(release)
        interrupting.install(monkeypatch, when)
        if when == "register":
            new = dispatcher.register(impl(K.Meta, "new"))
            expected = {"CUDA" if how == "collected" else "CPU", "XLA", "Meta"}
        else:
            victim.release()
            new = victim
            expected = {"CUDA" if how == "collected" else "CPU"}
    finally:
        gc.enable()
    assert interrupting.times == 1
    assert during == [3]
    entry = dispatcher.operator_entry(FOO)
    assert entry is not None
    assert {str(kernels[0].key) for kernels in entry.kernels.values()} == expected
    dispatcher.check_invariants()
    for handle in (new, plain, victim):
        handle.release()
    holders.clear()
    gc.collect()
    assert state(dispatcher) == {}


def test_a_release_in_the_middle_of_a_refused_registration_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    handle = dispatcher.register(impl(K.CUDA, "old"))
    keep = dispatcher.register(define())
    original: Any = plan.register

    def interrupted(semantics: Any, transaction: Any, made: Any) -> None:
        handle.release()
        original(semantics, transaction, made)

    monkeypatch.setattr(plan, "register", interrupted)
    refused(dispatcher, impl(K.CPU, "", typed("(int _0) -> int _0")))
    assert dispatcher.def_and_impl_count(FOO) == 1
    assert not keep.is_released


def test_a_registration_in_the_middle_of_a_registration_is_refused_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    refusals: list[RegistrationError] = []
    interrupting = Interrupting(lambda: refusals.append(refused(dispatcher, impl(K.CUDA))))
    interrupting.install(monkeypatch, "register")
    handle = dispatcher.register(impl(K.CPU))
    assert [str(error) for error in refusals] == [
        "other: a finalizer cannot register while a registration is under way, and one tried to: impl test::foo CUDA"
    ]
    assert dispatcher.def_and_impl_count(FOO) == 1
    assert not handle.is_released


def test_a_forgotten_handle_does_not_wait_for_a_thread_that_is_changing_the_dispatcher() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        def on_operator_registered(self, name: OperatorName, schema: FunctionSchema) -> None:
            inside.set()
            assert go_on.wait(60)

        def on_operator_deregistered(self, name: OperatorName, schema: FunctionSchema) -> None:
            pass

    forgotten = [dispatcher.register(impl(K.CPU))]
    listening = dispatcher.add_listener(Slow())
    defined: list[RegistrationHandle] = []
    thread = threading.Thread(target=lambda: defined.append(dispatcher.register(define("test::bar() -> ()"))))
    thread.start()
    assert inside.wait(60)
    forgotten.clear()  # returns, although the other thread has the lock
    still_there = dispatcher.def_and_impl_count(FOO)
    go_on.set()
    thread.join()
    assert (still_there, dispatcher.def_and_impl_count(FOO)) == (1, 0)
    assert (len(defined), listening.is_released) == (1, False)


def test_two_dispatchers_whose_handles_hold_each_other_do_not_deadlock() -> None:
    one, other = Dispatcher(builtin_fallbacks=False), Dispatcher(builtin_fallbacks=False)

    def churn(mine: Dispatcher, theirs: Dispatcher) -> None:
        for _ in range(ROUNDS):
            cycle: list[object] = [theirs.register(impl(K.CPU, operator=OperatorName("test", f"x{id(mine)}")))]
            cycle.append(cycle)
            del cycle
            mine.register(impl(K.CUDA, operator=OperatorName("test", f"y{id(mine)}"))).release()
            gc.collect(0)

    with overrides_allowed():  # a handle that waits to be released can still be there when the next one comes
        at_once(lambda: churn(one, other), lambda: churn(other, one))
    gc.collect()
    assert (state(one), state(other)) == ({}, {})


def test_what_a_listener_raises_in_a_forgotten_release_is_printed_and_breaks_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)

    class Raising:
        def on_operator_registered(self, name: OperatorName, schema: FunctionSchema) -> None:
            pass

        def on_operator_deregistered(self, name: OperatorName, schema: FunctionSchema) -> None:
            raise ZeroDivisionError("on purpose")

    listening = dispatcher.add_listener(Raising())
    forgotten = [dispatcher.register(define())]
    forgotten.clear()
    gc.collect()
    assert "ZeroDivisionError: on purpose" in capsys.readouterr().err
    assert dispatcher.find_op(FOO) is None
    assert not listening.is_released


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
def test_threads_that_share_a_library_lose_no_registration_and_no_handle(semantics: str) -> None:
    assert many_threads(semantics, 1_600) >= 1_600


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no interval timer here")
@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_an_interrupt_leaves_nothing_that_cannot_be_released(semantics: str) -> None:
    assert many_interrupts(semantics, 150, seed=1) == 150


def test_a_library_forgets_the_handles_that_are_released() -> None:
    library = Library("test", "FRAGMENT", dispatcher=Dispatcher())
    for _ in range(ROUNDS):
        library.impl("foo", lambda x: x, "CPU").release()
    assert library.handles == ()
