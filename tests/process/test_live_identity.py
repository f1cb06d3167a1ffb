"""Kernels that share a debug text, on the running PyTorch: the slot's pointer says which registration is in force."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.model.keys import PARSED_BY_TORCH
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import Block, BlockKind, Impl, Kernel, TorchLibraryCall, TorchLibraryFunction
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.result import Verdict
from tests.live.live_registrations import BY_REFERENCE, FALLTHROUGH, FOO, define, impl

KEYS = sorted(PARSED_BY_TORCH - {K.Undefined}, key=int)


@pytest.fixture(scope="module")
def engine() -> Iterator[LiveEngine]:
    with LiveEngine() as engine:
        yield engine


@pytest.mark.parametrize("key", [None, *KEYS[::6]], ids=str)
def test_every_pair_of_kernels_with_equal_texts_is_order_dependent(engine: LiveEngine, key: K | None) -> None:
    kernels = (Kernel(), FALLTHROUGH, Kernel(function=os.path.join), Kernel(function=os.path.split))
    for at, other in combinations_with_replacement(range(len(kernels)), 2):
        found = engine.explore(
            [impl(key, "fn", kernels[at]), impl(key, "fn", kernels[other])], [FOO], WalkOptions(passes=2)
        )
        one_kernel = at == other and at != 0
        assert found.verdict is (Verdict.NO_VIOLATION_FOUND if one_kernel else Verdict.ORDER_DEPENDENT), (at, other)


def test_the_difference_names_the_registrations(engine: LiveEngine) -> None:
    found = engine.explore([define(), impl(K.CPU, "ops.py:12"), impl(K.CPU, "ops.py:12", BY_REFERENCE)], [FOO])
    assert found.counterexample is not None
    assert "+CPU: ops.py:12 (registration 1) [kernel]\n" in found.counterexample.diff
    assert "-CPU: ops.py:12 (registration 2) [kernel]\n" in found.counterexample.diff


def test_two_calls_of_torch_library_on_one_line_are_two_kernels(engine: LiveEngine) -> None:
    call = TorchLibraryCall(TorchLibraryFunction.IMPL, FOO.without_namespace)
    line = Block("test", BlockKind.FRAGMENT, (Impl(FOO.without_namespace, K.CPU, debug="a:1"),), None, "a:1", call)
    found = engine.explore([define(), line, line], [FOO])
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert found.counterexample is not None
    assert "a:1 (registration 2)" in found.counterexample.diff
