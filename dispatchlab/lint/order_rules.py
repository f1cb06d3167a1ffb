"""Rules about what the order of imports decides: DL002 for kernels that override others, DL009 for stale slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dispatchlab.analysis.certificate import Cause, OrderReason, is_of_custom_op, overrides_of
from dispatchlab.lint.debug_text import Packages, file_in, owner
from dispatchlab.lint.rule import Found, Level, Rule, Subject, example
from dispatchlab.registry.model import RecordedOperator

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration

_KEYS_SHOWN = 4


def _shadows(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    for operator in operators:
        for key, kernels in overrides_of(operator):
            debugs = tuple(kernel.debug for kernel in kernels)
            by_torch = all(packages.is_torch(operator, key, debug) for debug in debugs)
            if by_torch or is_of_custom_op(operator, key, kernels):
                continue
            winner, *losers = kernels
            them = " and of ".join(owner(kernel.debug) for kernel in losers)
            fixed = packages.are_one(operator, [(key, debug) for debug in debugs])
            which = "which never runs" if fixed else "because it came later: another order of imports, another kernel"
            yield Found(
                str(operator.name),
                key,
                f"the kernel from {owner(winner.debug)} overrides that of {them}, {which}",
                debugs,
                Level.INFORMATION if fixed else Level.WARNING,
                cause=" over ".join(dict.fromkeys(file_in(debug) for debug in debugs)),
                mend="remove one of the two, or, after importing the other, "
                f'lib.impl("{_local(operator)}", fn, "{key}", allow_override=True)',
            )
    yield from _overwritten(subject.python)


def _overwritten(registrations: Iterable[PythonRegistration]) -> Iterator[Found]:
    """The entries of registries of Python that took the place of another one."""
    from dispatchlab.model.python_layer import Second, by_slot  # costs start-up, and few have any

    made = [one for one in registrations if not one.effect]  # what is refused or removed takes no place
    for (_, operator, key), (*losers, winner) in by_slot(made).items():
        rule = winner.described.rule
        if not losers or (rule is not None and rule.second is Second.SAME):
            continue
        sites = [f"registered at {one.site or one.function}" for one in (winner, *losers)]
        fixed = len({site.partition("/")[0] for site in sites}) == 1
        which = "which never runs" if fixed else "because it came later: another order of imports, another function"
        where = f"{winner.registry}{f' {key}' if key else ''}"
        them = " and of ".join(dict.fromkeys(map(owner, sites[1:])))
        yield Found(
            operator,
            None,
            f"the entry in {where} from {owner(sites[0])} took the place of that of {them}, {which}",
            tuple(sites),
            Level.INFORMATION if fixed else Level.WARNING,
            cause=" over ".join(dict.fromkeys(map(file_in, sites))),
            mend="remove one of the two, or import the package that is to win after the other one",
        )


def _local(operator: RecordedOperator) -> str:
    return str(operator.name).partition("::")[2]


SHADOWS = Rule(
    code="DL002",
    name="shadowed-kernel",
    level=Level.WARNING,
    what=(
        "Two kernels of one operator are registered at one key, or two functions in one entry of a registry of Python; "
        "the newest is the one that runs."
    ),
    why=(
        "Which one is newest is decided by the order of imports, which nobody writes down. The other kernel is dead "
        "code that looks alive, and comes back when the package of the newer one is not imported. Within one package "
        "the order is that of its own code, and the finding is information."
    ),
    mend=(
        "If the override is meant, register it where it is certain to come later (after importing the package that it "
        "replaces) and pass allow_override=True to say so. Else choose another key, or remove one of the two."
    ),
    unknown=(
        "Whether the override is meant: a dump does not show allow_override. PyTorch's overrides of its own kernels "
        "are not reported, since it always imports both in one order, nor the two ADInplaceOrView kernels that "
        "custom_op registers by itself. Kernels of C++ belong to a package as far as the path of their build shows it. "
        "Registries of Python are known from records of several packages alone, and what a package writes over within "
        "itself is not seen there."
    ),
    bad=example(("CPU", "first_package/cpu.py:7"), ("CPU", "second_package/cpu.py:9")),
    good=example(("CPU", "first_package/cpu.py:7"), ("CUDA", "second_package/cpu.py:9")),
    check=_shadows,
)


def _order(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    assert subject.order_of is not None
    chosen = list(operators)
    by_name = {str(operator.name): operator for operator in chosen}
    packages = Packages(subject.recorded)
    for name, reasons in subject.order_of(chosen).items():
        for reason in reasons:
            if reason.cause is Cause.STALE and name in by_name:
                yield _stale(by_name[name], reason, packages)


def _stale(operator: RecordedOperator, reason: OrderReason, packages: Packages) -> Found:
    keys = ", ".join(map(str, reason.keys[:_KEYS_SHOWN]))
    more = f" and {len(reason.keys) - _KEYS_SHOWN} more" if len(reason.keys) > _KEYS_SHOWN else ""
    kernels = [one for one in reason.registrations if one.key is not None]
    them = " and ".join(f"{one.key} from {owner(one.debug)}" for one in kernels)
    debugs = tuple(one.debug for one in kernels)
    when = "" if reason.in_force else ", while not everything is imported"
    fixed = packages.are_one(operator, [(one.key, one.debug) for one in kernels])
    return Found(
        str(operator.name),
        reason.keys[0],
        f"what calls use at {keys}{more} depends on which of {them} came first{when}; no dump shows it",
        debugs,
        Level.INFORMATION if fixed else Level.WARNING,
        cause=" and ".join(str(one.key) for one in kernels),
        mend=f'lib.impl("{_local(operator)}", fn, "{reason.keys[0]}"), or drop one of the two',
    )


ORDER = Rule(
    code="DL009",
    name="order-matters",
    level=Level.WARNING,
    what="What calls use depends on the order of registrations, although every dump is the same.",
    why=(
        "PyTorch refreshes too few slots when some kernels come or go: CompositeExplicitAutograd after "
        "CompositeImplicitAutograd leaves 34 slots stale, Quantized, Sparse and NestedTensor kernels leave "
        "AutogradOther or AutogradNestedTensor stale. Calls then run another kernel than `_dispatch_dump_table` "
        "prints, and results differ between two orders of import. Within one package the order is that of its own "
        "code, and the finding is information."
    ),
    mend=(
        "Register the composite kernel last, or give the slot a kernel of its own (an AutogradOther or "
        "AutogradNestedTensor kernel), or do not combine the two kernels. `dispatchlab permute` on a scenario with "
        "these registrations shows the two orders."
    ),
    unknown=(
        "In which order this process registered them, and so what its slots hold now. It reports that two orders "
        "differ in the model of the PyTorch that was recorded, or of the newest for a scenario that names none."
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
