"""A fix of `permute` says which calls raise an error after it: the running PyTorch agrees, in both orders."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.scenario import parse_scenario

torch = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

NAMES = {"CompositeImplicitAutograd": "fn_math", "NestedTensorCPU": "fn_nested"}
REACHES = "But then a call of test::foo at "
RAISES = " always raises an error"


def fix_lines() -> list[str]:
    rows = ", ".join(f"{{impl: foo, dispatch: {key}, debug: {name}}}" for key, name in NAMES.items())
    whole = f"{{def: foo(Tensor x) -> Tensor, debug: def_foo}}, {rows}"
    scenario = parse_scenario(f"{{claim: A sentence., semantics: torch-2.13, registrations: [{whole}]}}")
    reason = run_scenario(scenario, RunOptions()).report.reason
    assert reason is not None
    return reason.fix.splitlines()


def raising(keys: Sequence[str]) -> set[str]:
    """Return the kinds of tensors with which a call raises after kernels at these keys, registered in this order."""
    with torch.library._scoped_library("permute_fixes", "FRAGMENT") as library:
        library.define("foo(Tensor x) -> Tensor")
        for key in keys:
            library.impl("foo", lambda x: x.clone(), key)
        tensors = {"CPU": torch.ones(2), "NestedTensorCPU": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}
        failed = set()
        for kind, tensor in tensors.items():
            try:
                torch.ops.permute_fixes.foo(tensor)
            except NotImplementedError:
                failed.add(kind)
        return failed


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_calls_that_a_fix_names_raise_and_the_others_run() -> None:
    without_nested, without_math, ordered = fix_lines()
    assert without_nested == "drop the kernel fn_nested"
    assert raising(["CompositeImplicitAutograd"]) == set()
    assert without_math == f"or drop the kernel fn_math. {REACHES}90 keys (CPU, ...){RAISES}"
    assert raising(["NestedTensorCPU"]) == {"CPU", "NestedTensorCPU"}
    assert ordered.startswith(
        "or register the kernel fn_nested before the kernel fn_math, and keep both registered. "
        f"{REACHES}AutogradNestedTensor{RAISES}. "
    )
    assert raising(["NestedTensorCPU", "CompositeImplicitAutograd"]) == {"NestedTensorCPU"}
    assert raising(["CompositeImplicitAutograd", "NestedTensorCPU"]) == set()
