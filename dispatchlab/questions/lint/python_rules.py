"""The rule about what packages do to PyTorch's own entries in the registries of Python: DL016."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dispatchlab.questions.lint.debug_text import file_in, owner
from dispatchlab.questions.lint.rule import Found, Level, Rule, Subject
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


def _example(operator: str) -> str:
    """A record of a package that has a lowering for an operator, as far as the rule looks at it."""
    return (
        "registry: torch-2.13\n"
        "modules:\n"
        "  my_package: [0, 1]\n"
        "registrations:\n"
        "  - def: scale(Tensor x, float s) -> Tensor\n"
        "python:\n"
        "  - registry: inductor_lowerings\n"
        f"    operator: {operator}\n"
        "    function: my_package.lowerings:lower\n"
        "    site: my_package/lowerings.py:7"
    )


REPLACES_TORCH = Rule(
    code="DL016",
    name="pytorch-entry-replaced",
    level=Level.WARNING,
    what="A package puts its own function in the place of one of PyTorch's, in a registry of Python.",
    why=(
        "These registries are of the whole process: a decomposition, a fake-tensor rule or a lowering of an operator "
        "of PyTorch is used by every program that imports the package, for tensors that have nothing to do with it. "
        "Nothing says so, no dump shows it, and nothing takes it back. Another package that does the same differs by "
        "the order of imports."
    ),
    mend=(
        "Register it for an operator of your own, and call that one. A decomposition can be given to what traces "
        "instead: `make_fx(f, decomposition_table={...})`, or `run_decompositions({...})` of an exported program."
    ),
    unknown=(
        "Whether it is meant, and whether the function does the same as PyTorch's. Registries of Python are known from "
        "records of packages alone, and what PyTorch has from a recording of its version: that has what its own "
        "imports bring. A kernel at a dispatch key that overrides one of PyTorch's is DL002."
    ),
    bad=_example("aten::relu"),
    good=_example("test::scale"),
    check=_replaced,
    needs="it needs a record that is laid over the registry of its PyTorch",
    can_run=lambda subject: not subject.python or subject.beneath is not None,
)
