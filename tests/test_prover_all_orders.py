"""Running all orders agrees with the graph where it can, and misses what needs a second registration."""

from __future__ import annotations

from collections import Counter

from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.explore import explore
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.result import Exploration, Flaw, Verdict
from dispatchlab.prover.walk_options import WalkOptions
from tests.effort import share
from tests.toy_engines import FOO, Exclusion, ForkableToyEngine, Planted, ToySpace, random_toy, toy


def walk(space: ToySpace, order: tuple[int, ...] = ()) -> Exploration:
    engine = ForkableToyEngine(space)
    return explore(engine, engine.registrations, [FOO], WalkOptions(walk="orders"), order=order)


def test_all_sequences_are_run_step_by_step() -> None:
    found = walk(toy(4))
    assert (found.verdict, found.walk) == (Verdict.NO_VIOLATION_FOUND, "orders")
    assert (found.sets, found.edges, found.orders) == (16, 24 * 24 * 8, 576)
    assert found.notes == ("576 sequences were run",)


def test_all_orders_keep_the_order_of_the_scenario() -> None:
    found = walk(toy(4), order=(2, 0))
    assert found.notes == ("288 sequences were run",)
    assert found.orders == 288
    broken = toy(3, Planted("depends on order", by=2, partner=1, effect="shows"))
    assert walk(broken, order=(2, 1)).verdict is Verdict.NO_VIOLATION_FOUND
    assert walk(broken, order=(1, 2)).verdict is Verdict.NO_VIOLATION_FOUND
    assert walk(broken).verdict is Verdict.ORDER_DEPENDENT


def test_what_was_refused_is_not_released() -> None:
    found = walk(toy(3, exclusions=(Exclusion(0b011),)))
    assert (found.verdict, found.sets) == (Verdict.NO_VIOLATION_FOUND, 6)
    assert found.notes == ("12 sequences were run",)
    assert found.edges == 12 * 5
    assert [conflict.members for conflict in found.conflicts] == [(0, 1)]


def test_two_orders_that_differ_are_found_with_the_right_one_first() -> None:
    counterexample = walk(toy(3, Planted("depends on order", by=1, partner=0, effect="breaks"))).counterexample
    assert counterexample is not None
    assert (
        counterexample.flaw,
        format_sequence(counterexample.expected_sequence),
        format_sequence(counterexample.actual_sequence),
    ) == (
        Flaw.NON_COMMUTING,
        "+1 +0",
        "+0 +1",
    )


def test_a_hidden_trace_is_missed_by_all_orders_and_not_by_the_graph() -> None:
    hidden = toy(3, Planted("is haunted", 1, 0, "refuses", target=2, when=0b001), exclusions=(Exclusion(0b110),))
    assert walk(hidden).verdict is Verdict.NO_VIOLATION_FOUND
    assert explore_graph(hidden, 3).verdict is Verdict.ORDER_DEPENDENT


def test_whatever_all_orders_find_the_graph_finds_too() -> None:
    violated: Counter[str] = Counter()
    tried = share(300)
    for seed in range(tried):
        space = random_toy(seed)
        orders, graph = walk(space), explore_graph(space, space.count)
        if orders.verdict is Verdict.ORDER_DEPENDENT:
            assert graph.verdict is Verdict.ORDER_DEPENDENT, f"seed {seed}"
            violated["found by all orders"] += 1
        elif graph.verdict is Verdict.ORDER_DEPENDENT:
            violated["found by the graph walk alone"] += 1
        else:
            assert (orders.sets, orders.conflicts) == (graph.sets, graph.conflicts), f"seed {seed}"
    found, missed = {45: (10, 5), 300: (73, 21)}[tried]
    assert violated == {"found by all orders": found, "found by the graph walk alone": missed}
