"""Import modules in some order, each order in a fresh process, and read what is there afterwards.

A process that has PyTorch and none of the packages forks a process for each order, since importing PyTorch takes
seconds, and importing a package often less than one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import (
    ImportEndedError,
    ImportFailedError,
    ImportTimeoutError,
    forget_import_listeners,
    torch,
)
from dispatchlab.live.introspection.module_variables import own_modules, public_variables
from dispatchlab.live.introspection.package_paths import modules_by_path, package_roots, without_root
from dispatchlab.live.introspection.python_registries import read_now
from dispatchlab.live.introspection.queries import look_at
from dispatchlab.live.introspection.registry_reader import all_dumps, record_registry
from dispatchlab.live.introspection.site_log import import_logged, log_of_imports
from dispatchlab.live.introspection.slot_memory import SlotView, entry_address, memory_layout
from dispatchlab.model.names import name_of
from dispatchlab.model.order_run import PROCESS, SUCCEEDS, Order, OrderRun
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.registries.model import RecordedFallback


def run_orders(orders: Sequence[Order], limit_s: float, jobs: int) -> tuple[OrderRun, ...]:
    """Run some orders, each in a process of its own.

    Args:
        orders: the orders.
        limit_s: the bound on the seconds of one import.
        jobs: how many orders run at once.
    """
    before = _before()
    runs: list[OrderRun] = []
    for start in range(0, len(orders), jobs):
        running = [_Running(order, before) for order in orders[start : start + jobs]]
        runs += [one.run(limit_s) for one in running]
    return tuple(runs)


class _Before(NamedTuple):
    """What there is before any import."""

    dumps: Mapping[str, str]
    fallbacks: frozenset[RecordedFallback]
    python: frozenset[PythonRegistration]


@cache
def _before() -> _Before:
    torch()
    return _Before(all_dumps(), frozenset(record_registry(only=()).fallbacks), frozenset(read_now()))


class _Running:
    """An order whose process was started."""

    def __init__(self, order: Order, before: _Before) -> None:
        self.order = order
        context: Any = multiprocessing.get_context("fork")
        self._answers, answered = context.Pipe(duplex=False)
        self._process = context.Process(target=_import, args=(order, before, answered))
        self._process.start()
        answered.close()

    def run(self, limit_s: float) -> OrderRun:
        """What came of it.

        Raises:
            ImportTimeoutError: an import takes longer.
        """
        module = ""
        try:
            while self._answers.poll(limit_s):
                answer = self._answers.recv()
                if isinstance(answer, OrderRun):
                    return answer
                module = answer
            raise ImportTimeoutError(module, limit_s)
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            how = f"is ended by {signal.Signals(-code).name}" if code < 0 else f"ends its process with exit code {code}"
            return _ended(self.order, module, how)
        finally:
            self._process.kill()
            self._process.join()
            self._answers.close()


def _ended(order: Order, module: str, how: str) -> OrderRun:
    return OrderRun(order, {PROCESS: f"{how}, in the import of {module}"}, how, module)


def _import(order: Order, before: _Before, answers: Connection) -> None:
    """Import modules in this very process, and send what is there; runs in the process of an order."""
    forget_import_listeners()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    found = {PROCESS: "goes on"}
    for module in order:
        answers.send(module)
        try:
            import_logged((module,))
            found[f"import of {module}"] = SUCCEEDS
        except ImportEndedError as ended:
            answers.send(_ended(order, module, ended.reason))
            return
        except ImportFailedError as error:
            found[f"import of {module}"] = error.reason.strip().partition("\n")[0]
    roots = package_roots()
    entries = [one for one in read_now() if one not in before.python]
    found.update(_operators(before))
    for one in record_registry(only=()).fallbacks:
        if one not in before.fallbacks:
            found[f"fallback of {one.key}"] = "fallthrough " * one.fallthrough + without_root(one.debug, roots)
    for entry in entries:
        what = f"{entry.registry} of {entry.operator}{f' at {entry.key}' if entry.key else ''}"
        site = f" registered at {entry.site}" if entry.site else ""
        found[what] = f"{found.get(what, '')}{entry.function}{site}\n"
    modules = dict(own_modules(order))
    for name, imported in modules.items():
        found[f"module {name}"] = "imported"
        found.update((f"variable {name}.{variable}", text) for variable, text in public_variables(imported).items())
    files = {name: str(getattr(one, "__file__", None) or "") for name, one in modules.items()}
    log = log_of_imports()
    paths = modules_by_path(roots)
    registering = {paths.get(one.site.rpartition(":")[0], "") for one in entries}
    registering |= set() if log is None else log.modules
    answers.send(OrderRun(order, found, registering=tuple(sorted(registering - {""})), files=files))


def _operators(before: _Before) -> Iterator[tuple[str, str]]:
    """The dump, the table and the slots of each operator whose dump is not what it was."""
    after = all_dumps()
    names = [name_of(name) for name, dump in after.items() if before.dumps.get(name) != dump]
    for name, (snapshot, violations) in zip(names, look_at(names), strict=True):
        yield f"registrations of {name}", snapshot.dump
        yield f"table of {name}", snapshot.table
        yield f"slots of {name}", _slots(name.qualified, name.overload) + "".join(f"{one}\n" for one in violations)
    for gone in before.dumps.keys() - after.keys():
        yield f"registrations of {gone}", "gone"


def _slots(name: str, overload: str) -> str:
    """Which slots hold the same kernel: a number for each, by the first slot that holds it; empty where unreadable."""
    layout = memory_layout()
    address = None if layout is None else entry_address(layout, name, overload)
    if layout is None or address is None:
        return ""
    numbers: dict[int, int] = {0: 0}
    held = SlotView(layout, address).fingerprints().tolist()
    rows = zip(running_keys().runtime, (numbers.setdefault(one, len(numbers)) for one in held), strict=True)
    return "".join(f"{key}: kernel {number}\n" for key, number in rows if number)
