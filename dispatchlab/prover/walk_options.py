"""The options of a walk: which walk, how much of it, and where it stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

WalkName: TypeAlias = Literal["auto", "graph", "orders", "sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """How to explore; None is the walk's own default, and no bound.

    Args:
        walk: `auto` proves what it can by the strongest reduction that applies, on a `Forkable` engine; `graph` visits
            every state of it; both take a covering walk on any other engine. `orders` runs every order, and `sample`
            takes random walks. Of programs, `sample` runs random orders of each group in fresh sandboxes.
        samples: how many random walks to take.
        seed: the random seed.
        passes: how many times to take every edge of an engine that is not `Forkable`.
        max_states: stop there.
        timeout_s: stop after so many seconds.
        max_memory: stop when the process uses so many bytes of memory more than at the start.
    """

    walk: WalkName = "auto"
    samples: int | None = None
    seed: int = 0
    passes: int | None = None
    max_states: int | None = None
    timeout_s: float | None = None
    max_memory: int | None = None


DEFAULT_WALK: Final = WalkOptions()
