"""Sets of dispatch keys as upstream computes with them: 16 backend bits and 46 functionality bits in one number.

The algebra is that of c10/core/DispatchKeySet.h, its surprise included: taking keys away clears functionality bits
only, so `{CPU, CUDA} - {CUDA}` has neither a functionality left nor lost a backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dispatchlab.model.keys import (
    BACKENDS,
    FORMER_KEYS,
    FUNCTIONALITY_KEYS,
    MARKERS,
    PER_BACKEND_FUNCTIONALITIES,
    SLOT_OF_KEY,
    DispatchKey,
)

BACKEND_BITS = (1 << len(BACKENDS)) - 1
FULL_BITS = (1 << len(BACKENDS) + len(FUNCTIONALITY_KEYS) - 1) - 1
FUNCTIONALITY_BITS = FULL_BITS ^ BACKEND_BITS


def functionality_bit(key: DispatchKey) -> int:
    """Return the bit of a functionality key; 0 for `Undefined`, which has no bit."""
    return 0 if key == DispatchKey.Undefined else 1 << len(BACKENDS) + key - 1


def _bits_of(key: DispatchKey) -> int:
    if key.is_alias or key in FORMER_KEYS:  # the sets are those of PyTorch 2.13
        return 0
    backend = key.backend
    return functionality_bit(key.functionality) | (0 if backend is None else 1 << backend)


_BITS: dict[DispatchKey, int] = {key: _bits_of(key) for key in (*DispatchKey, *MARKERS)}


def _instance(functionality: DispatchKey, backend: int) -> DispatchKey:
    """Return the runtime key of a per-backend functionality for one backend; -1 gives its marker."""
    return DispatchKey(DispatchKey.CPU + 17 * PER_BACKEND_FUNCTIONALITIES.index(functionality) + backend)


_SHOWN = 12  # keys that a repr lists


@dataclass(frozen=True, slots=True)
class DispatchKeySet:
    """A set of dispatch keys; `bits` is upstream's `raw_repr()`.

    >>> from dispatchlab import DispatchKey, DispatchKeySet
    >>> keys = DispatchKeySet.of(DispatchKey.CPU, DispatchKey.AutogradCPU)
    >>> keys.highest(), keys.remove(DispatchKey.AutogradCPU)
    (DispatchKey.AutogradCPU, DispatchKeySet.of(DispatchKey.CPU))
    """

    bits: int = 0

    @classmethod
    def of(cls, *keys: DispatchKey) -> DispatchKeySet:
        """Return the set of these keys; `Undefined`, alias keys, and keys that PyTorch 2.13 lacks add nothing."""
        bits = 0
        for key in keys:
            bits |= _BITS[key]
        return cls(bits)

    @classmethod
    def full(cls) -> DispatchKeySet:
        """Return all backend and functionality bits."""
        return cls(FULL_BITS)

    @classmethod
    def full_after(cls, key: DispatchKey) -> DispatchKeySet:
        """Return all keys of lower priority than the key's functionality, and PythonDispatcher.

        Below `Undefined` and below an alias key, whose functionality is `Undefined` upstream, are all backend bits but
        the highest.
        """
        functionality = DispatchKey.Undefined if key.is_alias else key.functionality
        below = (1 << len(BACKENDS) + functionality - 1) - 1
        return cls(below | functionality_bit(DispatchKey.PythonDispatcher))

    def has(self, key: DispatchKey) -> bool:
        """Return whether all bits of the key are here: `{CPU, AutogradCUDA}` has CUDA, too."""
        return self.bits & _BITS[key] == _BITS[key]

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.bits | other.bits)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.bits & other.bits)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.bits & (BACKEND_BITS | ~other.bits))

    def add(self, key: DispatchKey) -> DispatchKeySet:
        """Return the set with a key."""
        return DispatchKeySet(self.bits | _BITS[key])

    def remove(self, key: DispatchKey) -> DispatchKeySet:
        """Return the set without the functionality of a key; backend bits stay."""
        return DispatchKeySet(self.bits & ~(_BITS[key] & FUNCTIONALITY_BITS))

    def __bool__(self) -> bool:
        return self.bits != 0

    def highest_functionality(self) -> DispatchKey:
        """Return the functionality of the highest priority; `Undefined` when there is none."""
        return DispatchKey((self.bits >> len(BACKENDS)).bit_length())

    def highest_backend(self) -> int | None:
        """Return the number of the highest backend component; None when there is none."""
        length = (self.bits & BACKEND_BITS).bit_length()
        return length - 1 if length else None

    def highest(self) -> DispatchKey:
        """Return the key at which a call runs.

        A per-backend functionality without any backend gives a marker such as `QuantizedUndefined`, which has no slot:
        see Note [Markers].
        """
        functionality, backend = self.highest_functionality(), self.highest_backend()
        if functionality not in PER_BACKEND_FUNCTIONALITIES:
            return functionality
        return _instance(functionality, -1 if backend is None else backend)

    def slot(self) -> int:
        """Return the index of the slot that a call with this set uses; no backend counts as CPU."""
        functionality = self.highest_functionality()
        if functionality in PER_BACKEND_FUNCTIONALITIES:
            return SLOT_OF_KEY[_instance(functionality, self.highest_backend() or 0)]
        return SLOT_OF_KEY[functionality]

    def __iter__(self) -> Iterator[DispatchKey]:
        """The runtime keys of the set, lowest priority first."""
        for functionality in FUNCTIONALITY_KEYS[1:]:
            if not self.bits & functionality_bit(functionality):
                continue
            if functionality not in PER_BACKEND_FUNCTIONALITIES:
                yield functionality
                continue
            for backend in range(len(BACKENDS)):
                if self.bits >> backend & 1:
                    yield _instance(functionality, backend)

    def __str__(self) -> str:
        return f"DispatchKeySet({', '.join(map(str, self))})"

    def __repr__(self) -> str:
        keys = [*self]
        if len(keys) > _SHOWN or DispatchKeySet.of(*keys) != self:
            return f"DispatchKeySet({self.bits:#x})"
        return f"DispatchKeySet.of({', '.join(map(repr, keys))})"
