"""`HopRecorder`: what the probes recorded inside of a `with` block, read: each hop with those that were made inside."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from time import monotonic_ns
from types import TracebackType
from typing import NamedTuple, Self

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.running_keys import raw_bits, running_keys
from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.introspection.queries import keys_by_rule, look_at
from dispatchlab.live.tracing.loaded_libraries import function_at
from dispatchlab.live.tracing.registration_watch import RegistrationWatch
from dispatchlab.live.tracing.slot_probes import (
    BY_A_JUMP,
    RAISED,
    RETURNED,
    Probe,
    ProbeError,
    Probes,
    Recorded,
    default_sets,
)
from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.names import name_of
from dispatchlab.model.snapshot import Snapshot


class TorchTraceError(DispatchLabError):
    """The calls of this PyTorch cannot be traced."""

    reason: str

    template = "the calls of this PyTorch cannot be traced: {reason}"


@dataclass(slots=True)
class RecordedHop:
    """A look-up that found a kernel.

    Args:
        probe: the kernel and its operator.
        keys: the key set that the kernel was given.
        included, excluded: what the thread included and excluded.
        arguments: the keys of the arguments; without those that could not be read.
        each: those of the first arguments, by name.
        is_complete: all of them could be.
        caller: the symbol of the function that made it; empty where no library exports that.
        began_ns, ended_ns: since the recording began; no end was seen of a kernel that was still running.
        raised: an exception passed.
        inside: the hops that the kernel made.
        place: where the address to return to is on the stack.
    """

    probe: Probe
    keys: DispatchKeySet
    included: DispatchKeySet
    excluded: DispatchKeySet
    arguments: DispatchKeySet
    each: Mapping[str, DispatchKeySet]
    is_complete: bool
    caller: str
    began_ns: int
    place: int
    ended_ns: int | None = None
    raised: bool = False
    inside: list[RecordedHop] = field(default_factory=list)


class RecordedThread(NamedTuple):
    """The hops that a thread made, but for those inside of another."""

    name: str
    hops: Sequence[RecordedHop]


class CalledOperator(NamedTuple):
    """An operator that was called, as it is when the recording is over.

    Args:
        snapshot: its texts.
        functions: those of the kernel in each slot, by key.
        by_rule: the keys whose kernels are known to redispatch.
    """

    snapshot: Snapshot
    functions: Mapping[str, frozenset[int]]
    by_rule: tuple[str, ...]


class HopRecorder:
    """Records every hop of this process inside of a `with` block.

    Args:
        limit: how many records are kept; later ones are counted alone. A hop is two, its beginning and its end.

    Raises:
        TorchMissingError: PyTorch is not installed.
        TorchTraceError: its calls cannot be traced here; the text says why.
    """

    def __init__(self, limit: int) -> None:
        try:
            self._probes = Probes(limit)
            self._default_included, self._default_excluded = default_sets()
        except ProbeError as error:
            raise TorchTraceError(str(error)) from None
        self._watch = RegistrationWatch(self._probes.attach, self._probes.lock)
        self._names: dict[int, str] = {}
        self._started = self._ended = (0, 0)
        self._records: Recorded | None = None

    def __enter__(self) -> Self:
        global _running
        if _running is not None:
            raise TorchTraceError("another trace is on, and there can be one at a time")
        _running = self
        self._watch.start()
        self._probes.attach()
        self._started = self._probes.clock(), monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _running
        self._ended = self._probes.clock(), monotonic_ns()
        self._records = self._probes.recorded()
        self._names = {one.ident: one.name for one in threading.enumerate() if one.ident is not None}
        self._watch.stop()
        self._probes.detach()
        _running = None

    @property
    def dropped(self) -> int:
        """How many records there were beyond the limit."""
        return 0 if self._records is None else self._records.dropped

    @property
    def has_all_probes(self) -> bool:
        """Whether every kernel has a probe."""
        return not self._probes.is_full

    def threads(self) -> tuple[RecordedThread, ...]:
        """What each thread did, in the order in which they began; nothing before the block is over."""
        if self._records is None:
            return ()
        ns_per_tick = (self._ended[1] - self._started[1]) / max(self._ended[0] - self._started[0], 1)
        running: dict[int, list[RecordedHop]] = {}
        top: dict[int, list[RecordedHop]] = {}
        for record in self._records.records.tolist():
            number, thread, keys, place, included, excluded, arguments, time, caller, unknown, *each = record
            above = running.setdefault(thread, [])
            ns = max(int((time - self._started[0]) * ns_per_tick), 0)
            if number >= RETURNED:
                _end(above, place, ns, raised=number == RAISED)
                continue
            probe = self._probes.probe(number - 1)
            hop = RecordedHop(
                probe,
                model_set(keys),
                model_set(included ^ self._default_included),
                model_set(excluded ^ self._default_excluded),
                model_set(arguments),
                {name: model_set(one) for name, one in zip(probe.arguments, each, strict=False) if one},
                not unknown & ~BY_A_JUMP,
                "" if unknown & BY_A_JUMP else function_at(caller),
                ns,
                place,
            )
            (above[-1].inside if above else top.setdefault(thread, [])).append(hop)
            above.append(hop)
        return tuple(RecordedThread(self._names.get(thread, f"{thread:#x}"), hops) for thread, hops in top.items())

    def operators(self) -> dict[str, CalledOperator]:
        """The operators that were called, but for those that are gone."""
        if self._records is None:
            return {}
        numbers = {number - 1 for number in self._records.records["probe"].tolist() if number < RETURNED}
        slots = running_keys().slot_of
        held = self._probes.kernels_now({self._probes.probe(number).operator for number in numbers})
        names = [name_of(name) for name in sorted(held)]
        return {
            str(snapshot.operator): CalledOperator(
                snapshot, {key: held[str(snapshot.operator)][slot] for key, slot in slots.items()}, by_rule
            )
            for (snapshot, _), by_rule in zip(look_at(names), keys_by_rule(names), strict=True)
        }


_running: HopRecorder | None = None


def _end(running: list[RecordedHop], place: int, ns: int, *, raised: bool) -> None:
    """End the hops that return to a place: several when a kernel jumped to the next one."""
    while running and running[-1].place <= place:
        hop = running.pop()
        hop.raised, hop.ended_ns = raised, ns


@cache
def model_set(bits: int) -> DispatchKeySet:
    """A key set of the running PyTorch, without keys that the model does not have.

    Args:
        bits: what its `raw_repr()` gives.
    """
    found = 0
    for bit, ours in _bits():
        if bits >> bit & 1:
            found |= ours
    return DispatchKeySet(found)


@cache
def _bits() -> tuple[tuple[int, int], ...]:
    """Each bit of the running PyTorch, with what stands for it in the model; what the model does not have is left out.

    A key has the bit of its functionality, and a runtime key that of its backend as well. PyTorch 2.5 makes no set of
    bits, so the bits are read off the sets of keys.
    """
    c = bindings()
    backends = int(c._dispatch_num_backends()) if hasattr(c, "_dispatch_num_backends") else len(BACKENDS)
    found: dict[int, int] = {}
    for name, key in DispatchKey.__members__.items():
        theirs = c._parse_dispatch_key(name)
        if theirs is None:
            continue
        bits = raw_bits(c.DispatchKeySet(theirs))
        backend, functionality = bits & ((1 << backends) - 1), bits >> backends
        if name in BACKENDS and backend.bit_count() == 1:
            found[backend.bit_length() - 1] = 1 << BACKENDS.index(name)
        if functionality.bit_count() == 1:
            found[functionality.bit_length() - 1 + backends] = functionality_bit(key.functionality)
    return tuple(sorted(found.items()))
