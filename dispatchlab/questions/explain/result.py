"""The explanation of a call: the keys of its arguments, and its hops."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.errors import ErrorKind
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_view import Beaten

EMPTY = DispatchKeySet()


@dataclass(frozen=True, slots=True)
class ArgumentKeys:
    """An argument that decides the dispatch.

    Args:
        name: its name in the schema.
        type: its type in the schema.
        given: the given spec.
        keys: the keys that it adds to the key set.
        note: a note about surprising keys; often empty.
    """

    name: str
    type: str
    given: str
    keys: DispatchKeySet
    note: str = ""


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """The keys that a thread includes and excludes: those of every thread, and those of guards."""

    global_included: DispatchKeySet
    global_excluded: DispatchKeySet
    local_included: DispatchKeySet = EMPTY
    local_excluded: DispatchKeySet = EMPTY

    @property
    def included(self) -> DispatchKeySet:
        """All included keys."""
        return self.global_included | self.local_included

    @property
    def excluded(self) -> DispatchKeySet:
        """All excluded keys."""
        return self.global_excluded | self.local_excluded


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A key in the key set of a call that the call skips.

    Args:
        key: the key.
        why: `excluded by every thread`, `excluded by a guard`, or `fallthrough`.
        debug: the debug text of the fallthrough; empty for an excluded key.
        reason: its reason in the table.
    """

    key: DispatchKey
    why: str
    debug: str = ""
    reason: Provenance | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The kernel in the slot of a key.

    Args:
        debug: its debug text.
        reason: its reason in the table.
        source: the key of its registration; empty if unknown.
        fallthrough: whether it is a fallthrough, which cannot run.
        beaten: the candidates that lost, the best first, each with the reason.
        stale: the kernel that the slot should hold; None if the slot is not stale.
    """

    debug: str
    reason: Provenance
    source: str
    fallthrough: bool = False
    beaten: tuple[Beaten, ...] = ()
    stale: str | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """One look-up.

    Args:
        kind: `call` or `redispatch`.
        why: the origin of its key set.
        start: the key set before keys are left out.
        left_out: the keys that are left out, highest priority first.
        keys: the final key set.
        key: the highest key of the final set.
        kernel: the kernel at this key; None without a kernel.
        refusal: the kind of error that the call raises; None if a kernel runs.
    """

    kind: str
    why: str
    start: DispatchKeySet
    left_out: tuple[LeftOut, ...]
    keys: DispatchKeySet
    key: DispatchKey
    kernel: Chosen | None
    refusal: ErrorKind | None = None

    @property
    def order(self) -> tuple[DispatchKey, ...]:
        """The keys of the final set, highest priority first."""
        return by_priority(self.keys)


@dataclass(frozen=True, slots=True)
class CallExplanation:
    """A call, from its arguments to the kernel that does not redispatch.

    Args:
        operator: its name.
        schema: its schema.
        arguments: the arguments that decide the dispatch.
        of_arguments: all keys of the arguments.
        thread: the keys that the thread includes and excludes.
        hops: the call, and each redispatch that follows from it.
        end: why there is no further hop.
        known: whether the action of the last kernel is known; if not, it may redispatch.
    """

    operator: str
    schema: str
    arguments: tuple[ArgumentKeys, ...]
    of_arguments: DispatchKeySet
    thread: ThreadKeys
    hops: tuple[Hop, ...]
    end: str
    known: bool = True


def by_priority(keys: DispatchKeySet) -> tuple[DispatchKey, ...]:
    """Return the runtime keys of a set, highest priority first."""
    return tuple(reversed(list(keys)))
