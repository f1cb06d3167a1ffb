"""The generated kernels of Functionalize against the running PyTorch: writes of every function that has one."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

from dispatchlab.codegen.emit.registrations import Body, registrations_of
from dispatchlab.codegen.read.native_functions import load_native_functions
from tests.effort import share
from tests.functionalize_calls import Call, TheirSide, compared, generated_call, is_called, our_side

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
packaged: Any = pytest.importorskip("torchgen.packaged", reason="torchgen comes with PyTorch: dispatchlab[torch]")
FILE = f"{next(iter(packaged.__path__))}/ATen/native/native_functions.yaml"


def test_writes_of_functional_tensors_call_what_pytorch_calls_and_leave_what_it_leaves() -> None:
    registrations = registrations_of(load_native_functions(FILE))
    functions = [
        each.function
        for each in registrations
        if is_called(each.function) and any(kernel.body is Body.FUNCTIONALIZES for kernel in each.kernels)
    ]
    assert len(functions) > 700
    choose = random.Random(0)
    chosen = choose.sample(functions, len(functions))

    def made(at: int) -> Call:
        return generated_call(choose, chosen[at % len(chosen)])

    with our_side(torch, registrations) as ours, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of operators, which both sides call
        counted = compared((lambda at=at: made(at) for at in range(share(600))), TheirSide(torch), ours)  # type: ignore[misc]
    assert counted["value"] > share(300)
