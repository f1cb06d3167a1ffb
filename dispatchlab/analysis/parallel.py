"""Run several scenarios at once, each in a process of its own, with reports in the order of the files."""

# Note [Ctrl-C in several processes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A terminal sends SIGINT to all of them, a script only to the first. The workers ignore it and look at an event
# instead, about ten times a second, so that each of them hands in what it has covered, exactly once, and no worker that
# waits for work dies with a traceback.

from __future__ import annotations

import atexit
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event

from dispatchlab.analysis.engines import kept_engines
from dispatchlab.analysis.run_scenario import Asked, Outcome, examine
from dispatchlab.errors import DispatchLabError
from dispatchlab.explore.limits import Progress
from dispatchlab.render.progress import Display

_LOOK_EVERY_S = 0.1


class WorkerDied(DispatchLabError):
    """The process of a scenario died, as one that needs too much memory does."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: the process that explored it died; bound it with --max-states, or use --jobs 1"


def in_parallel(
    files: Sequence[str], asked: Asked, jobs: int, display: Display
) -> Iterator[tuple[str, Outcome | DispatchLabError]]:
    """Examine scenarios in `jobs` processes.

    Args:
        files: the scenarios.
        asked: what is asked about each.
        jobs: how many at once.
        display: shows how far they have come.

    Returns:
        Each file with what became of it; after Ctrl-C only those that were done or under way.
    """
    context = get_context("spawn")
    stop, told = context.Event(), context.SimpleQueue()
    with ProcessPoolExecutor(min(jobs, len(files)), context, _initialise, (stop, told)) as pool:
        futures = [pool.submit(_examine, path, asked) for path in files]
        try:
            for path, future in zip(files, futures, strict=True):
                while not future.done():
                    try:
                        wait([future], timeout=_LOOK_EVERY_S)
                        _show(told, display, files, futures)
                    except KeyboardInterrupt:
                        stop.set()
                        for each in futures:
                            each.cancel()
                if not future.cancelled():
                    yield path, _result(path, future, interrupted=stop.is_set())
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            while any(not future.done() for future in futures):
                wait(futures, timeout=_LOOK_EVERY_S)
                _drain(told)


def _show(
    told: SimpleQueue[tuple[str, Progress]], display: Display, files: Sequence[str], futures: Sequence[Future[Outcome]]
) -> None:
    newest = _drain(told)
    for path, future in zip(files, futures, strict=True):
        if future.done():
            display.finish(path)
        elif path in newest:
            display.update(path, newest[path])


def _drain(told: SimpleQueue[tuple[str, Progress]]) -> dict[str, Progress]:
    newest: dict[str, Progress] = {}
    while not told.empty():
        path, progress = told.get()
        newest[path] = progress
    return newest


def _result(path: str, future: Future[Outcome], *, interrupted: bool) -> Outcome | DispatchLabError:
    try:
        outcome = future.result()
    except DispatchLabError as error:
        return error
    except (BrokenExecutor, CancelledError):
        return WorkerDied(path)
    return replace(outcome, interrupted=interrupted)


_stop: Event | None = None
_told: SimpleQueue[tuple[str, Progress]] | None = None


def _initialise(stop: Event, told: SimpleQueue[tuple[str, Progress]]) -> None:
    global _stop, _told
    _stop, _told = stop, told
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    engines = ExitStack()
    engines.enter_context(kept_engines())
    atexit.register(engines.close)


def _examine(path: str, asked: Asked) -> Outcome:
    """Run in a worker. See Note [Ctrl-C in several processes]."""
    assert _stop is not None
    assert _told is not None
    told = _told
    return examine(path, asked, progress=lambda progress: told.put((path, progress)), cancelled=_stop.is_set)
