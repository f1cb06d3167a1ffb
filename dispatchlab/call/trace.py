"""`trace`: record every call, redispatch and guard inside of a `with` block, of every thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Self, TypeAlias

from dispatchlab.call.call_observer import CallKind, ObservedCall, observers
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED, excluded, included
from dispatchlab.model.dump_format import Provenance, key_text
from dispatchlab.model.key_set import DispatchKeySet


class Trace:
    """A record of calls.

    Args:
        line: a function that gets a line for each call when the call begins.
    """

    def __init__(self, line: Callable[[str], object] | None = None) -> None:
        self._line = line
        self._started_ns = monotonic_ns()
        self._threads: dict[threading.Thread, _Thread] = {}  # NB: the numbers of threads come again

    @property
    def threads(self) -> tuple[TracedThread, ...]:
        """The events of each thread, in order of their begin; for an unfinished thread, its events so far."""
        known = [*self._threads.values()]
        return tuple(TracedThread(thread.name, tuple(thread.steps)) for thread in known if thread.steps)

    @property
    def notes(self) -> tuple[str, ...]:
        """The gaps of the trace: none."""
        return ()

    @property
    def steps(self) -> tuple[TracedEvent, ...]:
        """The events of all threads, one thread after another."""
        return tuple(step for thread in self.threads for step in thread.steps)

    @property
    def calls(self) -> tuple[TracedCall, ...]:
        """Every call at every depth, in the order in which they began within their thread."""
        return tuple(calls_in(self.steps))

    def __enter__(self) -> Self:
        self._here().sets = (included(), excluded())
        observers.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        observers.remove(self)

    def __repr__(self) -> str:
        calls = len(self.calls)
        return f"<Trace of {calls} call{'' if calls == 1 else 's'}>"

    # -- as an observer of calls, see `call_observer.Observer`

    def entered(self, call: ObservedCall) -> None:
        """Record that a call begins."""
        thread = self._here()
        depth = 1 + sum(isinstance(event, TracedCall) for _, event, _ in thread.open)
        if self._line is not None:
            self._line(f"{' ' * depth}{call.kind} op=[{call.operator}], key=[{call.keys.highest()}]")
        inside: list[TracedEvent] = []
        traced = TracedCall(
            *(str(call.kind), str(call.operator), depth, call.arguments, call.each, call.included, call.excluded),
            *(call.included - DEFAULT_INCLUDED, call.excluded - DEFAULT_EXCLUDED, call.base, call.keys),
            *(_kernel(call), None, inside, monotonic_ns() - self._started_ns),
        )
        thread.begin(call, traced, inside)

    def left(self, call: ObservedCall, error: BaseException | None) -> None:
        """Record that a call is over."""
        traced = self._here().end(call)
        if isinstance(traced, TracedCall):
            lines = [f"{type(error).__name__}: {line}" for line in str(error).splitlines()] or [type(error).__name__]
            traced.error = None if error is None else lines[0]
            traced.ended_ns = monotonic_ns() - self._started_ns

    def guard_opened(self, guard: object, included: DispatchKeySet, excluded: DispatchKeySet) -> None:
        """Record that a guard was entered, and has set these two sets."""
        thread = self._here()
        new = (included - thread.sets[0], excluded - thread.sets[1])
        inside: list[TracedEvent] = []
        thread.begin(guard, TracedGuard(type(guard).__name__, included, excluded, *new, inside), inside)
        thread.sets = (included, excluded)

    def guard_closed(self, guard: object, included: DispatchKeySet, excluded: DispatchKeySet) -> None:
        """Record that a guard was left, unless it was entered before the trace began."""
        thread = self._here()
        thread.sets = (included, excluded)
        thread.end(guard)

    def _here(self) -> _Thread:
        here = threading.current_thread()
        found = self._threads.get(here)
        if found is None:  # and no other thread adds this one
            found = self._threads[here] = _Thread(here.name)
        return found


def calls_in(steps: Sequence[TracedEvent]) -> Iterator[TracedCall]:
    """Return every call of a tree, in the order in which they began."""
    for step in steps:
        if isinstance(step, TracedCall):
            yield step
        yield from calls_in(step.steps)


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """The kernel that a call ran.

    Args:
        debug: its debug text.
        reason: its provenance.
        source: the key that it is registered at.
        conversion: `boxed` when the arguments were put on a stack for it, `unboxed` when they were taken off one, empty
            when it was called as the caller called.
    """

    debug: str
    reason: Provenance
    source: str
    conversion: str


@dataclass(slots=True)
class TracedGuard:
    """A guard, and the events inside it.

    Args:
        name: its name, such as `AutoDispatchBelowAutograd`.
        included, excluded: the keys that the thread included and excluded inside of it.
        newly_included, newly_excluded: the keys of these two sets that were not in them before.
        steps: the calls inside of it.
    """

    name: str
    included: DispatchKeySet
    excluded: DispatchKeySet
    newly_included: DispatchKeySet
    newly_excluded: DispatchKeySet
    steps: Sequence[TracedEvent]


@dataclass(slots=True)
class TracedCall:
    """A call, and the events inside its kernel.

    Args:
        kind: `[call]`, `[redispatch]`, `[callBoxed]` or `[redispatchBoxed]`.
        operator: its name.
        depth: how deeply it is nested in other calls, 1 for none.
        arguments: the keys of the arguments; the set that was handed over, in a redispatch.
        each: the keys of each argument that has keys, by name; empty for a redispatch.
        included, excluded: the keys that the thread included and excluded; empty for a redispatch.
        local_included, local_excluded: those of them that are not in the initial sets of every thread.
        base: the set before fallthroughs were masked.
        keys: the final set.
        kernel: the kernel that ran; None without a kernel.
        error: its exception, as `kind: message` on one line; None if it returned, or if unknown.
        steps: the calls that its kernel made.
        began_ns: when it began, in nanoseconds since the trace did.
        ended_ns: when it ended; None while it is running, or when that was not seen.
        note: a sentence about unknown facts; empty if all are known.
    """

    kind: str
    operator: str
    depth: int
    arguments: DispatchKeySet
    each: Mapping[str, DispatchKeySet]
    included: DispatchKeySet
    excluded: DispatchKeySet
    local_included: DispatchKeySet
    local_excluded: DispatchKeySet
    base: DispatchKeySet
    keys: DispatchKeySet
    kernel: TracedKernel | None
    error: str | None
    steps: Sequence[TracedEvent]
    began_ns: int = 0
    ended_ns: int | None = None
    note: str = ""


TracedEvent: TypeAlias = TracedCall | TracedGuard


@dataclass(frozen=True, slots=True)
class TracedThread:
    """The events of one thread during a trace."""

    name: str
    steps: tuple[TracedEvent, ...]


_Sets: TypeAlias = tuple[DispatchKeySet, DispatchKeySet]
_BOXED = (CallKind.CALL_BOXED, CallKind.REDISPATCH_BOXED)


class _Thread:
    """A thread while it is heard."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[TracedEvent] = []
        self.open: list[tuple[object, TracedEvent, list[TracedEvent]]] = []
        self.sets: _Sets = (DEFAULT_INCLUDED, DEFAULT_EXCLUDED)

    def begin(self, what: object, event: TracedEvent, inside: list[TracedEvent]) -> None:
        """Open a call or a guard inside of the open one; it contains later events."""
        (self.open[-1][2] if self.open else self.steps).append(event)
        self.open.append((what, event, inside))

    def end(self, what: object) -> TracedEvent | None:
        """Return the event of a call or guard that is over, with all inside it; None if it began before the trace."""
        for at in range(len(self.open) - 1, -1, -1):
            if self.open[at][0] is what:
                event = self.open[at][1]
                del self.open[at:]
                return event
        return None


def _kernel(call: ObservedCall) -> TracedKernel | None:
    if call.entry is None:
        return None
    registered = call.entry.registered
    takes_stack, has_stack = registered.kernel.takes_stack, call.kind in _BOXED
    conversion = "" if takes_stack == has_stack else "boxed" if takes_stack else "unboxed"
    source = key_text(registered.key)
    return TracedKernel(registered.debug, call.entry.reason, source, conversion)
