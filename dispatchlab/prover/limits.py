"""The options of a walk: bounds on states and time, cancellation, and reports of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Literal, TypeAlias

from dispatchlab.processes import used_memory
from dispatchlab.prover.result import Exploration

_REPORT_EVERY_S: Final = 0.1
_LOOK_EVERY_S: Final = 0.05
_MIB: Final = 1 << 20


WalkName: TypeAlias = Literal["auto", "graph", "orders", "sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """The options of an exploration; None means the default of the walk, or no bound.

    Args:
        walk: on a `Forkable` engine, `auto` proves by the strongest reduction that applies, and `graph` visits every
            state; on any other engine, both take a covering walk. `orders` runs every order, and `sample` takes
            random walks. For modules, `sample` runs random orders of each group in new sandboxes.
        samples: the number of random walks.
        seed: the random seed.
        passes: the number of times to take every edge of an engine that is not `Forkable`.
        max_states: stop after this many states.
        timeout_s: stop after this many seconds.
        max_memory: stop if the memory of the process grows by this many bytes.
    """

    walk: WalkName = "auto"
    samples: int | None = None
    seed: int = 0
    passes: int | None = None
    max_states: int | None = None
    timeout_s: float | None = None
    max_memory: int | None = None


DEFAULT_WALK: Final = WalkOptions()


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an exploration.

    Args:
        sets: the reached active sets.
        states: distinct states.
        edges: the tried registrations and releases.
        total_edges: the number of edges if nothing is refused; None if unknown.
        elapsed_s: seconds since the start.
    """

    sets: int
    states: int
    edges: int
    total_edges: int | None
    elapsed_s: float


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed; `exploration` covers the work until then."""

    def __init__(self, exploration: Exploration) -> None:
        super().__init__(exploration)
        self.exploration = exploration


class Watch:
    """A watch over the bounds of one exploration, whose parts may be explored one after another.

    Args:
        options: the bounds.
        cancelled: returns whether to stop; called about ten times a second.
        progress: called with the progress about ten times a second.
        total_edges: the total number of edges for `progress`.
    """

    def __init__(
        self,
        options: WalkOptions = DEFAULT_WALK,
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[Progress], None] | None = None,
        total_edges: int | None = None,
    ) -> None:
        self.total_edges = total_edges
        self._max_states = options.max_states
        self._timeout_s = options.timeout_s
        self._max_memory = options.max_memory
        self._memory_before = 0 if options.max_memory is None else used_memory()
        self._next_look = 0.0
        self._cancelled = cancelled
        self._progress = progress
        self._sets = self._states = self._edges = 0
        self._started = perf_counter()
        self._deadline = float("inf") if options.timeout_s is None else self._started + options.timeout_s
        self._next_report = self._started + _REPORT_EVERY_S

    @property
    def elapsed_s(self) -> float:
        """Seconds since the exploration began."""
        return perf_counter() - self._started

    def full(self, states: int) -> str | None:
        """Return a sentence if there are too many states; else None."""
        if self._max_states is not None and self._states + states > self._max_states:
            return f"stopped at the bound of {self._max_states:,} states"
        if self._max_memory is not None:
            now = perf_counter()
            if now >= self._next_look:
                self._next_look = now + _LOOK_EVERY_S
                if used_memory() - self._memory_before >= self._max_memory:
                    size = self._max_memory / _MIB
                    bound = f"{size / 1024:.3g} GiB" if size >= 1000 else f"{size:.3g} MiB"
                    return f"stopped at the bound of {bound} of memory"
        return None

    def stop(self, sets: int, states: int, edges: int) -> str | None:
        """Return a sentence that says why the exploration must stop; None if it may continue."""
        full = self.full(states)
        if full is not None:
            return full
        now = perf_counter()
        if now >= self._deadline:
            return f"stopped at the bound of {self._timeout_s:g} seconds"
        if now >= self._next_report:
            self._next_report = now + _REPORT_EVERY_S
            if self._cancelled is not None and self._cancelled():
                return "cancelled"
            if self._progress is not None:
                done = (self._sets + sets, self._states + states, self._edges + edges)
                self._progress(Progress(*done, self.total_edges, now - self._started))
        return None

    def is_over(self) -> bool:
        """Return whether the time is over or the walk was cancelled."""
        return perf_counter() >= self._deadline or (self._cancelled is not None and self._cancelled())

    def settle(self, exploration: Exploration) -> None:
        """Add the counts of a finished part; the counts of the next part begin at zero."""
        self._sets += exploration.sets
        self._states += exploration.states
        self._edges += exploration.edges
