"""Sets of dispatch keys against those of the installed PyTorch, on generated bits."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from typing import Any

import pytest

from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.model.key_set import BACKEND_BITS, FULL_BITS, DispatchKeySet
from dispatchlab.model.keys import FORMER_KEYS, MARKERS, DispatchKey

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

KEYS = [key for key in DispatchKey if key not in FORMER_KEYS]


def _sets(count: int, seed: int) -> list[int]:
    """Bits of few keys and of many, a third of them without a backend."""
    rng = random.Random(seed)
    found = []
    for at in range(count):
        bits = rng.getrandbits(rng.randint(BACKEND_BITS.bit_length(), FULL_BITS.bit_length()))
        for _ in range(rng.choice((0, 1, 4))):
            bits &= rng.getrandbits(FULL_BITS.bit_length())
        found.append(bits & ~BACKEND_BITS if at % 3 == 0 else bits)
    return found


def test_the_numbers_of_keys_and_markers_are_those_of_pytorch() -> None:
    for key in (*KEYS, *MARKERS):
        theirs = C.DispatchKey(int(key))
        assert C._dispatch_key_name(theirs) == str(key)
        assert C.DispatchKeySet(theirs).raw_repr() == DispatchKeySet.of(key).bits, key
        assert C._dispatch_keyset_full_after(theirs).raw_repr() == DispatchKeySet.full_after(key).bits, key


def test_generated_sets_are_equal_in_all_that_can_be_asked_of_them() -> None:
    met = Counter[str]()
    rng, sets = random.Random(2), _sets(3000, seed=1)
    for bits, others in zip(sets, reversed(sets), strict=True):
        theirs, ours, key = C.DispatchKeySet.from_raw_repr(bits), DispatchKeySet(bits), rng.choice((*KEYS, *MARKERS))
        highest, at = theirs.highestPriorityTypeId(), C.DispatchKey(int(key))
        assert (int(highest), C._dispatch_key_name(highest)) == (int(ours.highest()), str(ours.highest())), hex(bits)
        assert str(theirs) == C._dispatch_keyset_to_string(theirs) == str(ours)
        assert theirs.has(at) == ours.has(key), (hex(bits), key)
        assert theirs.add(at).raw_repr() == ours.add(key).bits, (hex(bits), key)
        assert theirs.remove(at).raw_repr() == ours.remove(key).bits, (hex(bits), key)
        other = C.DispatchKeySet.from_raw_repr(others)
        assert (theirs | other).raw_repr() == (ours | DispatchKeySet(others)).bits
        assert (theirs & other).raw_repr() == (ours & DispatchKeySet(others)).bits
        assert (theirs - other).raw_repr() == (ours - DispatchKeySet(others)).bits
        met["marker" if ours.highest() in MARKERS else "key" if ours.highest().backend is None else "instance"] += 1
    assert min(met.values()) >= 100
    assert met.keys() == {"marker", "key", "instance"}


def test_the_bits_of_a_set_are_known_without_a_binding_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [(C.DispatchKeySet.from_raw_repr(bits), bits) for bits in _sets(100, seed=3)]
    assert all(raw_bits(theirs) == bits for theirs, bits in sets)
    monkeypatch.delattr(C.DispatchKeySet, "raw_repr")  # as on PyTorch 2.4
    assert all(raw_bits(theirs) == bits for theirs, bits in sets)
