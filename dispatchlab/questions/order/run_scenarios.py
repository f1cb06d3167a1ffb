"""Run scenarios, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.prover.limits import Progress
from dispatchlab.questions.order.run_scenario import Outcome, RunOptions, run_scenario
from dispatchlab.questions.sources.engines import kept_engines

Finished: TypeAlias = tuple[str, Outcome | DispatchLabError]
"""A file, and its outcome or the reason why there is none."""

ProgressOf: TypeAlias = Callable[[str, Progress], None]
"""Is called about ten times a second with a file and how far its exploration has come."""


def run_scenarios(
    files: Sequence[str], options: RunOptions, *, progress: ProgressOf, finished: Callable[[str], None]
) -> Generator[Finished, None, None]:
    """Run scenarios.

    Args:
        files: the scenarios.
        options: how to run each.
        progress: see `ProgressOf`.
        finished: is called with a file as soon as its exploration has ended.

    Yields:
        Each file with its outcome; after Ctrl-C also what was under way.
    """
    with kept_engines():
        for path in files:
            outcome = _run(path, options, partial(progress, path))
            finished(path)
            yield path, outcome
            if isinstance(outcome, Outcome) and outcome.interrupted:
                return


def _run(path: str, options: RunOptions, progress: Callable[[Progress], None]) -> Outcome | DispatchLabError:
    try:
        return run_scenario(path, options, progress=progress)
    except DispatchLabError as error:
        return error
