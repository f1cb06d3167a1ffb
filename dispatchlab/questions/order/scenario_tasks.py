"""Scenarios as tasks: each in a process of its own, on this machine or a cluster, or one in shares."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, lru_cache, partial
from time import perf_counter

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.bounded_read import given_files, is_there, read_file
from dispatchlab.files.file_kinds import FileKind
from dispatchlab.processes.executor import (
    ClusterError,
    TaskDied,
    TaskExecutor,
    TaskFuture,
    TaskStopped,
    completed,
    wait_for,
)
from dispatchlab.processes.machine import default_memory_bound, most_jobs
from dispatchlab.processes.task_process import is_stopped, report
from dispatchlab.prover.explore import TakenShare, take_share
from dispatchlab.prover.limits import Progress
from dispatchlab.prover.protocol import Forkable
from dispatchlab.prover.random_walk import Share
from dispatchlab.questions.order.run_scenario import Asked, Finished, Outcome, ProgressOf, RunOptions, run_scenario
from dispatchlab.scenario.load import MAX_BYTES, load_scenario, read_bytes
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.sources.engines import engine_for, kept_engines
from dispatchlab.sources.executors import executor_for

_LOOK_EVERY_S = 0.1


class WorkerDied(DispatchLabError):
    """The process of a scenario died, as one that needs too much memory does.

    Args:
        path: the scenario.
        how: `signal SIGKILL` or `exit code 1`.
    """

    exit_code = 5

    path: str
    how: str

    template = (
        "{path}: the process that explored it ended with {how}, as one does that imports a module that "
        "exits, or that runs out of memory"
    )


def with_shares(
    path: str,
    options: RunOptions,
    jobs: int,
    cluster: str | None,
    progress: ProgressOf,
    finished: Callable[[str], None],
) -> Iterator[Finished]:
    """Run one scenario, whose random walks are taken in shares."""
    outcome: Outcome | DispatchLabError
    try:
        task = _with_files(Asked(path, options))
        with executor_for(jobs, cluster) as executor:

            def shares(given: Iterator[Share], tick: Callable[[], None]) -> Iterator[TakenShare]:
                taken: dict[int, TakenShare] = {}
                following = 0
                tasks = ((task, share) for share in given)
                for number, _, future in completed(executor, _take_share, tasks, tick=tick):
                    taken[number] = future.result()
                    while following in taken:
                        yield taken.pop(following)
                        following += 1

            outcome = run_scenario(path, options, progress=partial(progress, path), shares=shares)
            executor.shutdown(wait=False)  # what is left after a counterexample, a bound or Ctrl-C is of no use
    except ClusterError:
        raise
    except TaskDied as died:
        outcome = WorkerDied(path, died.how)
    except DispatchLabError as error:
        outcome = error
    finished(path)
    yield path, outcome


@lru_cache(maxsize=1)
def _subject(task: Asked) -> tuple[Scenario, Forkable]:
    """The scenario and the engine of shares; a worker makes them once."""
    with given_files(dict(task.files)):
        scenario = load_scenario(task.path, allow_import=task.options.allow_import)
        with engine_for("lab", asked=task.options.semantics, in_file=scenario.semantics) as engine:
            assert isinstance(engine, Forkable)
            return scenario, engine


def _take_share(task: tuple[Asked, Share]) -> TakenShare:
    asked, share = task
    scenario, engine = _subject(asked)
    options = _with_memory_bound(asked.options).walk_options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        about = scenario.registrations, scenario.operators
        return take_share(engine, *about, share, options, order=scenario.order)


def in_processes(
    asked: Sequence[Asked],
    jobs: int,
    cluster: str | None,
    progress: ProgressOf,
    finished: Callable[[str], None],
) -> Generator[Finished, None, None]:
    """Run scenarios in `jobs` processes, or on a cluster."""
    executor, elsewhere = executor_for(jobs, cluster), cluster is not None
    stopped = reported = False
    with executor:
        futures = [(_sent if elsewhere else _given)(executor, each) for each in asked]
        shown = _Shown([each.path for each in asked], futures, progress, finished)
        for number, (each, future) in enumerate(zip(asked, futures, strict=True)):
            is_done = False
            while not is_done:
                try:
                    is_done = wait_for(future)
                    executor.check()
                    shown.look()
                except KeyboardInterrupt:
                    executor.stop()
                    stopped = True
            shown.end(number)
            outcome = _outcome_of(each.path, future)
            if outcome is not None:
                reported |= stopped and isinstance(outcome, Outcome)
                yield each.path, replace(outcome, interrupted=stopped) if isinstance(outcome, Outcome) else outcome
    if stopped and not reported:
        raise KeyboardInterrupt


def _given(executor: TaskExecutor, task: Asked) -> Future[Outcome]:
    return executor.submit(_run, task)


def _sent(executor: TaskExecutor, task: Asked) -> Future[Outcome]:
    """Hand it over with the files that it reads, and without a checkpoint of its own."""
    try:
        task = _with_files(task)
    except DispatchLabError as error:
        failed: Future[Outcome] = Future()
        failed.set_exception(error)
        return failed
    return executor.submit(_run, task)


def _with_files(task: Asked) -> Asked:
    options = replace(task.options, checkpoint=None)
    files = [(task.path, read_bytes(task.path, FileKind.SCENARIO))]
    if options.semantics is not None and options.semantics.endswith(".json") and is_there(options.semantics):
        files.append((options.semantics, read_file(options.semantics, limit=MAX_BYTES, what="profiles")))
    return Asked(task.path, options, tuple(files))


class _Shown:
    """Passes on how far scenarios have come and which have ended, looking at all of them ten times a second."""

    def __init__(
        self,
        paths: Sequence[str],
        futures: Sequence[Future[Outcome]],
        progress: ProgressOf,
        finished: Callable[[str], None],
    ) -> None:
        self._paths, self._progress, self._finished = paths, progress, finished
        self._under_way = dict(enumerate(futures))
        self._seen: dict[int, Progress] = {}
        self._next = 0.0

    def look(self) -> None:
        now = perf_counter()
        if now < self._next:
            return
        self._next = now + _LOOK_EVERY_S
        for number, future in list(self._under_way.items()):
            if future.done():
                self.end(number)
            elif isinstance(future, TaskFuture) and future.reported is not self._seen.get(number):
                self._seen[number] = future.reported
                self._progress(self._paths[number], future.reported)

    def end(self, number: int) -> None:
        if self._under_way.pop(number, None) is not None:
            self._finished(self._paths[number])


def _outcome_of(path: str, future: Future[Outcome]) -> Outcome | DispatchLabError | None:
    """The outcome of the scenario that came to an end; None for one that was not explored."""
    try:
        return future.result()
    except DispatchLabError as error:
        return error
    except TaskDied as died:
        return WorkerDied(path, died.how)
    except (KeyboardInterrupt, TaskStopped, CancelledError):
        return None
    except BaseException as error:
        error.add_note(f"in {path}")
        raise


# -- in a worker


@cache
def _keep_engines() -> None:
    """Keep the live engine for the next task."""
    engines = ExitStack()
    engines.enter_context(kept_engines())
    atexit.register(engines.close)


def _with_memory_bound(options: RunOptions) -> RunOptions:
    """The options with a bound of memory, as on a machine with as many tasks as cores where none was given."""
    return replace(options, max_memory=options.max_memory or default_memory_bound(most_jobs()))


def _run(task: Asked) -> Outcome:
    """Run in a worker. See Note [Interrupts and processes] in processes/task_process.py."""
    _keep_engines()
    options = _with_memory_bound(task.options)
    with given_files(dict(task.files)):
        return run_scenario(task.path, options, progress=report, cancelled=is_stopped)
