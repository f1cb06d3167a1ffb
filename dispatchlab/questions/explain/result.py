"""What is explained of a call: the keys of its arguments, and its hops."""

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
        type: its type there.
        given: its spec, as it was given.
        keys: the keys that it adds to the call.
        note: what is surprising about these; often empty.
    """

    name: str
    type: str
    given: str
    keys: DispatchKeySet
    note: str = ""


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """The keys that a thread adds and excludes: those of every thread, and those of guards."""

    global_included: DispatchKeySet
    global_excluded: DispatchKeySet
    local_included: DispatchKeySet = EMPTY
    local_excluded: DispatchKeySet = EMPTY

    @property
    def included(self) -> DispatchKeySet:
        """All that is included."""
        return self.global_included | self.local_included

    @property
    def excluded(self) -> DispatchKeySet:
        """All that is excluded."""
        return self.global_excluded | self.local_excluded


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A key in the set of a call that the call does not go to.

    Args:
        key: the key.
        why: `excluded by every thread`, `excluded by a guard`, or `fallthrough`.
        debug: where the fallthrough comes from; empty for an excluded key.
        reason: its provenance.
    """

    key: DispatchKey
    why: str
    debug: str = ""
    reason: Provenance | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The kernel in the slot of a key.

    Args:
        debug: where it comes from.
        reason: its provenance.
        source: the key that it is registered at; empty where that is not known.
        fallthrough: it is a fallthrough, which cannot run.
        beaten: the candidates that lost, best first, each with what it lost to.
        stale: the slot should hold something else, namely this; None when all is well.
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
        why: where its set comes from.
        start: the set before anything is left out.
        left_out: the keys that are, highest priority first.
        keys: the final set.
        key: its highest key, which is gone to.
        kernel: what is there; None when nothing is.
        refusal: what kind of error the call ends in; None when a kernel runs.
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
    """A call, from its arguments to the kernel that redispatches no further.

    Args:
        operator: its name.
        schema: its schema.
        arguments: those that decide the dispatch.
        of_arguments: all their keys.
        thread: what the thread adds and takes away.
        hops: the call, and each redispatch that follows from it.
        end: why there is no further hop.
        known: whether it is known what the last kernel does; when it is not, it may redispatch.
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
