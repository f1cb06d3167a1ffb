"""Footprints: which keys each refresh of slots reads, recorded while an engine runs.

A `Transaction` knows which operators a registration touches. Here the parts of one operator are kept apart: a watched
semantics computes slots as the one it is made of does, and records the keys whose kernels it looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import RegisteredKernel, TableEntry
from dispatchlab.engine.precedence import Kernels, Slots, add
from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.slot_set import set_bits

# Note [Footprints of a refresh]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A refresh is one call: (the slots wanted, the keys with kernels, the kernels, the fallbacks) -> what the wanted
# slots hold. A window is a set of wanted slots. The call is deterministic, so where two states agree on all that it
# read in one of them, it reads the same and gives the same in the other. That is all that is needed to carry what was
# seen in a small state over to a large one, and it needs no knowledge of the precedence. Keys are read in two ways:
# whether there are kernels (bits of `present`), and which one is newest. The fallbacks are read last. What is checked
# of them on every call is that no run asked for the fallback of a slot that a kernel had taken, and that what was
# asked for was put into the slots unchanged: so a fallback can change its own slot only, and whether a kernel takes
# that slot does not depend on fallbacks. A semantics that looks at fallbacks first fails this check, and says so in
# `strays`.


class _Bits(int):
    """A set of bits that notes which of them are looked at; code that does not mask it looks at all."""

    reads: list[int]

    @classmethod
    def of(cls, bits: int, reads: list[int]) -> _Bits:
        made = cls(bits)
        made.reads = reads
        return made

    def __and__(self, mask: int) -> int:
        self.reads.append(int(mask))
        return int(self) & int(mask)

    __rand__ = __and__

    def _all(self) -> int:
        self.reads.append(-1)
        return int(self)

    def __bool__(self) -> bool:
        return bool(self._all())

    def __or__(self, other: int) -> int:
        return self._all() | other

    __ror__ = __or__

    def __xor__(self, other: int) -> int:
        return self._all() ^ other

    __rxor__ = __xor__

    def __invert__(self) -> int:
        return ~self._all()

    def __lshift__(self, count: int) -> int:
        return self._all() << count

    def __rshift__(self, count: int) -> int:
        return self._all() >> count


class _WatchedKernels(Mapping[int, tuple[RegisteredKernel, ...]]):
    def __init__(self, kernels: Kernels, reads: list[int]) -> None:
        self._kernels, self._reads = kernels, reads

    def __getitem__(self, bit: int) -> tuple[RegisteredKernel, ...]:
        self._reads.append(bit)
        return self._kernels[bit]

    def __iter__(self) -> Iterator[int]:
        self._reads.append(-1)
        return iter(self._kernels)

    def __len__(self) -> int:
        self._reads.append(-1)
        return len(self._kernels)


class _WatchedFallbacks(Fallbacks):
    """Fallbacks that note for which slots they were asked, and what they gave."""

    __slots__ = ("_watched", "asked", "given")

    def __init__(self, fallbacks: Fallbacks) -> None:  # what it watches is immutable, so nothing is copied
        self._watched = fallbacks
        self._by_slot, self._entries = fallbacks._by_slot, fallbacks._entries
        self.asked: list[int] = []
        self.given: dict[TableEntry, int] = {}
        self.slots = _Bits.of(fallbacks.slots, self.asked)
        self.fallthrough_slots = _Bits.of(fallbacks.fallthrough_slots, self.asked)

    def entries_in(self, slots: int) -> Mapping[TableEntry, int]:
        """What the fallbacks put into `slots`."""
        self.asked.append(slots)
        found = self._watched.entries_in(slots)
        for held, bits in found.items():
            self.given[held] = self.given.get(held, 0) | bits
        return found


class Footprint:
    """What was read since it was made. See Note [Footprints of a refresh].

    Args:
        semantics: the dispatcher that is watched; `watched` behaves as it does.
    """

    def __init__(self, semantics: Semantics) -> None:
        self._fill = semantics.precedence.fill
        self.reads: dict[int, int] = {}
        """window -> the keys that its refreshes read, as bits"""
        self.strays: set[str] = set()
        """what no footprint may show, a sentence each"""
        self.calls = 0
        """how many refreshes were watched"""
        self.watched = replace(semantics, precedence=semantics.precedence._replace(fill=self._watched))

    def forget(self) -> None:
        """Begin anew."""
        self.reads.clear()
        self.strays.clear()
        self.calls = 0

    def _watched(self, slots: Slots, wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> None:
        reads: list[int] = []
        asked = _WatchedFallbacks(fallbacks)
        found: Slots = {}
        self._fill(found, wanted, _Bits.of(present, reads), _WatchedKernels(kernels, reads), asked)
        self.calls += 1
        mask = self.reads.get(wanted, 0)
        for read in reads:
            mask |= read
        self.reads[wanted] = mask
        self._check(wanted, found, asked, taken=wanted & present)
        add(slots, found)

    def _check(self, wanted: int, slots: Slots, fallbacks: _WatchedFallbacks, *, taken: int) -> None:
        looked = 0
        for mask in fallbacks.asked:
            looked |= mask
        written = taken
        for held, bits in slots.items():
            written |= bits
            if held not in fallbacks.given:
                taken |= bits
            elif bits != fallbacks.given[held]:
                self.strays.add("a refresh changed what a fallback gave it")
        if written & ~wanted:
            self.strays.add("a refresh wrote slots that it was not asked for")
        if looked & ~wanted or looked & taken:
            self.strays.add("a refresh looked at the fallbacks of slots that kernels fill")


def reads_more(semantics: Semantics, reads: Mapping[int, int]) -> bool:
    """Whether a refresh read a key that decides about none of its slots.

    Args:
        semantics: the dispatcher.
        reads: window -> the keys that were read, as a footprint has them.
    """
    for window, read in reads.items():
        judged = 0 if window else -1  # nothing is written to no slots
        for slot in set_bits(window):
            judged |= semantics.precedence.plain.relevant[slot]
        if read & ~judged:
            return True
    return False
