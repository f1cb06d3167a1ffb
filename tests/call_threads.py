"""Threads that call, register and release all at once, for the short test and for the long one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    ErrorKind,
    Library,
    operator,
    tensor,
)

THREADS = 8
KEYS = ("CPU", "CUDA", "XLA", "MPS", "XPU", "HPU", "MTIA", "Meta")
NAMES = ("one", "two")
X = tensor([1.0])


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work(0)`, ... each in its thread, all at once; the first error is raised here."""

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def churn(*, rounds: int) -> list[int]:
    """Each thread registers kernels at a key of its own, calls them, releases them and calls again.

    What a thread calls must be its newest kernel, and nothing after the release, whatever the others do meanwhile.

    Returns:
        How many kernels ran for each thread: four a round.
    """
    dispatcher = Dispatcher()
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    for name in NAMES:
        library.define(f"{name}(Tensor x) -> int")
    calls = [operator(dispatcher, f"test::{name}") for name in NAMES]
    before = [dispatcher.dump_table(f"test::{name}") for name in NAMES]
    key_sets = [DispatchKeySet.of(DispatchKey[key]) for key in KEYS]
    tensors = [tensor([1.0], device=key.lower()) for key in KEYS]
    live: list[set[int]] = [set() for _ in KEYS]
    ran = [0] * THREADS

    def kernel(number: int, stamp: int) -> Callable[[Any], int]:
        def run(x: Any) -> int:
            assert stamp in live[number]
            ran[number] += 1
            return stamp

        return run

    def work(number: int) -> None:
        own = Library("test", "IMPL", KEYS[number], dispatcher=dispatcher)
        for stamp in range(rounds):
            live[number].add(stamp)
            handles = [own.impl(name, kernel(number, stamp)) for name in NAMES]
            for call in calls:
                assert call.redispatch(key_sets[number], tensors[number]) == stamp
                assert call(tensors[number]) == stamp
            for handle in handles:
                handle.release()
            live[number].discard(stamp)
            for call in calls:
                with pytest.raises(CallError) as caught:
                    call(tensors[number])
                assert (caught.value.kind, caught.value.facts["key"]) == (ErrorKind.MISSING_KERNEL, KEYS[number])

    in_threads(work)
    assert [dispatcher.dump_table(f"test::{name}") for name in NAMES] == before
    dispatcher.check_invariants()
    return ran
