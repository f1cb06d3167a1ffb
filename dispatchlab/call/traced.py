"""Calls that were made, as values: the tree of calls, redispatches and guards of one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dispatchlab.model.key_set import DispatchKeySet


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """The kernel that a call ran.

    Args:
        debug: where it comes from.
        reason: its provenance.
        source: the key that it is registered at.
        conversion: `boxed` when the arguments were put on a stack for it, `unboxed` when they were taken off one, empty
            when it was called as the caller called.
    """

    debug: str
    reason: str
    source: str
    conversion: str


@dataclass(frozen=True, slots=True)
class TracedGuard:
    """A guard, and what ran inside of it.

    Args:
        name: what it is, such as `AutoDispatchBelowAutograd`.
        included, excluded: what the thread included and excluded inside of it.
        newly_included, newly_excluded: the keys of these two sets that were not in them before.
        steps: what ran inside.
    """

    name: str
    included: DispatchKeySet
    excluded: DispatchKeySet
    newly_included: DispatchKeySet
    newly_excluded: DispatchKeySet
    steps: tuple[TracedStep, ...]


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call, and what its kernel did in turn.

    Args:
        kind: `[call]`, `[redispatch]`, `[callBoxed]` or `[redispatchBoxed]`.
        operator: its name.
        depth: how deeply it is nested in other calls, 1 for none.
        arguments: the keys of the arguments; the set that was handed over, in a redispatch.
        included, excluded: what the thread included and excluded; nothing, in a redispatch.
        local_included, local_excluded: what of these goes beyond what every thread starts from.
        base: the set before fallthroughs were masked.
        keys: the final set.
        kernel: what ran; None when there was nothing that could.
        error: what it raised, as `kind: message` on one line; None when it returned.
        steps: what its kernel did.
    """

    kind: str
    operator: str
    depth: int
    arguments: DispatchKeySet
    included: DispatchKeySet
    excluded: DispatchKeySet
    local_included: DispatchKeySet
    local_excluded: DispatchKeySet
    base: DispatchKeySet
    keys: DispatchKeySet
    kernel: TracedKernel | None
    error: str | None
    steps: tuple[TracedStep, ...]


TracedStep: TypeAlias = TracedCall | TracedGuard


@dataclass(frozen=True, slots=True)
class TracedThread:
    """What one thread did while a trace was on."""

    name: str
    steps: tuple[TracedStep, ...]


def calls_in(steps: Sequence[TracedStep]) -> Iterator[TracedCall]:
    """Every call of a tree, in the order in which they began."""
    for step in steps:
        if isinstance(step, TracedCall):
            yield step
        yield from calls_in(step.steps)
