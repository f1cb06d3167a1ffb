"""Which keys does an operator skip, because they hold a fallthrough? One mask for each backend."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from dispatchlab.engine.kernel import Cell
from dispatchlab.model.key_set import BACKEND_BITS, FULL_BITS, functionality_bit
from dispatchlab.model.keys import BACKENDS, RUNTIME_KEYS
from dispatchlab.model.slots import each_slot

# Note [Masks without a history]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Upstream keeps a global mask and one for each backend, and edits them whenever a slot is recomputed. The global one
# then depends on the order of those edits for keys that exist once for each backend, but it is consulted only while
# the 16 others agree with each other, and then it agrees with them. So the masks are a function of the slots: the bit
# of a functionality is missing from the mask of a backend exactly when the slot of the two holds a fallthrough.


class Masks(NamedTuple):
    """The keys that calls of an operator do not skip.

    Args:
        by_backend: for each backend component, the bits that stay; backend bits always do.
        per_backend: whether they differ, so that the highest backend of a call decides.
    """

    by_backend: tuple[int, ...]
    per_backend: bool

    def applied(self, bits: int) -> int:
        """What is left of a set; a set without a backend counts as CPU."""
        length = (bits & BACKEND_BITS).bit_length()
        return bits & self.by_backend[length - 1 if length else 0]


def fallthrough_slots(slots: Mapping[Cell, int]) -> int:
    """The slots that hold a fallthrough."""
    found = 0
    for cell, held in slots.items():
        if cell.entry.kernel.is_fallthrough:
            found |= held
    return found


@lru_cache(maxsize=4096)
def masks(skipped: int) -> Masks:
    """The masks of an operator whose fallthroughs are in the slots of `skipped`."""
    # See Note [Masks without a history]
    by_backend = [FULL_BITS] * len(BACKENDS)
    for slot in each_slot(skipped):
        key = RUNTIME_KEYS[slot]
        bit = functionality_bit(key.functionality)
        backends = range(len(BACKENDS)) if key.backend is None else (key.backend,)
        for backend in backends:
            by_backend[backend] &= ~bit
    return Masks(tuple(by_backend), len(set(by_backend)) > 1)
