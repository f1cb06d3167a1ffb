"""The bits of a key set of the running PyTorch as those of the model, whose keys can differ."""

from __future__ import annotations

from functools import cache

from dispatchlab.live.bridge.torch import bindings
from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import BACKENDS, DispatchKey


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
    """Each bit of the running PyTorch, with what stands for it in the model; 0 for what the model does not have."""
    c = bindings()
    backends = int(c._dispatch_num_backends()) if hasattr(c, "_dispatch_num_backends") else len(BACKENDS)
    dense = 1 << backends
    found = []
    for bit in range(int(c._dispatch_keyset_full().raw_repr()).bit_length()):
        keys = c.DispatchKeySet.from_raw_repr(1 << bit | (dense if bit < backends else 1))
        text = str(c._dispatch_keyset_to_string(keys))
        name = text.removeprefix("DispatchKeySet(").removesuffix(")").split(", ")[-1]
        key = DispatchKey.__members__.get(name)
        if bit < backends:
            ours = 1 << BACKENDS.index(name) if name in BACKENDS else 0
        else:
            ours = 0 if key is None else functionality_bit(key.functionality)
        found.append((bit, ours))
    return tuple(found)
