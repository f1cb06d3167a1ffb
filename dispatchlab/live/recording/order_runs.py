"""Import modules in several orders, each order in a new process, and read the state afterwards.

A process that has imported PyTorch, and a package around all modules, forks for each order, because importing PyTorch
takes seconds, but importing a module often takes less than one second.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import Any, Final, NamedTuple

from dispatchlab.live.bridge.torch import (
    ImportEndedError,
    ImportFailedError,
    ImportTimeoutError,
    forget_import_listeners,
    torch,
)
from dispatchlab.live.introspection.module_variables import own_modules, public_variables, shared_modules
from dispatchlab.live.introspection.package_paths import modules_by_path, package_roots, without_roots
from dispatchlab.live.introspection.process_copies import ProcessCopy, Say, how_it_ended
from dispatchlab.live.introspection.python_registries import read_now
from dispatchlab.live.introspection.queries import look_at
from dispatchlab.live.introspection.registry_reader import all_dumps, record_registry
from dispatchlab.live.introspection.site_log import import_logged, log_of_imports
from dispatchlab.model.names import name_of
from dispatchlab.model.order_run import PROCESS, SUCCEEDS, Order, OrderRun
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.registries.model import RecordedFallback

_copies: Final[list[tuple[Connection, Iterator[Any]]]] = []


def run_orders(
    orders: Sequence[Order],
    limit_s: float,
    jobs: int,
    first: Sequence[str] = (),
    enough_s: float = math.inf,
) -> tuple[OrderRun, ...]:
    """Run some orders, each in a new process.

    Args:
        orders: the orders.
        limit_s: the time limit of one import, in seconds.
        jobs: how many orders run at once.
        first: the packages around all modules; they are imported once for all orders.
        enough_s: once the imports of two orders or more took this processor time, no other order begins.

    Returns:
        Their results; none if `first` starts threads, which a copy of the process does not have, or imports one of the
            modules.

    Raises:
        ImportFailedError: one of the packages in `first` cannot be imported.
    """
    torch()
    before, count = _before(), _threads()
    import_logged(first)
    if first and (_threads() > count or not sys.modules.keys().isdisjoint(orders[0])):
        return ()
    runs: list[OrderRun] = []
    for start in range(0, len(orders), jobs):
        if len(runs) > 1 and sum(run.seconds for run in runs) > enough_s:
            break
        some = orders[start : start + jobs]
        copies = [ProcessCopy(partial(_import, order, before)) for order in some]
        runs += [_run(order, copy, limit_s) for order, copy in zip(some, copies, strict=True)]
    return tuple(runs)


def _import_libraries(libraries: Sequence[str]) -> bool:
    """Import libraries; return whether they start threads, which a copy of this process does not have."""
    count = 0
    for names in ([name for name in libraries if name.startswith(("numpy", "scipy"))], libraries):
        count = _threads()  # the threads of OpenBLAS, which NumPy and SciPy start, outlive a fork
        for name in names:
            with suppress(Exception):
                import_module(name)
    return _threads() > count


def copy_for_orders() -> None:
    """Keep a copy of this process, which has not imported the packages yet, for `runs_in_copy`.

    Raises:
        NoForkError: this system cannot copy a process.
    """
    reader, writer = Pipe(duplex=False)
    _copies.append((writer, ProcessCopy(partial(_serve, reader, writer)).answers(lambda: 3600.0)))
    reader.close()


def prepare_copy(libraries: Sequence[str]) -> None:
    """Import libraries in the copy, if there is one, while this process goes on."""
    with suppress(OSError):
        for writer, _ in _copies:
            writer.send(libraries)


def runs_in_copy(apart: Collection[str], *arguments: Any) -> tuple[OrderRun, ...]:
    """Return what `run_orders` returns in the copy, which has imported libraries only; nothing if it cannot tell.

    Args:
        apart: the modules that no library may import.
        arguments: the arguments of `run_orders`.
    """
    with suppress(OSError, TimeoutError):
        for writer, answers in _copies:
            writer.send((apart, *arguments))
            return next(answers, ())
    return ()


def _serve(reader: Connection, writer: Connection, say: Say) -> None:
    """Import libraries and run orders until the other process ends."""
    writer.close()  # else the end of the other process would not be seen
    forget_import_listeners()
    fit, asked = True, False
    with suppress(EOFError):
        while True:
            request = reader.recv()
            if isinstance(request, list):
                fit &= not _import_libraries(request)
            else:
                fit &= asked or sys.modules.keys().isdisjoint(request[0])
                say(run_orders(*request[1:]) if fit else ())
                asked = True


def _threads() -> int:
    """Return the number of threads of this process; 0 if the system does not say."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 0


class _Before(NamedTuple):
    """The state before any import."""

    dumps: Mapping[str, str]
    fallbacks: frozenset[RecordedFallback]
    python: frozenset[PythonRegistration]


@cache
def _before() -> _Before:
    return _Before(all_dumps(), frozenset(record_registry(only=()).fallbacks), frozenset(read_now()))


def _run(order: Order, copy: ProcessCopy, limit_s: float) -> OrderRun:
    """Return the result of an order.

    Raises:
        ImportTimeoutError: an import takes too long.
    """
    module = ""
    try:
        for answer in copy.answers(lambda: limit_s):
            if isinstance(answer, OrderRun):
                return answer
            module = answer
    except TimeoutError:
        raise ImportTimeoutError(module, limit_s) from None
    ended = how_it_ended(copy.code)
    return _ended(order, module, f"is ended by {ended}" if copy.code < 0 else f"ends its process with {ended}")


def _ended(order: Order, module: str, how: str) -> OrderRun:
    return OrderRun(order, {PROCESS: f"{how}, in the import of {module}"}, how, module)


def _import(order: Order, before: _Before, say: Say) -> None:
    """Import modules in this process, and send its state; runs in the process of one order."""
    forget_import_listeners()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    found, began = {PROCESS: "goes on"}, process_time()
    for module in order:
        say(module)
        try:
            import_logged((module,))
            found[f"import of {module}"] = SUCCEEDS
        except ImportEndedError as ended:
            say(_ended(order, module, ended.reason))
            return
        except ImportFailedError as error:
            found[f"import of {module}"] = error.reason.strip().partition("\n")[0]
    seconds, roots = process_time() - began, package_roots()
    entries = [one for one in read_now() if one not in before.python]
    found.update(_operators(before))
    for one in record_registry(only=()).fallbacks:
        if one not in before.fallbacks:
            found[f"fallback of {one.key}"] = "fallthrough " * one.fallthrough + without_roots(one.debug, roots)
    for entry in entries:
        what = f"{entry.registry} of {entry.operator}{f' at {entry.key}' if entry.key else ''}"
        site = f" registered at {entry.site}" if entry.site else ""
        found[what] = f"{found.get(what, '')}{entry.function}{site}\n"
    modules = {**dict(shared_modules(order)), **dict(own_modules(order))}
    for name, imported in modules.items():
        found[f"module {name}"] = "imported"
        found.update((f"variable {name}.{variable}", text) for variable, text in public_variables(imported).items())
    files = {name: str(getattr(one, "__file__", None) or "") for name, one in modules.items()}
    log = log_of_imports()
    paths = modules_by_path(roots)
    registering = {paths.get(one.site.rpartition(":")[0], "") for one in entries}
    registering |= set() if log is None else log.modules
    say(OrderRun(order, found, registering=tuple(sorted(registering - {""})), files=files, seconds=seconds))


def _operators(before: _Before) -> Iterator[tuple[str, str]]:
    """Return the dump, the table and the stale slots of each operator whose dump changed."""
    after = all_dumps()
    names = [name_of(name) for name, dump in after.items() if before.dumps.get(name) != dump]
    for name, (snapshot, violations) in zip(names, look_at(names), strict=True):
        yield f"registrations of {name}", snapshot.dump
        yield f"table of {name}", snapshot.table
        said = {*snapshot.table.splitlines()}
        stale = [line for line in (snapshot.slots or "").splitlines() if line not in said]
        yield f"slots of {name}", "".join(f"{one}\n" for one in (*stale, *violations))
    for gone in before.dumps.keys() - after.keys():
        yield f"registrations of {gone}", "gone"
