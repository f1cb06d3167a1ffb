"""Run scenarios, one after the other or at once, and keep the outcomes that a checkpoint has."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.atomic_write import WriteError
from dispatchlab.files.journal import Journal
from dispatchlab.processes.machine import default_memory_bound, most_jobs
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.order.run_scenario import (
    Asked,
    Finished,
    Outcome,
    ProgressOf,
    RunOptions,
    run_of,
    run_scenario,
)
from dispatchlab.sources.engines import kept_engines


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
        progress: see `ProgressOf`.
        finished: is called with a file as soon as its exploration has ended.

    Yields:
        Each file with its outcome; after Ctrl-C only those that were done or, on this machine, under way.

    Raises:
        ClusterError: there is no such cluster, or it is lost.
        WriteError: after the last: the checkpoint could not be written.
    """
    if (jobs > 1 or cluster is not None) and len(files) == 1 and _has_shares(options):
        from dispatchlab.questions.order.scenario_tasks import with_shares

        yield from with_shares(files[0], options, min(jobs, most_jobs()), cluster, progress, finished)
        return
    jobs = min(jobs, len(files), most_jobs())
    in_processes = jobs > 1 or cluster is not None
    if options.max_memory is None and cluster is None:
        options = replace(options, max_memory=default_memory_bound(jobs))
    with ExitStack() as open_files:
        kept = None
        if options.checkpoint is not None:
            run = {name: text for file in files for name, text in run_of(file, options).items()}
            kept = _Kept(open_files.enter_context(Journal(options.checkpoint, run)), files)
        asked = [Asked(path, _own(options, number)) for number, path in enumerate(files)]
        todo = [each for each in asked if kept is None or kept.outcome(each.path) is None]
        if in_processes and todo:
            from dispatchlab.questions.order.scenario_tasks import in_processes as each_in_a_process

            work = each_in_a_process(todo, jobs, cluster, progress, finished)
        else:
            work = _here(todo, progress, finished)
        fresh = open_files.enter_context(closing(work))
        full: WriteError | None = None
        for each in asked:
            outcome = None if kept is None else kept.outcome(each.path)
            if outcome is not None:
                yield each.path, outcome
                continue
            following = next(fresh, None)
            if following is None:  # it was interrupted
                return
            path, new = following
            try:
                if kept is not None and full is None:
                    kept.add(path, new)
            except WriteError as error:  # the others are explored all the same
                full = error
            yield path, new
            if isinstance(new, Outcome) and new.interrupted and not in_processes:
                return
        if full is not None:
            raise full


def _has_shares(options: RunOptions) -> bool:
    """Whether it takes random walks in shares, which nothing bounds but time."""
    return (
        options.walk == "sample"
        and options.engine in (None, "lab")
        and (options.max_states, options.replay, options.checkpoint) == (None, None, None)
    )


def _own(options: RunOptions, number: int) -> RunOptions:
    """The options of one scenario, whose walk has a checkpoint of its own beside that of the run."""
    if options.checkpoint is None:
        return options
    return replace(options, checkpoint=f"{options.checkpoint}.{number}")


class _Kept:
    """The outcomes that a checkpoint has; one that was interrupted or is incomplete is worked on again."""

    def __init__(self, journal: Journal, files: Sequence[str]) -> None:
        self._journal = journal
        self._number = {path: number for number, path in enumerate(files)}
        for path in files:
            if self.outcome(path) is not None:  # the run may have ended between the two
                self._remove_walk(path)

    def outcome(self, path: str) -> Outcome | None:
        """What is known of a scenario."""
        found: list[Outcome] = self._journal.records(path, Outcome)
        return found[-1] if found else None

    def add(self, path: str, outcome: Outcome | DispatchLabError) -> None:
        """Keep an outcome, and remove what was kept of the walk that led to it."""
        if not isinstance(outcome, Outcome) or outcome.interrupted:
            return
        if outcome.report.exploration.verdict is not Verdict.INCOMPLETE and self._journal.add(path, outcome):
            self._remove_walk(path)

    def _remove_walk(self, path: str) -> None:
        with suppress(OSError):
            os.unlink(f"{self._journal.path}.{self._number[path]}")


def _here(
    asked: Sequence[Asked], progress: ProgressOf, finished: Callable[[str], None]
) -> Generator[Finished, None, None]:
    with kept_engines():
        for path, options, _ in asked:
            outcome: Outcome | DispatchLabError
            try:
                outcome = run_scenario(path, options, progress=partial(progress, path))
            except DispatchLabError as error:
                outcome = error
            finished(path)
            yield path, outcome
