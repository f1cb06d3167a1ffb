"""The bits of a key set of the running PyTorch as those of the model, whose keys can differ."""

from __future__ import annotations

from functools import cache

from dispatchlab.model.key_set import DispatchKeySet, functionality_bit
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.pytorch.bridge.torch import bindings


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
        bits = int(c.DispatchKeySet(theirs).raw_repr())
        backend, functionality = bits & ((1 << backends) - 1), bits >> backends
        if name in BACKENDS and backend.bit_count() == 1:
            found[backend.bit_length() - 1] = 1 << BACKENDS.index(name)
        if functionality.bit_count() == 1:
            found[functionality.bit_length() - 1 + backends] = functionality_bit(key.functionality)
    return tuple(sorted(found.items()))
