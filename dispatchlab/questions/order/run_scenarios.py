"""Run scenarios, one after the other or at once."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.processes import default_memory_bound, most_jobs
from dispatchlab.prover.limits import Progress
from dispatchlab.questions.order.run_scenario import Outcome, RunOptions, run_scenario
from dispatchlab.questions.sources.engines import kept_engines
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario

Finished: TypeAlias = tuple[str, Outcome | DispatchLabError]
"""A file, and its outcome or the reason why there is none."""

ProgressOf: TypeAlias = Callable[[str, Progress], None]
"""Is called about ten times a second with a file and how far its exploration has come."""


class _Task(NamedTuple):
    """A scenario to run: its file, or what was read from it here; or why that cannot be read."""

    source: str | Scenario | DispatchLabError
    options: RunOptions


def run_scenarios(
    files: Sequence[str],
    options: RunOptions,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    progress: ProgressOf,
    finished: Callable[[str], None],
) -> Generator[Finished, None, None]:
    """Run scenarios, several at once, in other processes, when `jobs` is more than 1.

    Args:
        files: the scenarios.
        options: how to run each.
        jobs: how many at once.
        cluster: the address of a scheduler, on whose cluster they run in place of this machine.
        progress: see `ProgressOf`; scenarios that run in other processes report none.
        finished: is called with a file as soon as its exploration has ended.

    Yields:
        Each file with its outcome; after Ctrl-C also that which was under way in this process.

    Raises:
        ClusterError: there is no such cluster, or it is lost.
        WorkerDied: a process of this machine ended.
    """
    jobs = min(jobs, len(files), most_jobs())
    if options.max_memory is None and cluster is None:
        options = replace(options, max_memory=default_memory_bound(jobs))
    if jobs < 2 and cluster is None:
        with kept_engines():
            for path in files:
                outcome = _run(_Task(path, options), partial(progress, path))
                finished(path)
                yield path, outcome
                if isinstance(outcome, Outcome) and outcome.interrupted:
                    return
        return
    from dispatchlab.processes import executor_for

    sources = files if cluster is None else [_read(path, options) for path in files]
    with executor_for(jobs, cluster) as executor:
        tasks = [_Task(source, options) for source in sources]
        for path, outcome in zip(files, executor.map(_run if cluster else _run_in_process, tasks), strict=True):
            finished(path)
            yield path, outcome


def _read(path: str, options: RunOptions) -> Scenario | DispatchLabError:
    try:
        return load_scenario(path, allow_import=options.allow_import)
    except DispatchLabError as error:
        return error


def _run(task: _Task, progress: Callable[[Progress], None] | None = None) -> Outcome | DispatchLabError:
    if isinstance(task.source, DispatchLabError):
        return task.source
    try:
        return run_scenario(task.source, task.options, progress=progress)
    except DispatchLabError as error:
        return error


def _run_in_process(task: _Task) -> Outcome | DispatchLabError:
    _keep_engines()
    return _run(task)


@cache
def _keep_engines() -> None:
    """Keep the live engine of this process for its next task."""
    engines = ExitStack()
    engines.enter_context(kept_engines())
    atexit.register(engines.close)
