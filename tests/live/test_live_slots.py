"""The kernels read from memory are those that calls reach: every slot of random histories, called."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.introspection.slot_memory import MISSING, MemoryLayout, SlotView, fingerprint, memory_layout
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.model.keys import RUNTIME_KEYS
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import Impl, Kernel, KernelForm
from dispatchlab.prover.protocol import Handle
from tests.live.live_registrations import FOO, define

KEYS = (
    *(K.CompositeImplicitAutograd, K.CompositeExplicitAutograd, K.Autograd, K.CPU, K.QuantizedCPU, K.NestedTensorCPU),
    *(K.AutogradCPU, K.AutogradOther, K.CompositeImplicitAutogradNestedTensor, K.SparseCUDA, K.FPGA, K.CPU),
)
CALLED = [key for key in RUNTIME_KEYS if key.name.startswith(("Autograd", "NestedTensor", "Quantized", "Sparse"))]
REACHED: list[str] = []


def kernel(name: str) -> Kernel:
    def function(x: object) -> object:
        REACHED.append(name)
        return x

    return Kernel(KernelForm.BOXED, function=function)


def reached(handle: Any, key: K, x: Any) -> str | None:
    REACHED.clear()
    try:
        handle.redispatch_boxed(torch()._C.DispatchKeySet(torch()._C.DispatchKey(int(key))), x)
    except (RuntimeError, NotImplementedError):
        return None
    return REACHED[0] if REACHED else None


def test_a_call_through_each_slot_reaches_the_kernel_that_is_shown_there() -> None:
    if memory_layout() is None:
        pytest.skip("slots cannot be read from memory on this platform")
    choose = random.Random(2013)
    calls = stale = 0
    x = torch().ones(1)
    scenario = [Impl(FOO, key, kernel(f"k{number}"), f"k{number}") for number, key in enumerate(KEYS)]
    for _ in range(30):
        with LocalEngine().sandbox() as sandbox:
            sandbox.register(define())
            found = torch()._C._dispatch_find_schema_or_throw(f"{sandbox.prefix}test::foo", "")
            handles: dict[int, Handle] = {}
            for _ in range(12):
                number = choose.randrange(len(KEYS))
                if number in handles:
                    handles.pop(number).release()
                else:
                    handles[number] = sandbox.register(scenario[number])
                snapshot = sandbox.snapshot(FOO)
                stale += snapshot.slots != snapshot.table
                rows = dict(line.split(": ", 1) for line in (snapshot.slots or "").splitlines())
                for key in choose.sample(CALLED, 12):
                    shown = rows.get(str(key), "nothing")
                    # NB: a fallback of PyTorch's own goes on to the next key, and may reach any kernel from there.
                    if not shown.endswith("[backend fallback]"):
                        ours = shown.partition(" ")[0] if shown.startswith("k") else None
                        assert reached(found, key, x) == ours
                        calls += 1
            del found
    assert calls > 2000
    assert stale > 10


def test_kernels_whose_functors_and_boxed_functions_lie_equally_far_apart_are_told_apart() -> None:
    functor, boxed = 0x55D0_1234_5600, 0x7F83_DE29_B670
    words = [(functor, boxed), (functor + 256, boxed - 256), (0, boxed), (0, 0)]
    memory = np.array([(*two, 0, 0) for two in words], dtype=np.uint64)
    found = SlotView(MemoryLayout(0, 32, 0, len(words), old_strings=False), memory.ctypes.data).fingerprints().tolist()
    assert found == [fingerprint(*two) for two in words]
    assert len(set(found)) == 4
    assert found[3] == MISSING
