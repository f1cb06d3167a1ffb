"""Independent parts are explored one by one, after a check that they are independent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover import neighbourhoods, partition
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import Progress, WalkName, WalkOptions
from dispatchlab.prover.partition import explore_forkable, parts_of
from dispatchlab.prover.result import Exploration, Flaw, NotReduced, Verdict
from tests.engine_shorthand import FOO, TYPED, K, define, impl
from tests.toy_engines import Exclusion, Planted, toy
from tests.toy_operators import MultiOperatorEngine, operator_name


def walk(engine: MultiOperatorEngine, *, by: WalkName = "auto", order: Chains = ()) -> Exploration:
    return explore(engine, engine.registrations, engine.operators, WalkOptions(walk=by), order=order)


def test_each_operator_is_a_part_with_all_fallbacks() -> None:
    engine = MultiOperatorEngine((toy(3), toy(2)), fallbacks=1)
    parts = list(parts_of(engine.space(engine.registrations, engine.operators), engine.registrations, engine.operators))
    assert [(part.indices, part.operators) for part in parts] == [
        ((0, 1, 3), (operator_name(0),)),
        ((2, 3), (operator_name(1),)),
    ]


def test_the_whole_and_the_parts_give_the_same_verdict_and_conflicts() -> None:
    engine = MultiOperatorEngine(
        (toy(3, exclusions=(Exclusion(0b011),)), toy(2), toy(3, exclusions=(Exclusion(0b011),))), fallbacks=1
    )
    parts, whole = walk(engine), walk(engine, by="graph")
    assert (parts.verdict, whole.verdict) == (Verdict.ORDER_INDEPENDENT, Verdict.ORDER_INDEPENDENT)
    assert (parts.components, parts.edges) == (3, 2 * 18 + 8)
    assert (whole.components, whole.sets) == (1, 3 * 2 * 3 * 2)
    assert [one.members for one in parts.conflicts] == [one.members for one in whole.conflicts] == [(0, 1), (3, 4)]
    assert parts.orders == whole.orders


def test_the_never_accepted_have_the_numbers_of_the_scenario() -> None:
    found = walk(MultiOperatorEngine((toy(2, exclusions=(Exclusion(0b10),)), toy(2, exclusions=(Exclusion(0b10),)))))
    assert found.never_accepted == (1, 3)
    assert [one.members for one in found.conflicts] == [(1,), (3,)]


def test_a_counterexample_has_the_numbers_of_the_scenario() -> None:
    odd = toy(3, Planted("depends on order", by=2, partner=0, effect="refuses", target=1))
    found = walk(MultiOperatorEngine((toy(3), odd, toy(3))))
    counterexample = found.counterexample
    assert counterexample is not None
    assert (
        counterexample.flaw,
        format_sequence(counterexample.expected_sequence),
        format_sequence(counterexample.actual_sequence),
    ) == (
        Flaw.ASYMMETRY,
        "+3 +4 +5",
        "+3 +5 +4",
    )
    assert "++4 refused: signature_mismatch" in counterexample.diff


def test_of_all_parts_the_shortest_counterexample_is_reported() -> None:
    long = toy(3, Planted("sticks", by=1, partner=0, effect="shows", unless=0b111))
    short = toy(2, Planted("is haunted", by=1, partner=0, effect="shows"))
    counterexample = walk(MultiOperatorEngine((long, short, long))).counterexample
    assert counterexample is not None
    assert (format_sequence(counterexample.expected_sequence), format_sequence(counterexample.actual_sequence)) == (
        "(nothing)",
        "+4 -4",
    )


def test_parts_that_touch_one_another_after_all_are_explored_as_one() -> None:
    found = walk(MultiOperatorEngine((toy(1), toy(1)), undeclared_read=True))
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert (found.components, found.notes[0]) == (
        1,
        "the parts of this scenario are not independent (toy::operator1), so it was explored as one",
    )
    counterexample = found.counterexample
    assert counterexample is not None
    assert (format_sequence(counterexample.expected_sequence), format_sequence(counterexample.actual_sequence)) == (
        "+0 +1",
        "+1 +0",
    )


def test_parts_that_touch_one_another_are_missed_without_the_check_of_footprints() -> None:
    engine = MultiOperatorEngine((toy(1), toy(1)), undeclared_read=True)
    with mock.patch.object(partition, "strays_of", return_value=frozenset()):
        found = explore_forkable(engine, engine.registrations, engine.operators)
    assert (found.verdict, found.components) == (Verdict.ORDER_INDEPENDENT, 2)


def test_an_order_across_parts_is_kept_within_each() -> None:
    forwards = toy(2, Planted("depends on order", by=0, partner=1, effect="breaks"))
    engine = MultiOperatorEngine((forwards, forwards))
    assert walk(engine, order=[(2, 0, 3, 1)]).verdict is Verdict.ORDER_INDEPENDENT
    assert walk(engine, order=[(2, 1, 3, 0)]).verdict is Verdict.ORDER_DEPENDENT


def test_a_bound_counts_over_all_parts() -> None:
    engine = MultiOperatorEngine((toy(4), toy(5), toy(6)))
    found = explore(engine, engine.registrations, engine.operators, WalkOptions(max_states=50))
    assert found.verdict is Verdict.INCOMPLETE
    assert found.notes == ("stopped at the bound of 50 states",)
    assert found.states == 50


def test_progress_knows_the_total_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("dispatchlab.prover.limits.perf_counter", lambda: float(next(clock)))
    seen: list[Progress] = []
    engine = MultiOperatorEngine((toy(3), toy(4)))
    explore(engine, engine.registrations, engine.operators, progress=seen.append)
    assert {step.total_edges for step in seen} == {24 + 64}
    assert [step.edges for step in seen] == sorted(step.edges for step in seen)
    assert seen[-1].edges == 84


class _Counted(Sequence[Any]):
    """A sequence that counts how many of its items were read."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items, self.read = items, 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        self.read += 1
        return self.items[index]

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            self.read += 1
            yield item


def test_parts_are_found_in_time_that_grows_as_the_scenario_does() -> None:
    engine = MultiOperatorEngine((toy(2),) * 200, fallbacks=1)
    space = engine.space(engine.registrations, engine.operators)
    operators, order = _Counted(engine.operators), _Counted(range(len(engine.registrations)))
    parts = list(parts_of(space, engine.registrations, operators, [order]))
    assert len(parts) == 200
    assert [part.operators for part in parts] == [(operator_name(number),) for number in range(200)]
    assert parts[7].order == (tuple(range(len(parts[7].indices))),)
    assert (operators.read, order.read) == (2 * len(operators), len(order))


HISTORIES: list[Registration] = [
    define(),
    *(impl(key, f"fn_{key}", TYPED) for key in (K.CPU, K.CUDA, K.XLA, K.Meta, K.Autograd)),
]


def explored(semantics: str, registrations: list[Registration], by: WalkName = "auto") -> Exploration:
    return replace(explore(LabEngine(semantics), registrations, [FOO], WalkOptions(walk=by)), elapsed_s=0.0)


def test_a_graph_that_was_left_is_walked_to_the_end_where_neighbourhoods_prove_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = explored("torch-2.13", HISTORIES)
    monkeypatch.setattr(partition, "MOST_EDGES", 1_000)

    def plan_of(*_: object, least: int, **__: object) -> None:
        if not least:
            raise NotReduced("they are not to be had")

    monkeypatch.setattr(neighbourhoods, "plan_of", plan_of)
    found = explored("torch-2.13", HISTORIES)
    note = "explored without neighbourhoods: they are not to be had"
    assert found == replace(plain, notes=(note, *plain.notes))
