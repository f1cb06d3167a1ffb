"""Run scenarios, one after the other or at once."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.processes import default_memory_bound, most_jobs
from dispatchlab.prover.limits import Progress
from dispatchlab.questions.order.run_scenario import Outcome, RunOptions, run_scenario
from dispatchlab.questions.sources.engines import kept_engines

if TYPE_CHECKING:
    from dispatchlab.processes import Processes

Finished: TypeAlias = tuple[str, Outcome | DispatchLabError]
"""A file, and its outcome or the reason why there is none."""

ProgressOf: TypeAlias = Callable[[str, Progress], None]
"""Is called about ten times a second with a file and how far its exploration has come."""

_BETWEEN_REPORTS_S = 0.1


def run_scenarios(
    files: Sequence[str],
    options: RunOptions,
    *,
    jobs: int = 1,
    progress: ProgressOf,
    finished: Callable[[str], None],
) -> Generator[Finished, None, None]:
    """Run scenarios, several at once, in other processes, when `jobs` is more than 1.

    Args:
        files: the scenarios.
        options: how to run each.
        jobs: how many at once.
        progress: see `ProgressOf`.
        finished: is called with a file as soon as its exploration has ended.

    Yields:
        Each file with its outcome; after Ctrl-C also what was under way.

    Raises:
        WorkerDied: a process ended.
        KeyboardInterrupt: after the last that was under way in other processes.
    """
    jobs = min(jobs, len(files), most_jobs())
    if options.max_memory is None:
        options = replace(options, max_memory=default_memory_bound(jobs))
    if jobs < 2:
        with kept_engines():
            for path in files:
                outcome = _run(path, options, partial(progress, path))
                finished(path)
                yield path, outcome
                if isinstance(outcome, Outcome) and outcome.interrupted:
                    return
        return
    from dispatchlab.processes import processes_for

    with processes_for(jobs) as executor:
        yield from _in_processes(executor, files, options, progress, finished)


def _in_processes(
    executor: Processes,
    files: Sequence[str],
    options: RunOptions,
    progress: ProgressOf,
    finished: Callable[[str], None],
) -> Generator[Finished, None, None]:
    """Run scenarios in processes; Ctrl-C interrupts what is under way, and the rest does not begin."""
    from concurrent.futures import wait

    futures = [executor.submit(_run_in_process, path, options) for path in files]
    interrupted = False
    for path, future in zip(files, futures, strict=True):
        while not future.done():
            try:
                wait((future,), timeout=_BETWEEN_REPORTS_S)
                for report in executor.reports():
                    progress(*report)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                for each in futures:
                    each.cancel()
                executor.interrupt()
        if not future.cancelled() and not isinstance(future.exception(), KeyboardInterrupt):
            finished(path)
            yield path, future.result()
    if interrupted:
        raise KeyboardInterrupt


def _run(path: str, options: RunOptions, progress: Callable[[Progress], None]) -> Outcome | DispatchLabError:
    try:
        return run_scenario(path, options, progress=progress)
    except DispatchLabError as error:
        return error


def _run_in_process(path: str, options: RunOptions) -> Outcome | DispatchLabError:
    from dispatchlab.processes import interruptible, report

    _keep_engines()
    with interruptible():
        return _run(path, options, lambda progress: report((path, progress)))


@cache
def _keep_engines() -> None:
    """Keep the live engine of this process for its next task."""
    engines = ExitStack()
    engines.enter_context(kept_engines())
    atexit.register(engines.close)
