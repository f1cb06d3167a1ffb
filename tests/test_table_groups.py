"""Tables grouped by kernel: every row is in one group, and every kernel that lost is named."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import NEWER, OperatorView
from dispatchlab.questions.dump.inspect_operators import inspect_registry
from dispatchlab.questions.dump.table_groups import KernelGroup, group_by_kernel
from dispatchlab.questions.sources.find_sources import recorded_from
from dispatchlab.scenario import parse_scenario
from tests.scenario_texts import COMPOSITES

FOO = OperatorName("test", "foo")
TORCH = "torch-2.13-cpu"
MANY = ("aten::add.Tensor", "aten::mm", "aten::zero_", "aten::addmm", "aten::sum.dim_IntList", "aten::to.dtype")


def views(*names: str) -> list[OperatorView]:
    """Operators of PyTorch 2.13 with the reasons behind their tables."""
    recorded = recorded_from(TORCH)
    return [inspect_registry(recorded, name, source=TORCH).only_view for name in names]


def view_after(text: str) -> OperatorView:
    """test::foo after all registrations of a scenario."""
    scenario = parse_scenario(text)
    made = Dispatcher.for_scenario(scenario.semantics or "strict")
    held = [made.register(registration) for registration in scenario.registrations]
    found = made.explain(FOO)
    assert found is not None
    assert held
    return found


@pytest.mark.parametrize("name", MANY)
def test_every_row_is_in_one_group_and_every_loser_is_named(name: str) -> None:
    (view,) = views(name)
    table = group_by_kernel(view)
    groups = (*table.kernels, *table.fallbacks)
    served = Counter(key for group in groups for key in group.keys) + Counter(table.ambiguous)
    assert served == Counter(row.key for row in view.table if row.text)
    assert [group.registered for group in table.kernels] == list(view.kernels)
    for row in view.table:
        (group,) = [each for each in groups if row.key in each.keys]
        assert (group.debug, group.fallthrough) == (row.debug, row.fallthrough)
        for beaten in row.beaten:
            assert any(
                (each.debug, lost.why) == (beaten.debug, beaten.why) and row.key in lost.keys
                for each in groups
                for lost in each.lost
            )


@pytest.mark.parametrize("name", MANY)
def test_a_table_that_pytorch_printed_has_the_same_groups(name: str) -> None:
    (view,) = views(name)
    plain = replace(view, table=tuple(replace(row, source="", beaten=()) for row in view.table))
    with_reasons, without = group_by_kernel(view), group_by_kernel(plain)

    def served(groups: tuple[KernelGroup, ...]) -> list[object]:
        return [(group.key, group.served) for group in groups if group.served]

    assert served(without.kernels) == served(with_reasons.kernels)
    assert served(without.fallbacks) == served(with_reasons.fallbacks)


def test_an_overridden_kernel_serves_nothing_and_says_why() -> None:
    (view,) = views("aten::add.Tensor")
    (hidden,) = [group for group in group_by_kernel(view).kernels if group.is_overridden]
    assert (hidden.key, hidden.served) == ("Meta", ())
    assert [(lost.why, lost.winner, lost.keys) for lost in hidden.lost] == [(NEWER, Provenance.KERNEL, ("Meta",))]


def test_kernels_with_one_text_are_told_apart_by_their_keys() -> None:
    with pytest.warns(OverrideWarning):
        view = view_after(
            "claim: c\nregistrations:\n- def: test::foo(Tensor x) -> Tensor\n"
            "- {impl: test::foo, dispatch: CPU, debug: fn}\n- {impl: test::foo, dispatch: CPU, debug: fn}\n"
            "- {impl: test::foo, dispatch: CUDA, debug: fn}\n- {impl: test::foo, dispatch: Autograd, debug: fn}\n"
        )
    groups = group_by_kernel(view).kernels
    assert sorted((each.key, each.is_overridden, each.keys[:1]) for each in groups) == [
        ("Autograd", False, ("AutogradOther",)),
        ("CPU", False, ("CPU",)),
        ("CPU", True, ()),
        ("CUDA", False, ("CUDA",)),
    ]


def test_stale_slots_are_named_with_what_they_hold_and_should_hold() -> None:
    view = view_after(COMPOSITES)
    stale = group_by_kernel(view).stale
    assert {(each.expected, each.actual) for each in stale} >= {("", "fn_implicit [math kernel]")}
    assert sorted(key for each in stale for key in each.keys) == sorted(row.key for row in view.table if row.stale)
    (kernel,) = (each for each in group_by_kernel(view).kernels if each.debug == "fn_implicit")
    held = [key for each in stale if each.actual.startswith("fn_implicit") for key in each.keys]
    assert (kernel.served, set(kernel.stale)) == ((), set(held))
