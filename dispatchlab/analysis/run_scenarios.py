"""Run several scenarios, one after another or each in a process of its own, with outcomes in the order of the files."""

# Note [Ctrl-C in several processes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A terminal sends SIGINT to all of them, a script only to the first. The workers ignore it and look at an event
# instead, about ten times a second, so that each of them hands in what it has covered, exactly once, and no worker that
# waits for work dies with a traceback.

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dispatchlab.analysis.engines import kept_engines
from dispatchlab.analysis.run_scenario import Outcome, RunOptions, run_scenario
from dispatchlab.errors import DispatchLabError
from dispatchlab.explore.limits import Progress

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Event

Finished: TypeAlias = tuple[str, Outcome | DispatchLabError]
"""A file, and its outcome or the reason why there is none."""

ProgressOf: TypeAlias = Callable[[str, Progress], None]
"""Is called about ten times a second with a file and how far its exploration has come."""

_LOOK_EVERY_S = 0.1


class WorkerDied(DispatchLabError):
    """The process of a scenario died, as one that needs too much memory does."""

    exit_code = 5

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: the process that explored it died; bound it with --max-states, or use --jobs 1"


def run_scenarios(
    files: Sequence[str],
    options: RunOptions,
    *,
    jobs: int = 1,
    progress: ProgressOf,
    finished: Callable[[str], None],
) -> Generator[Finished, None, None]:
    """Run scenarios, several at once when `jobs` is more than 1.

    Args:
        files: the scenarios.
        options: how to run each.
        jobs: how many at once.
        progress: see `ProgressOf`.
        finished: is called with a file as soon as its exploration has ended.

    Yields:
        Each file with its outcome; after Ctrl-C only those that were done or under way.
    """
    if jobs > 1 and len(files) > 1:
        yield from _in_processes(files, options, jobs, progress, finished)
        return
    with kept_engines():
        for path in files:
            outcome: Outcome | DispatchLabError
            try:
                outcome = run_scenario(path, options, progress=partial(progress, path))
            except DispatchLabError as error:
                outcome = error
            finished(path)
            yield path, outcome
            if isinstance(outcome, Outcome) and outcome.interrupted:
                return


def _in_processes(
    files: Sequence[str], options: RunOptions, jobs: int, progress: ProgressOf, finished: Callable[[str], None]
) -> Generator[Finished, None, None]:
    from concurrent.futures import ProcessPoolExecutor, wait
    from multiprocessing import get_context

    context = get_context("spawn")
    stop, reports = context.Event(), context.SimpleQueue()
    with ProcessPoolExecutor(min(jobs, len(files)), context, _initialise, (stop, reports)) as pool:
        futures = [pool.submit(_run, path, options) for path in files]
        try:
            for path, future in zip(files, futures, strict=True):
                while not future.done():
                    try:
                        wait([future], timeout=_LOOK_EVERY_S)
                        newest = _drain(reports)
                        for other, one in zip(files, futures, strict=True):
                            if one.done():
                                finished(other)
                            elif other in newest:
                                progress(other, newest[other])
                    except KeyboardInterrupt:
                        stop.set()
                        for each in futures:
                            each.cancel()
                finished(path)
                if not future.cancelled():
                    yield path, _result(path, future, interrupted=stop.is_set())
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            while any(not future.done() for future in futures):
                wait(futures, timeout=_LOOK_EVERY_S)
                _drain(reports)


def _drain(reports: SimpleQueue[tuple[str, Progress]]) -> dict[str, Progress]:
    newest: dict[str, Progress] = {}
    while not reports.empty():
        path, progress = reports.get()
        newest[path] = progress
    return newest


def _result(path: str, future: Future[Outcome], *, interrupted: bool) -> Outcome | DispatchLabError:
    from concurrent.futures import BrokenExecutor, CancelledError

    try:
        outcome = future.result()
    except DispatchLabError as error:
        return error
    except (BrokenExecutor, CancelledError):
        return WorkerDied(path)
    return replace(outcome, interrupted=interrupted)


# -- in a worker

_stop: Event | None = None
_reports: SimpleQueue[tuple[str, Progress]] | None = None


def _initialise(stop: Event, reports: SimpleQueue[tuple[str, Progress]]) -> None:
    global _stop, _reports
    _stop, _reports = stop, reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    engines = ExitStack()
    engines.enter_context(kept_engines())
    atexit.register(engines.close)


def _run(path: str, options: RunOptions) -> Outcome:
    """Run in a worker. See Note [Ctrl-C in several processes]."""
    assert _stop is not None
    assert _reports is not None
    reports = _reports
    return run_scenario(path, options, progress=lambda progress: reports.put((path, progress)), cancelled=_stop.is_set)
