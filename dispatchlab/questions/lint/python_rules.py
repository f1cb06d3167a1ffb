"""The rule about what packages do to PyTorch's own entries in the registries of Python: DL016."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dispatchlab.questions.lint.debug_text import file_in, owner
from dispatchlab.questions.lint.rule import Found, Subject, rule
from dispatchlab.records.model import RecordedOperator

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration


def _replaced(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    """The entries of PyTorch that are not in force after the imports; `operators` have nothing to do with it."""
    if subject.beneath is None:
        return
    from dispatchlab.model.python_layer import Second, by_slot  # costs start-up, and few have any

    for slot, writes in by_slot(subject.python).items():
        made = [one for one in writes if one.effect not in ("refused", "used")]
        theirs = [one for one in subject.beneath.of(slot[1]) if one.slot == slot and one.active]
        rule = writes[-1].described.rule
        if not made or not theirs or rule is None or rule.second is Second.SAME:
            continue  # a set has no entry that another one could take the place of
        ours, torch = made[-1], theirs[-1]
        if ours.effect != "removed" and ours.function == torch.function:
            continue  # it was put back
        yield _found(ours, torch)


def _found(ours: PythonRegistration, torch: PythonRegistration) -> Found:
    where = f"{ours.registry}{f' {ours.key}' if ours.key else ''}"
    sites = tuple(f"registered at {one.site or one.function}" for one in (ours, torch))
    verb = "takes out" if ours.effect == "removed" else "takes the place of"
    return Found(
        ours.operator,
        None,
        f"{owner(sites[0])} {verb} PyTorch's own entry in {where}, {torch.function}: for every program that imports it",
        sites,
        cause=f"{file_in(sites[0])} in {ours.registry}",
        mend="register it for an operator of your own, and call that one",
    )


REPLACES_TORCH = rule(
    "DL016",
    _replaced,
    needs="it needs a record that is laid over the registry of its PyTorch",
    can_run=lambda subject: not subject.python or subject.beneath is not None,
)
