"""Rules DL002 and DL009: kernels that replace others, and operators whose slots depend on the order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.analysis.certificate import Cause, OrderReason, overrides_of
from dispatchlab.lint.rule import Found, Rule, Subject, example, owner
from dispatchlab.registry.model import RecordedOperator

_KEYS_SHOWN = 4


def _shadows(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        for key, kernels in overrides_of(operator):
            winner, *losers = kernels
            yield Found(
                str(operator.name),
                key,
                f"the kernel from {owner(winner.debug)} takes the place of "
                f"{' and of '.join(owner(k.debug) for k in losers)}, because it came later",
                tuple(kernel.debug for kernel in kernels),
            )


SHADOWS = Rule(
    code="DL002",
    name="shadowed-kernel",
    what="Two kernels of one operator are registered at one key; the newest is the one that runs.",
    why=(
        "Which one is newest is decided by the order of imports, which nobody writes down. The other kernel is dead "
        "code that looks alive, and comes back when the package of the newer one is not imported."
    ),
    mend=(
        "If the override is meant, register it where it is certain to come later (after importing the package that it "
        "replaces) and pass allow_override=True to say so. Else choose another key, or remove one of the two."
    ),
    bad=example(("CPU", "first_package/cpu.py:7"), ("CPU", "second_package/cpu.py:9")),
    good=example(("CPU", "first_package/cpu.py:7"), ("CUDA", "second_package/cpu.py:9")),
    check=_shadows,
)


def _order(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    assert subject.order_of is not None
    chosen = list(operators)
    by_name = {str(operator.name): operator for operator in chosen}
    for name, reasons in subject.order_of(chosen).items():
        for reason in reasons:
            if reason.cause is Cause.STALE and name in by_name:
                yield _stale(name, reason)


def _stale(name: str, reason: OrderReason) -> Found:
    keys = ", ".join(map(str, reason.keys[:_KEYS_SHOWN]))
    more = f" and {len(reason.keys) - _KEYS_SHOWN} more" if len(reason.keys) > _KEYS_SHOWN else ""
    slots = f"{keys}{more}"
    kernels = [one for one in reason.registrations if one.key is not None]
    them = " and ".join(f"{one.key} from {owner(one.debug)}" for one in kernels)
    when = "" if reason.in_force else ", at least while not everything is imported"
    return Found(
        name,
        reason.keys[0],
        f"what calls use at {slots} depends on which of {them} came first{when}; no dump shows it",
        tuple(one.debug for one in kernels),
    )


ORDER = Rule(
    code="DL009",
    name="order-matters",
    what="What calls use depends on the order of registrations, although every dump is the same.",
    why=(
        "PyTorch 2.13 refreshes too few slots when some kernels come or go: CompositeExplicitAutograd after "
        "CompositeImplicitAutograd leaves 34 slots stale, Quantized, Sparse and NestedTensor kernels leave "
        "AutogradOther or AutogradNestedTensor stale. Calls then run another kernel than `_dispatch_dump_table` "
        "prints, and results differ between two orders of import."
    ),
    mend=(
        "Register the composite kernel last, or give the slot a kernel of its own (an AutogradOther or "
        "AutogradNestedTensor kernel), or do not combine the two kernels. `dispatchlab permute` on a scenario with "
        "these registrations shows the two orders."
    ),
    bad=example(
        ("CompositeImplicitAutograd", "my_package/composite.py:3"),
        ("CompositeExplicitAutograd", "my_package/explicit.py:5"),
        head="semantics: torch-2.13",
    ),
    good=example(
        ("CPU", "my_package/cpu.py:3"),
        ("CompositeExplicitAutograd", "my_package/explicit.py:5"),
        head="semantics: torch-2.13",
    ),
    check=_order,
    needs="it needs an engine that tries other orders",
    can_run=lambda subject: subject.order_of is not None,
)
