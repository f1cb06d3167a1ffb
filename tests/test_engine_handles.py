"""A handle releases its registration once: asked, at the end of a block, or forgotten."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle, release_all
from dispatchlab.engine.library import Library
from dispatchlab.model.registration import Claim, NameOnly, Registration
from tests.engine_shorthand import FOO, K, define, each_semantics, fallback, impl, state

EVERYTHING: tuple[Registration, ...] = (define(), impl(K.CPU), NameOnly(FOO), Claim("test"), fallback(K.FPGA))


@each_semantics
@pytest.mark.parametrize("registration", EVERYTHING, ids=lambda one: type(one).__name__)
def test_every_registration_goes_without_a_trace_and_only_once(semantics: str, registration: Registration) -> None:
    dispatcher = Dispatcher(semantics)
    before = state(dispatcher)
    handle = dispatcher.register(registration)
    assert state(dispatcher) != before
    flags = [handle.is_released]
    handle.release()
    assert state(dispatcher) == before
    assert [*flags, handle.is_released] == [False, True]
    again = dispatcher.register(registration)
    during = state(dispatcher)
    handle.release()
    assert set(state(dispatcher)) == set(during)
    again.release()
    assert state(dispatcher) == before


def test_the_end_of_a_with_block_releases_whether_it_raises_or_not() -> None:
    dispatcher = Dispatcher()
    with dispatcher.register(define()):
        assert dispatcher.find_op(FOO) is not None
    assert dispatcher.find_op(FOO) is None
    with pytest.raises(ZeroDivisionError), dispatcher.register(define()):
        _ = 1 // 0
    assert dispatcher.find_op(FOO) is None


def test_a_forgotten_handle_releases() -> None:
    dispatcher = Dispatcher()
    handle: RegistrationHandle | None = dispatcher.register(define())
    there = weakref.ref(handle) if handle is not None else None
    assert dispatcher.find_op(FOO) is not None
    handle = None
    gc.collect()
    assert there is not None
    assert there() is None
    assert dispatcher.find_op(FOO) is None


def test_a_handle_in_a_cycle_is_released_by_the_collector() -> None:
    dispatcher = Dispatcher()
    gc.disable()
    try:
        cycle: list[object] = [dispatcher.register(define())]
        cycle.append(cycle)
        del cycle
        assert dispatcher.find_op(FOO) is not None
        gc.collect()
    finally:
        gc.enable()
    assert dispatcher.find_op(FOO) is None


def test_a_handle_says_what_it_holds() -> None:
    dispatcher = Dispatcher()
    handle = dispatcher.register(impl(K.CPU, "fn_cpu"))
    assert repr(handle) == "<RegistrationHandle of impl test::foo CPU (fn_cpu)>"
    handle.release()
    assert repr(handle) == "<RegistrationHandle released impl test::foo CPU (fn_cpu)>"


def test_all_handles_are_released_although_some_of_them_raise() -> None:
    done: list[int] = []

    def undo(index: int) -> None:
        done.append(index)
        if index in (1, 3) and len(done) <= 5:
            raise ValueError(index)

    handles = [RegistrationHandle(lambda index=index: undo(index), "") for index in range(5)]  # type: ignore[misc]
    with pytest.raises(ExceptionGroup) as caught:
        release_all(handles)
    assert done == [0, 1, 2, 3, 4]
    assert [error.args for error in caught.value.exceptions] == [(1,), (3,)]
    assert [handle.is_released for handle in handles] == [True, False, True, False, True]
    release_all(handles)
    assert done == [0, 1, 2, 3, 4, 1, 3]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("of", ["handle", "library"])
def test_what_owns_registrations_is_neither_copied_nor_pickled(copied: Callable[[object], object], of: str) -> None:
    dispatcher = Dispatcher()
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    handle = library.define("foo(int x) -> int")
    owner = handle if of == "handle" else library
    with pytest.raises(TypeError, match=f"cannot copy or pickle a {type(owner).__name__}: it owns its registrations"):
        copied(owner)
    with pytest.raises(TypeError):
        copy.deepcopy({"held": [owner]})
    assert library.handles == (handle,)
    assert dispatcher.find_schema("test::foo") is not None


@pytest.mark.parametrize("kind", [RegistrationHandle, Library])
def test_one_whose_making_was_interrupted_ends_in_silence(
    kind: type[RegistrationHandle] | type[Library], capsys: pytest.CaptureFixture[str]
) -> None:
    made = kind.__new__(kind)
    del made
    gc.collect()
    assert capsys.readouterr().err == ""
