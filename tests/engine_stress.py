"""Threads, signals, forks and many pairs on one dispatcher and one library: each run says how much it did."""

from __future__ import annotations

import copy
import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from types import FrameType

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.kernel import unboxed
from dispatchlab.engine.library import Library
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.registration import Claim

KEYS = ("CPU", "CUDA", "Meta", "AutogradCPU", "Tracer")


def kernel(x: int) -> int:
    """A kernel with a schema of its own."""
    return x


def in_force(dispatcher: Dispatcher) -> dict[object, object]:
    """The whole state, as it is now."""
    return dict(dispatcher.state.items())


# -- threads


def many_threads(semantics: str, operations: int, *, threads: int = 16) -> int:
    """Register and release in threads that share one library and one dispatcher; whatever is lost fails an assertion.

    Returns:
        How many operations were made.
    """
    dispatcher = Dispatcher.for_scenario(semantics)
    before = in_force(dispatcher)
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    kept: list[list[tuple[str, RegistrationHandle]]] = [[] for _ in range(threads)]
    done = [0] * threads
    errors: list[BaseException] = []

    def job(number: int) -> None:
        chance = random.Random(number)
        mine = kept[number]
        try:
            while done[number] < operations // threads:
                turn = done[number]
                match chance.randrange(6):
                    case 0:  # a def and its kernel, which are two registrations where semantics are not atomic
                        name = f"op{number}_{turn}"
                        mine.append((name, library.define(f"{name}(int x) -> int", unboxed(kernel))))
                        done[number] += 1
                    case 1:
                        mine.append(("shared", library.impl("shared", kernel, "CPU", debug=f"{number}.{turn}")))
                    case 2:
                        name = f"own{number}"
                        mine.append((name, library.impl(name, kernel, chance.choice(KEYS), debug=str(turn))))
                    case 3 if mine:
                        mine.pop(chance.randrange(len(mine)))[1].release()
                    case 4:
                        library.impl(f"gone{number}", kernel, "CPU").release()
                        done[number] += 1
                    case _:
                        assert len(library.handles) >= 0
                        dispatcher.find_schema(f"test::op{number}_{turn - 1}")
                        while len(mine) > 40:
                            mine.pop(0)[1].release()
                            done[number] += 1
                done[number] += 1
        except BaseException as error:
            errors.append(error)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverrideWarning)
            running = [threading.Thread(target=job, args=(number,)) for number in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
    finally:
        sys.setswitchinterval(switching)
    if errors:
        raise errors[0]
    everything = [pair for mine in kept for pair in mine]
    assert set(library.handles) == {handle for _, handle in everything}
    names = {f"test::{name}" for name, _ in everything}
    assert set(map(str, dispatcher.operators())) == names
    shared = sum(name == "shared" for name, _ in everything)
    assert dispatcher.def_and_impl_count("test::shared") == shared
    dispatcher.check_invariants()
    library.release()
    assert library.handles == ()
    assert all(handle.is_released for _, handle in everything)
    assert in_force(dispatcher) == before
    return sum(done)


# -- signals


class Alarm(Exception):
    """One of the errors that the handler raises."""


_ERRORS: tuple[Callable[[], BaseException], ...] = (
    Alarm,
    KeyboardInterrupt,
    SystemExit,
    MemoryError,
    OSError,
    ValueError,
    KeyError,
    AttributeError,
    StopIteration,
    lambda: RegistrationError(ErrorKind.OTHER, "of a handler", {}),
)
"""What the handler raises; now and then it registers, and raises the refusal that it gets."""
_CLAIM = Claim("of_a_handler", "")
_TYPES = (*_ERRORS[:-1], RegistrationError, RuntimeError)  # which a StopIteration in a generator becomes


def many_interrupts(semantics: str, interrupts: int, *, seed: int = 0) -> int:
    """Raise from a signal handler at random moments of registering, releasing and forgetting.

    Returns:
        How many signals came while something was under way; whatever nobody can release fails an assertion.
    """
    chance = random.Random(seed)
    dispatcher = Dispatcher.for_scenario(semantics)
    before = in_force(dispatcher)
    numbers = count()
    met = 0
    with _alarms(dispatcher, chance) as arrived, warnings.catch_warnings():
        warnings.simplefilter("ignore", OverrideWarning)
        while met < interrupts:
            library = Library("test", "FRAGMENT", dispatcher=dispatcher)
            handles: list[RegistrationHandle] = []
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-5, 6e-4))
                _register_until(met, arrived, chance, library, handles, numbers)
            except BaseException as error:
                if not arrived or type(error) not in _TYPES:
                    raise
            met = len(arrived)
            for handle in handles:
                handle.release()
            library.release()
            handles.clear()
            if met % 100 == 0:
                gc.collect()  # what the interrupted code left in a cycle
            dispatcher.add_listener(_Silent()).release()  # runs what is queued
            if in_force(dispatcher) != before:
                gc.collect()
                dispatcher.add_listener(_Silent()).release()
            assert in_force(dispatcher) == before, dispatcher.operators()
            assert library.handles == (), library.handles
    return met


class _Silent:
    def on_operator_registered(self, name: object, schema: object, /) -> None:
        """Nothing."""

    def on_operator_deregistered(self, name: object, schema: object, /) -> None:
        """Nothing."""


def _register_until(
    count_before: int,
    arrived: list[int],
    chance: random.Random,
    library: Library,
    handles: list[RegistrationHandle],
    numbers: Iterator[int],
) -> None:
    """Go on until the alarm has arrived: where the handler raises in a finalizer, nobody hears of it.

    A function of its own, so that what the handler raises at the jump of the loop is caught: see Note [Interrupts].
    """
    while len(arrived) == count_before:
        _one(chance, library, handles, next(numbers))


def _one(chance: random.Random, library: Library, handles: list[RegistrationHandle], number: int) -> None:
    match chance.randrange(10):
        case 0:
            library.define(f"op{number}(int x) -> int", unboxed(kernel))
        case 1:
            handles.append(library.define(f"op{number}(int x) -> int"))
        case 2:
            handles.append(library.impl("shared", kernel, chance.choice(KEYS)))
        case 3 if handles:
            handles[chance.randrange(len(handles))].release()
        case 4:
            with library.impl("shared", kernel, "CPU"):
                pass
        case 5:
            forgotten = Library("other", "FRAGMENT", dispatcher=library._dispatcher)
            forgotten.impl("test_of_forgetting", kernel, "CPU")
            del forgotten
        case 6:
            with Library("_", "IMPL", "Meta", dispatcher=library._dispatcher) as fallbacks, suppress(RegistrationError):
                fallbacks.fallback(kernel)
        case 7:
            with Library("another", "DEF", dispatcher=library._dispatcher) as block, suppress(RegistrationError):
                block.define(f"op{number}(int x) -> int")
                block.impl(f"op{number}", kernel, "CPU")
        case 8:
            for owner in (library, *handles[:1]):
                with suppress(TypeError):  # it is refused
                    copy.copy(owner)
                with suppress(TypeError):
                    copy.deepcopy(owner)
        case _:
            with suppress(RegistrationError):
                library.define(f"refused{number}(int x) -> str", unboxed(kernel)).release()
            if len(handles) > 20:
                library.release()
                handles.clear()


@contextmanager
def _alarms(dispatcher: Dispatcher, chance: random.Random) -> Iterator[list[int]]:
    arrived: list[int] = []

    def alarm(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        if not chance.randrange(4):
            dispatcher.register(_CLAIM)
        raise chance.choice(_ERRORS)()

    old = signal.signal(signal.SIGALRM, alarm)
    hooks = sys.excepthook, sys.unraisablehook
    sys.excepthook, sys.unraisablehook = (lambda *_: None), (lambda _: None)  # alarms in finalizers
    try:
        yield arrived
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        sys.excepthook, sys.unraisablehook = hooks


# -- forks


def many_forks(forks: int) -> int:
    """Fork while other threads register; each child registers and releases on everything that it inherited.

    Returns:
        How many children did not come to their end within ten seconds, or ended badly.
    """
    warnings.simplefilter("ignore")  # newer Pythons warn of a fork with threads, which is what this is about
    dispatcher = Dispatcher()
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    stop = threading.Event()

    def job(number: int) -> None:
        while not stop.is_set():
            library.define(f"op{number}(int x) -> int", unboxed(kernel)).release()
            dispatcher.add_listener(_Silent()).release()

    threads = [threading.Thread(target=job, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    bad = 0
    try:
        for _ in range(forks):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                library.define("of_the_child(int x) -> int", unboxed(kernel)).release()
                library.release()
                dispatcher.check_invariants()
                os._exit(len(dispatcher.operators()) and 3)
            bad += os.waitpid(child, 0)[1] != 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return bad


# -- memory


def growth_of_many_pairs(pairs: int) -> int:
    """Register and release on one library; how many bytes the process grows once ten thousand pairs are gone."""
    library = Library("test", "FRAGMENT", dispatcher=Dispatcher())
    library.define("foo(int x) -> int")
    start = 0
    for number in range(10_000 + pairs):
        library.impl("foo", unboxed(kernel), "CPU").release()
        library.define("op(int x) -> int", kernel).release()
        if number == 10_000:
            gc.collect()
            start = _resident()
    gc.collect()
    return _resident() - start


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
