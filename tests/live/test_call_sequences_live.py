"""Generated calls over random registrations, on the running PyTorch and on the lab: every kernel, in order."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tests.call_sequences import LAB_KINDS, Called, LabSide, Line, kinds_of, program
from tests.live.torch_side import KINDS, TorchSide

# PyTorch warns that some of its tensors are in beta, once in a process.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:", "ignore::DeprecationWarning")

CALLS_EACH = 4


@dataclass
class Comparison:
    """What a comparison came to.

    Args:
        calls: how many calls there were.
        kernels: how many kernels ran in them.
        ends: how many calls ended in which way.
        keys: where kernels were registered that ran.
        named: how many calls differ for a reason that has a name.
        different: the calls that differ for no known reason.
    """

    calls: int = 0
    kernels: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)
    named: Counter[str] = field(default_factory=Counter)
    different: list[tuple[int, Called, list[Line], list[Line]]] = field(default_factory=list)


PYTHON_FALLBACK = "a Python fallback, with a subclass or a mode"
FACTORIES = "a factory inside of a kernel, with BackendSelect or CPU excluded"
REASONS = {PYTHON_FALLBACK, FACTORIES}


def reason(called: Called, theirs: list[Line], ours: list[Line]) -> str:
    """Why a call differs, of what is known; empty for no reason."""
    kinds = kinds_of(called.given)
    if "func != nullptr" in str(theirs[-1]):
        # PyTorch fails with an internal assertion: it looks for a kernel of the operator, and there is a fallback.
        return PYTHON_FALLBACK
    if "zero" in kinds and {"exclude BackendSelect", "exclude CPU"} & {*called.guards}:
        # `zeros` makes its result by calls of other operators in PyTorch, which have no kernel then.
        return FACTORIES
    return ""


def compared(calls: int, seed: int) -> Comparison:
    """The outcome of so many generated calls."""
    found = Comparison()
    theirs, ours = TorchSide(), LabSide()
    for number in range(calls // CALLS_EACH):
        one = program(random.Random(f"{seed} {number}"), [*LAB_KINDS], calls=CALLS_EACH)
        their_lines = theirs.run(one, number)
        our_lines = ours.run(one, number)
        for called, their, our in zip(one.calls, their_lines, our_lines, strict=True):
            found.calls += 1
            found.kernels += sum(line[0] in ("kernel", "fallback") for line in their)
            found.keys |= {str(line[2]) for line in their if line[0] in ("kernel", "fallback")}
            found.ends[str(their[-1][0])] += 1
            if their == our:
                continue
            why = reason(called, their, our)
            if why:
                found.named[why] += 1
            else:
                found.different.append((number, called, their, our))
    return found


ENDS = (
    *("returned", "missing_kernel", "no_tensor_arguments", "wrong_value", "fails", "PlantedError"),
    "ambiguous_autogradother",
)


def test_a_sample_of_generated_calls_runs_the_kernels_that_pytorch_runs() -> None:
    assert [*LAB_KINDS] == [*KINDS]
    found = compared(600, seed=1)
    assert found.different == []
    assert set(found.named) <= REASONS
    assert found.named.total() < 4
    assert (found.calls, set(ENDS) - set(found.ends)) == (600, set())
    assert found.kernels > 600
    assert len(found.keys) > 20
