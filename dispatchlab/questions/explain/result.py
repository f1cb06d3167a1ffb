"""What is explained of a call: the keys of its arguments, its hops, and what implements it under a mode."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatchlab._short_repr import member_repr
from dispatchlab.errors import ErrorKind
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_view import Beaten
from dispatchlab.model.python_layer import Mode

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
    """What the thread adds to a call and takes away: the sets that every thread starts from, and those of guards."""

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
    """A key that a call does not go to although it is in its set.

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

    @property
    def unsure(self) -> str:
        """What is not known of what runs after the hops; empty when all is."""
        if self.known:
            return ""
        key = self.hops[-1].key
        return f"it is unknown whether the kernel at {key} redispatches: the rows show what runs if it does"


def by_priority(keys: DispatchKeySet) -> tuple[DispatchKey, ...]:
    """The runtime keys of a set, highest priority first."""
    return tuple(reversed(list(keys)))


# -- under a mode of Python


class ImplementedBy(StrEnum):
    """What an implementation is."""

    KERNEL = "kernel of the dispatch table"
    PYTHON_KERNEL = "Python kernel"
    DIRECT = "answer of the mode itself"
    FAST_RULE = "fast fake-tensor rule"
    DECOMPOSITION = "decomposition"
    COMPOSITE = "composite kernel"
    PRIM_META = "meta function of the prim"
    LIBRARY_FAKE = "fake implementation of torch.library"
    FAKE_RULE = "fake-tensor rule"
    META = "Meta kernel"
    TRIVIAL_FAKE = "trivial fake implementation"
    REAL_KERNEL = "real kernel on zeros"
    UNSUPPORTED = "error: not supported"
    FUNCTIONALIZATION = "functionalization"
    USER_LOWERING = "lowering of a user"
    LOWERING = "Inductor lowering"
    FALLBACK = "Inductor fallback"
    IMPLICIT_FALLBACK = "implicit Inductor fallback"
    GRAPH_NODE = "node of the graph"
    DTENSOR_HANDLER = "handler of DTensor"
    SHARDING_RULE = "sharding rule"
    ALL_TRANSFORMS = "functorch's kernel for all transforms"
    BATCHING_RULE = "batching rule"
    BATCHED_DECOMPOSITION = "decomposition for vmap"
    RANDOM_RULE = "random batching rule"
    LIBRARY_VMAP = "vmap rule of torch.library"
    SLOW_FALLBACK = "slow fallback of vmap"
    AUTOGRAD = "autograd kernel"
    AUTOGRAD_FALLBACK = "fallback of autograd"
    FUNCTIONALIZE_FALLBACK = "fallback of functionalize"
    AUTOCAST = "autocast kernel"
    LIBRARY_AUTOCAST = "autocast rule of torch.library"

    __repr__ = member_repr


@dataclass(frozen=True, slots=True)
class Implementation:
    """What runs for a call, or would if what comes before it gave up.

    Args:
        kind: what it is.
        where: what asks it: a dispatch key, a mode or a compiler.
        function: its name, or where the kernel was registered.
        site: its line; empty where it is not known.
        why: why it comes at this point.
        gives_up: how it hands the call on to the next; empty when it cannot.
    """

    kind: ImplementedBy
    where: str
    function: str
    site: str
    why: str
    gives_up: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One hop of a call in a mode, for a reader who has never seen the stack of interpreters.

    Args:
        key: where the call goes.
        kernel: where the kernel there was registered; empty when there is none.
        why: what it does there.
    """

    key: DispatchKey
    kernel: str
    why: str


@dataclass(frozen=True, slots=True)
class Later:
    """What runs after the mode is done with a call.

    Args:
        when: when it runs.
        chain: as in `ModeExplanation`.
    """

    when: str
    chain: tuple[Implementation, ...]


@dataclass(frozen=True, slots=True)
class ModeExplanation:
    """A call under a mode.

    Args:
        mode: the mode.
        call: the hops of the dispatcher up to the mode, or up to the implementation that runs before it.
        chain: what runs, and what follows when it gives up, in order.
        symbolic: the same when a size is symbolic; empty where that makes no difference.
        unsure: what cannot be known beforehand; empty when all is.
        option: the compiler of torch.compile, or the table of decompositions of make_fx; empty for the other modes.
        later: what runs afterwards: when the graph runs, by `run_decompositions()`, on the local tensors; None where
            nothing does.
        steps: each hop of a transform or of autocast in a line; empty for the other modes.
        notes: what holds for every call in the mode.
    """

    mode: Mode
    call: CallExplanation
    chain: tuple[Implementation, ...]
    symbolic: tuple[Implementation, ...] = ()
    unsure: str = ""
    option: str = ""
    later: Later | None = None
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> Implementation:
        """What runs first."""
        return self.chain[0]
