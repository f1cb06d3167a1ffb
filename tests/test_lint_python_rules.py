"""DL016 and DL002 on what packages register in Python: what was refused, removed, put back or added to a set."""

from __future__ import annotations

import pytest

from dispatchlab.model.python_layer import PythonRegistration, WriteEffect
from dispatchlab.model.python_layer_in_memory import python_layer
from dispatchlab.questions.lint.rule import Subject
from dispatchlab.questions.lint.rules import rule_named
from dispatchlab.records.model import RecordedOperator, registry_of

RELU = "aten::relu"


def write(
    function: str = "mine:lower",
    registry: str = "inductor_lowerings",
    key: str = "",
    effect: WriteEffect = "",
    operator: str = RELU,
) -> PythonRegistration:
    """What a package, the first part of the function, writes."""
    site = f"{function.partition(':')[0]}/ops.py:7"
    return PythonRegistration(registry, operator, key, function=function, site=site, effect=effect)


TORCH = (
    write("torch._inductor.lowering:relu"),
    write("torch._decomp:relu", "decompositions", "post_autograd"),
    write("", "inductor_fallbacks"),
)
"""What PyTorch has."""


def subject(*writes: PythonRegistration, known: bool = True) -> Subject:
    """A record with these writes and no operator; what PyTorch has is known or not."""

    def nothing(operator: RecordedOperator, key: object) -> object:
        raise AssertionError("no rule about Python looks at a slot of the dispatch table")

    beneath = python_layer("2.13.0", TORCH) if known else None
    return Subject(registry_of("2.13.0", []), nothing, python=writes, beneath=beneath)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("writes", "said"),
    [
        ((write(),), "takes the place of PyTorch's own entry in inductor_lowerings, torch._inductor.lowering:relu"),
        ((write("mine:a"), write("mine:b")), "takes the place of"),
        ((write(effect="removed"),), "takes out PyTorch's own entry in inductor_lowerings"),
        (
            (write("mine:relu", "decompositions", "post_autograd"),),
            "in decompositions post_autograd, torch._decomp:relu",
        ),
        ((write("mine:relu", "decompositions", "pre_autograd"),), None),
        ((write(operator="mine::relu"),), None),
        ((write(effect="refused"),), None),
        ((write(effect="removed"), write("torch._inductor.lowering:relu")), None),
        ((write("mine:a"), write("mine:b", effect="refused")), "takes the place of"),
        ((write("", "inductor_fallbacks"),), None),
        ((), None),
    ],
)
def test_an_entry_of_pytorch_that_is_not_in_force_any_more_is_found(
    writes: tuple[PythonRegistration, ...], said: str | None
) -> None:
    found = list(rule_named("DL016").check(subject(*writes), []))
    assert [said in one.message for one in found if said is not None] == ([] if said is None else [True])
    assert len(found) == (said is not None)
    assert all(one.operator == RELU and one.owners[0].startswith("registered at mine/ops.py") for one in found)


def test_it_cannot_run_where_nobody_knows_what_pytorch_has() -> None:
    assert not rule_named("DL016").can_run(subject(write(), known=False))
    assert list(rule_named("DL016").check(subject(write(), known=False), [])) == []
    assert rule_named("DL016").can_run(subject(known=False))  # there is nothing to look at
    assert rule_named("DL016").can_run(subject(write()))


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (write("other:lower"), True),
        (write("other:lower", effect="refused"), False),  # the first one is in force
        (write("other:lower", effect="removed"), False),
        (write("other:lower", "inductor_fallbacks"), False),
    ],
)
def test_what_takes_no_place_shadows_nothing(second: PythonRegistration, found: bool) -> None:  # noqa: FBT001
    writes = (write(registry=second.registry), second)
    assert bool(list(rule_named("DL002").check(subject(*writes), []))) is found
