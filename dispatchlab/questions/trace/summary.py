"""Parts of a trace: the calls of some operators or keys, and which kernels ran how often."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from dispatchlab.call.trace import TracedCall, TracedEvent, TracedThread, calls_in
from dispatchlab.model.dump_format import Provenance


@dataclass(frozen=True, slots=True)
class Trace:
    """A record of calls.

    Args:
        threads: what each thread did.
        notes: what the trace does not show, a sentence each.
    """

    threads: tuple[TracedThread, ...]
    notes: tuple[str, ...] = ()


def only(
    threads: Sequence[TracedThread], *, operators: Collection[str] = (), keys: Collection[str] = ()
) -> tuple[TracedThread, ...]:
    """Return the calls that are asked for; the calls inside another call take its place.

    Args:
        threads: a trace.
        operators: names, names without overload, or globs; those of `aten` need no namespace. Every one when empty.
        keys: the keys that a call went to. Every one when empty.
    """
    if not operators and not keys:
        return tuple(threads)
    patterns = tuple(name if "::" in name else f"aten::{name}" for name in operators)

    def matches(call: TracedCall) -> bool:
        name = call.operator
        named = any(fnmatchcase(name, pattern) or name.partition(".")[0] == pattern for pattern in patterns)
        return (named or not patterns) and (not keys or str(call.keys.highest()) in keys)

    def kept(steps: Sequence[TracedEvent]) -> Iterator[TracedEvent]:
        for step in steps:
            inside = tuple(kept(step.steps))
            if isinstance(step, TracedCall) and matches(step):
                yield replace(step, steps=inside)
            else:
                yield from inside

    left = (TracedThread(thread.name, tuple(kept(thread.steps))) for thread in threads)
    return tuple(thread for thread in left if thread.steps)


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A kernel, and how often it ran.

    Args:
        operator: the operator of the kernel.
        key: the key that it ran at.
        kernel: where it comes from; empty where that is not known, or where nothing ran.
        reason: its provenance; None where there is none.
        source: the key that it is registered at.
        count: how often it ran.
        raised: how often it ended with an exception.
        total_ns: how long it ran in all, with what it called, as far as its ends were seen.
    """

    operator: str
    key: str
    kernel: str
    reason: Provenance | None
    source: str
    count: int
    raised: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The kernels that ran in a trace.

    Args:
        calls: how many calls there were.
        redispatches: how many redispatches.
        operators: how many operators they were of.
        threads: how many threads made them.
        kernels: which kernels ran, the most frequent first.
        notes: what the trace does not show.
    """

    calls: int
    redispatches: int
    operators: int
    threads: int
    kernels: tuple[KernelUse, ...]
    notes: tuple[str, ...] = ()


def summary(trace: Trace) -> TraceSummary:
    """Return the kernels that ran in a trace, with counts."""
    used: dict[tuple[str, str, str, Provenance | None, str], list[int]] = {}
    calls = redispatches = 0
    operators: set[str] = set()
    for thread in trace.threads:
        for call in calls_in(thread.steps):
            kernel = call.kernel
            name = ("", None, "") if kernel is None else (kernel.debug, kernel.reason, kernel.source)
            use = used.setdefault((call.operator, str(call.keys.highest()), *name), [0, 0, 0])
            use[0] += 1
            use[1] += call.error is not None
            use[2] += 0 if call.ended_ns is None else call.ended_ns - call.began_ns
            operators.add(call.operator)
            if "redispatch" in call.kind:
                redispatches += 1
            else:
                calls += 1
    kernels = (KernelUse(*key, *numbers) for key, numbers in used.items())
    order = sorted(kernels, key=lambda use: (-use.count, use.operator, use.key))
    return TraceSummary(calls, redispatches, len(operators), len(trace.threads), tuple(order), trace.notes)
