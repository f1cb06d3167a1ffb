"""Rules about effects of the order of imports: DL002 for overridden kernels, DL009 for stale slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.questions.certify.certificate import Cause, OrderReason, is_of_custom_op, overrides_of
from dispatchlab.questions.coverage.coverage_on_lab import stale_text
from dispatchlab.questions.lint.backend_rules import beside, brought
from dispatchlab.questions.lint.rule import Found, Level, Subject, rule
from dispatchlab.registries.debug_text import Packages, file_in, owner, stale_order_text
from dispatchlab.registries.model import RecordedOperator
from dispatchlab.views.formatting import first_of

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration


_KEYS_SHOWN = 4
_NEVER_RUNS = "which no longer runs"
_SORTED = "; the order of imports decides which one runs, so a sorter of imports can change it"


@rule("DL002")
def _shadows(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    for operator in operators:
        is_custom_op = subject.calls_of(operator).is_custom_op
        for key, kernels in overrides_of(operator):
            if is_custom_op and key is DispatchKey.Autograd and kernels[1].debug == operator.debug:
                continue  # an Autograd kernel in place of the one that custom_op registers
            debugs = tuple(kernel.debug for kernel in kernels)
            by_torch = [packages.is_torch(operator, key, debug) for debug in debugs]
            if all(by_torch) or is_of_custom_op(operator, key, kernels):
                continue
            winner, *losers = kernels
            files = list(dict.fromkeys(map(file_in, debugs)))
            them = " and of ".join(owner(kernel.debug) for kernel in losers)
            fixed = packages.are_one(operator, [(key, debug) for debug in debugs])
            of_torch = all(by_torch[1:])
            if of_torch and key is DispatchKey.CPU and beside(operator, winner, packages, brought(subject, packages)):
                continue  # DL022 says where the kernel belongs
            which = (
                "PyTorch's own, for every program that imports it"
                if of_torch
                else f"{_NEVER_RUNS}{_SORTED * (len(files) > 1)}"
                if fixed
                else "because it came later; in another order of imports, another one wins"
            )
            yield Found(
                str(operator.name),
                key,
                f"the kernel from {owner(winner.debug)} overrides that of {them}, {which}",
                debugs,
                Level.INFORMATION if fixed and not all(one.endswith(".py") for one in files) else Level.WARNING,
                cause=" over ".join(files),
                fix=_fix_of_custom_op(operator, key)
                if is_custom_op and kernels[1].debug == operator.debug
                else "remove one of the kernels, or register it at another key"
                if fixed
                else "define an operator of your own, and call that one"
                if of_torch
                else "remove one of the two, or, after importing the other, "
                f'lib.impl("{operator.name.without_namespace}", fn, "{key}", allow_override=True)',
            )
    yield from _overwritten(subject.python)


def _fix_of_custom_op(operator: RecordedOperator, key: DispatchKey) -> str:
    """Return the call that adds a function to an operator of custom_op, in place of a kernel over its own."""
    if key is DispatchKey.Meta:
        return f'torch.library.register_fake("{operator.name}")(fn), in place of the Meta kernel'
    device = key.name.lower() if key.name in BACKENDS else "cpu"
    return f'torch.library.register_kernel("{operator.name}", "{device}")(fn), in place of the {key} kernel'


def _overwritten(registrations: Iterable[PythonRegistration]) -> Iterator[Found]:
    """Find the entries of Python registries that replaced another entry."""
    from dispatchlab.model.python_layer import by_slot  # costs start-up, and few have any

    for (registry, operator, key), (*losers, winner) in by_slot(registrations).items():
        if not losers or registry == "inductor_fallbacks":  # which is a set
            continue
        sites = [f"registered at {one.site or one.function}" for one in (winner, *losers)]
        fixed = len({site.partition("/")[0] for site in sites}) == 1
        which = _NEVER_RUNS if fixed else "because it came later; in another order of imports, another one wins"
        where = f"{winner.registry}{f' {key}' if key else ''}"
        them = " and of ".join(dict.fromkeys(map(owner, sites[1:])))
        yield Found(
            operator,
            None,
            f"the entry in {where} from {owner(sites[0])} replaced that of {them}, {which}",
            tuple(sites),
            Level.INFORMATION if fixed else Level.WARNING,
            cause=" over ".join(dict.fromkeys(map(file_in, sites))),
            fix="remove one of the two, or import the package that should win after the other one",
        )


@rule("DL009", needs="it needs an engine that tries other orders", can_run=lambda subject: subject.order_of is not None)
def _order(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    assert subject.order_of is not None
    chosen = list(operators)
    by_name = {str(operator.name): operator for operator in chosen}
    packages = Packages(subject.recorded)
    now = {str(operator.name): stale_text(operator, subject.fill, subject.recorded.torch) for operator in chosen}
    for name, reasons in subject.order_of(chosen).items():
        for reason in reasons:
            if reason.cause is Cause.STALE and name in by_name:
                yield _stale(by_name[name], reason, packages, now.pop(name, ""))
    for name in (name for name in now if now[name]):  # slots that a released kernel left stale
        debugs = tuple(kernel.debug for kernel in by_name[name].kernels)
        fix = "register its kernels before the first call, and release none"
        yield Found(name, None, now[name], debugs, Level.WARNING, cause="released", fix=fix)


def _stale(operator: RecordedOperator, reason: OrderReason, packages: Packages, now: str) -> Found:
    """Return an operator with slots that depend on an order; `now` has the slots that are already stale."""
    kernels = [registration for registration in reason.registrations if registration.key is not None]
    debugs = tuple(kernel.debug for kernel in kernels)
    when = "" if reason.in_force else ", while not everything is imported"
    fixed = packages.are_one(operator, [(kernel.key, kernel.debug) for kernel in kernels])
    keys = first_of(reason.keys, _KEYS_SHOWN)
    depends = stale_order_text(keys, [(kernel.key, kernel.debug) for kernel in kernels])
    depends = f"{depends}{when}. No dump shows the difference"
    drop = "drop one of the two" if len(kernels) > 1 else "drop it"
    return Found(
        str(operator.name),
        reason.keys[0],
        f"{now}; {depends}" if now else depends,
        debugs,
        Level.INFORMATION if fixed and not now else Level.WARNING,
        cause=" and ".join(str(kernel.key) for kernel in kernels),
        # One kernel more does not help where several keys are stale.
        fix=f'lib.impl("{operator.name.without_namespace}", fn, "{reason.keys[0]}"), or {drop}'
        if len(reason.keys) == 1
        else f"{drop}, or register the composite kernel last, in every order of imports",
    )


@rule(
    "DL016",
    needs="it needs a record that is laid over the registry of its PyTorch",
    can_run=lambda subject: not subject.python or subject.beneath is not None,
)
def _replaced(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    """Return PyTorch's entries that are not in force after the imports, for other operators."""
    if subject.beneath is None:
        return
    from dispatchlab.model.python_layer import by_slot  # costs start-up, and few have any

    for slot, made in by_slot(subject.python).items():
        theirs = [one for one in subject.beneath.of(slot[1]) if one.slot == slot and one.active]
        if not theirs or slot[0] == "inductor_fallbacks":  # which is a set
            continue
        ours, torch = made[-1], theirs[-1]
        if ours.function != torch.function:
            yield _found(ours, torch)


def _found(ours: PythonRegistration, torch: PythonRegistration) -> Found:
    where = f"{ours.registry}{f' {ours.key}' if ours.key else ''}"
    sites = tuple(f"registered at {one.site or one.function}" for one in (ours, torch))
    return Found(
        ours.operator,
        None,
        f"{owner(sites[0])} takes the place of PyTorch's own entry in {where}, {torch.function}: for every program "
        "that imports it",
        sites,
        cause=f"{file_in(sites[0])} in {ours.registry}",
        fix="register it for an operator of your own, and call that one",
    )
