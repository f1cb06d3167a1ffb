"""Parts of a trace: the calls of some operators or keys, and how often each kernel ran."""

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
        threads: the calls of each thread.
        notes: sentences about what the trace does not show.
    """

    threads: tuple[TracedThread, ...]
    notes: tuple[str, ...] = ()


def only(
    threads: Sequence[TracedThread], *, operators: Collection[str] = (), keys: Collection[str] = ()
) -> tuple[TracedThread, ...]:
    """Return the selected calls; if a call is not selected, its inner calls replace it.

    Args:
        threads: a trace.
        operators: names, names without overload, or globs; names of `aten` need no namespace. Empty for all.
        keys: the keys of the calls. Empty for all.
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


def death_note(threads: Sequence[TracedThread], name: str) -> str:
    """Return a sentence about the end of a process by a signal, with the innermost call that was running, or the last.

    Args:
        threads: the calls until then.
        name: the name of the signal.
    """
    calls = [call for thread in threads for call in calls_in(thread.steps)]
    running = [call for call in calls if call.ended_ns is None]
    if running:
        where = f"in a call of {running[-1].operator} at {running[-1].keys.highest()}"
    else:
        ended = [step.operator for thread in threads for step in thread.steps if isinstance(step, TracedCall)]
        where = f"after a call of {ended[-1]}" if ended else "before any call"
    return f"{name} ended the process {where}, so the trace ends there"


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A kernel, and how often it ran.

    Args:
        operator: the operator of the kernel.
        key: the key at which it ran.
        kernel: its debug text; empty if unknown, or if no kernel ran.
        reason: its reason in the table; None without one.
        source: the key of its registration.
        count: the number of its runs.
        raised: the number of its runs that raised.
        total_ns: the total time of its runs, with inner calls, if their ends were seen.
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
        calls: the number of calls.
        redispatches: the number of redispatches.
        operators: the number of called operators.
        threads: the number of calling threads.
        kernels: the kernels that ran, the most frequent first.
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
