"""Import packages in other orders, each in a process that is forked from this one before anything was imported."""

from __future__ import annotations

import abc
import atexit
import codecs
import io
import os
import pickle
import random
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import invalidate_caches
from types import FrameType
from typing import Any, Final

from dispatchlab.pytorch.bridge.torch import (
    ImportEndedError,
    ImportFailedError,
    bindings,
    forget_import_listeners,
    import_package,
)
from dispatchlab.pytorch.introspection.registry_reader import DumpsBefore
from dispatchlab.pytorch.recording.end_state import EndState, StateBefore
from dispatchlab.pytorch.recording.outside_writes import OutsideWrites
from dispatchlab.pytorch.recording.watch import RegistrationWatch
from dispatchlab.pytorch.recording.wrapped_functions import WrappedFunctions
from dispatchlab.scenario.import_orders import Order

# Note [Processes for orders]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Importing PyTorch takes seconds, and importing a package often less than one. So a process that has PyTorch and none
# of the packages forks a server, and the server forks a process for each order. The server does nothing but fork, so it
# is the same for each of them. What they write goes nowhere. All of them are in the process group of the worker, which
# is killed with whoever started it.

AGAIN: Final = ""
"""Stands in an order between modules: those that were imported so far are purged then."""

_READ: Final = 2**16
_LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class OrderRun:
    """One order, run.

    Args:
        order: the order.
        state: what it left behind; None when its process ended over it.
        ended: how its process ended, after `it`; empty when it did not.
        module: the module that was imported when it ended.
        loaded: the modules that others of them had loaded before their turn came.
        is_late: it was ended since it took too long.
    """

    order: Order
    state: EndState | None
    ended: str = ""
    module: str = ""
    loaded: tuple[str, ...] = ()
    is_late: bool = False


class OrderServer:
    """Runs orders of imports in processes of their own, from the inside of a `with` block on.

    Args:
        limit_s: the bound on the seconds of one import; an order has that of all its imports.
        jobs: how many orders run at once.
        dumps: what dumps show before; read when left out.

    >>> with OrderServer(limit_s=300, jobs=2) as server:
    ...     runs = server.run([("a", "b"), ("b", "a")])
    """

    def __init__(self, *, limit_s: float, jobs: int, dumps: DumpsBefore | None = None) -> None:
        self._limit_s, self._jobs, self._dumps = limit_s, jobs, dumps
        self._pid = 0

    def __enter__(self) -> OrderServer:
        asked, self._requests = os.pipe()
        self._answers, answered = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            try:
                _leave_behind()
                os.close(self._requests)
                os.close(self._answers)
                self._serve(asked, answered)
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answered)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._requests)
        os.close(self._answers)
        with suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self._pid, 0)

    def run(self, orders: Sequence[Order]) -> list[OrderRun]:
        """Run some orders.

        Returns:
            A run for each order, in the order of `orders`.
        """
        if not orders:
            return []
        _write(self._requests, pickle.dumps(tuple(orders)))
        content = _read_all(self._answers)
        if content is None:
            return [OrderRun(order, None, "ended the server of orders") for order in orders]
        runs: list[OrderRun] = pickle.loads(content)  # our own process wrote it
        return runs

    def _serve(self, requests: int, answers: int) -> None:
        while (content := _read_all(requests)) is not None:
            orders: tuple[Order, ...] = pickle.loads(content)
            found = dict(self._each(orders, state_before(self._dumps)))
            _write(answers, pickle.dumps([found[order] for order in orders]))

    def _each(self, orders: Iterable[Order], base: StateBefore) -> Iterator[tuple[Order, OrderRun]]:
        waiting, running = list(reversed(tuple(dict.fromkeys(orders)))), dict[int, _Running]()
        while waiting or running:
            while waiting and len(running) < self._jobs:
                one = self._forked(waiting.pop(), base)
                running[one.pipe] = one
            now = time.monotonic()
            left = max(0.0, min(one.deadline for one in running.values()) - now)
            ready, _, _ = select.select(list(running), [], [], min(left, _LOOK_EVERY_S))
            ended = [] if ready else [pipe for pipe, one in running.items() if one.has_ended]
            for pipe in ready:
                part = os.read(pipe, _READ)
                running[pipe].content.append(part)
                ended += [] if part else [pipe]
            for pipe in ended:
                one = running.pop(pipe)
                yield one.order, one.run()
            for one in [one for one in running.values() if one.deadline <= time.monotonic()]:
                del running[one.pipe]
                os.kill(one.pid, signal.SIGKILL)
                late = f"takes longer than {self._limit_of(one.order):g} s"
                yield one.order, OrderRun(one.order, None, late, one.run().module, is_late=True)

    def _limit_of(self, order: Order) -> float:
        return self._limit_s * len(order)

    def _forked(self, order: Order, base: StateBefore) -> _Running:
        inward, outward = os.pipe()
        pid = os.fork()
        if pid:
            os.close(outward)
            return _Running(order, pid, inward, time.monotonic() + self._limit_of(order), [])
        try:
            os.close(inward)
            with os.fdopen(outward, "wb", buffering=0) as file:
                run = imported(order, base, lambda module: file.write(pickle.dumps(module)))
                with io.BufferedWriter(file) as whole:
                    whole.write(pickle.dumps(run))
        finally:
            os._exit(0)


@cache
def state_before(dumps: DumpsBefore | None = None) -> StateBefore:
    """What there is before any import, read once: it costs half a second, and often there is but one order."""
    return StateBefore(dumps or DumpsBefore())


@dataclass(frozen=True, slots=True)
class _Running:
    """An order whose process has not ended."""

    order: Order
    pid: int
    pipe: int
    deadline: float
    content: list[bytes]

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, though one that it started may still hold the pipe."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def run(self) -> OrderRun:
        """What came of it, once its pipe has ended or it was killed."""
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        content, module = io.BytesIO(b"".join(self.content)), ""
        with suppress(EOFError, pickle.UnpicklingError):
            while not isinstance(sent := pickle.load(content), OrderRun):
                module = sent
            if os.WIFEXITED(status):
                return sent
        ended = f"ends its process with exit code {os.waitstatus_to_exitcode(status)}"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            ended = f"is ended by {name}"
        return OrderRun(self.order, None, ended, module)


def imported(order: Order, base: StateBefore, begins: Callable[[str], object]) -> OrderRun:
    """Import modules in this order in this very process, and look.

    Args:
        order: the modules.
        base: what there was before.
        begins: called with each of them before it is imported.
    """
    failures: dict[str, str] = {}
    early: dict[str, None] = {}
    random.seed(0)  # which a fork makes new
    outside = OutsideWrites(order)
    wrapped = WrappedFunctions()
    wrapped.wrap(random.Random, "seed", _seeded)
    wrapped.wrap(os, "urandom", partial(_drawn, Counter()))
    wrapped.wrap(abc.ABCMeta, "register", base.virtual)
    wrapped.wrap(codecs, "register", partial(base.hidden, "search of codecs"))
    wrapped.wrap(atexit, "register", base.ends)
    wrapped.wrap(codecs, "register_error", partial(base.hidden, "codecs of errors"))
    for owner, name in _LISTS_OF_C:
        if owner in sys.modules:
            wrapped.wrap(sys.modules[owner], name, partial(base.hidden, f"{owner}.{name}"))
    if hasattr(sys, "monitoring"):  # from Python 3.12 on
        wrapped.wrap(vars(sys)["monitoring"], "register_callback", partial(base.hidden, "callback of sys.monitoring"))
    wrapped.wrap(bindings(), "_dispatch_get_computed_kernel_for_dispatch_key", base.fetched)
    try:
        with RegistrationWatch() as watch:
            for module in order:
                if module == AGAIN:
                    _purge(order)
                    continue
                early |= {module: None} if module in sys.modules else {}
                begins(module)
                try:
                    import_package(module)
                except ImportEndedError as ended:
                    return OrderRun(order, None, ended.reason, module)
                except ImportFailedError as error:
                    failures[module] = error.reason.strip().partition("\n")[0]
    finally:
        wrapped.put_back()
    return OrderRun(order, base.end_state(failures, watch, outside, order), loaded=tuple(early))


def _drawn(counts: Counter[str], original: Callable[..., bytes], size: int) -> bytes:  # is not called
    """Stands in for `os.urandom`: each line draws the same in every order, such as the identifier of a module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(_DRAWING):
        frame = frame.f_back
    line = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    counts[line] += 1
    return random.Random(f"{line} {counts[line]}").randbytes(size)


_LISTS_OF_C: Final = (
    *(("sys", "addaudithook"), ("os", "register_at_fork"), ("torch._C", "_stash_obj_in_tls")),
    *(("torch.monitor", "register_event_handler"), ("torch._C._monitor", "register_event_handler")),
)
"""Functions that put another one into a list, or an object into a table, that Python does not show."""
_DRAWING: Final = ("uuid.py", "wrapped_functions.py")


def _seeded(original: Callable[..., None], generator: random.Random, seed: object = None, *more: Any) -> None:
    """Stands in for `seed`, which a generator calls that nobody seeds: what it draws is not of the order."""
    original(generator, 0 if seed is None else seed, *more)


def _purge(order: Order) -> None:
    """Forget packages; what they have imported from elsewhere stays, PyTorch first of all."""
    for name in list(sys.modules):
        if any(name == package or name.startswith(f"{package}.") for package in order if package):
            del sys.modules[name]
    invalidate_caches()


def _leave_behind() -> None:
    """Leave what belongs to the process that forked this one: its messages, signals, output and last wishes."""
    forget_import_listeners()
    atexit._clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.stdout, sys.stderr = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w")


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(len(content).to_bytes(8, "little") + content)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_all(descriptor: int) -> bytes | None:
    """One message; None when the other side has gone."""

    def read(size: int) -> bytes | None:
        parts: list[bytes] = []
        while size:
            part = os.read(descriptor, min(size, _READ))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    size = read(8)
    return None if size is None else read(int.from_bytes(size, "little"))
