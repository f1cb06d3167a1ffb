"""Running all orders agrees with the graph where it can, and misses what needs a second registration."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from random import Random

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Impl
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.all_orders import AllOrders, orders_keeping
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.driver import explore_walk
from dispatchlab.prover.explore import explore
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.limits import WalkOptions, Watch
from dispatchlab.prover.result import Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import on_sandboxes
from tests.effort import share
from tests.torch_library_scenarios import OPERATORS, scenario
from tests.toy_engines import FOO, Exclusion, ForkableToyEngine, Planted, ToySpace, random_toy, toy


def walk(space: ToySpace, order: Chains = ()) -> Exploration:
    engine = ForkableToyEngine(space)
    return explore(engine, engine.registrations, [FOO], WalkOptions(walk="orders"), order=order)


def test_all_sequences_are_run_step_by_step() -> None:
    found = walk(toy(4))
    assert (found.verdict, found.walk) == (Verdict.ORDER_INDEPENDENT, "orders")
    assert (found.sets, found.edges, found.orders) == (16, 24 * 24 * 8, 576)
    assert found.notes == ("576 sequences were run",)


def test_all_orders_keep_the_order_of_the_scenario() -> None:
    found = walk(toy(4), order=[(2, 0)])
    assert found.notes == ("288 sequences were run",)
    assert found.orders == 288
    broken = toy(3, Planted("depends on order", by=2, partner=1, effect="shows"))
    assert walk(broken, order=[(2, 1)]).verdict is Verdict.ORDER_INDEPENDENT
    assert walk(broken, order=[(1, 2)]).verdict is Verdict.ORDER_INDEPENDENT
    assert walk(broken).verdict is Verdict.ORDER_DEPENDENT


def test_what_was_refused_is_not_released() -> None:
    found = walk(toy(3, exclusions=(Exclusion(0b011),)))
    assert (found.verdict, found.sets) == (Verdict.ORDER_INDEPENDENT, 6)
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
    assert walk(hidden).verdict is Verdict.ORDER_INDEPENDENT
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
    found, missed = {45: (10, 5), 75: (16, 7), 300: (73, 21)}[tried]
    assert violated == {"found by all orders": found, "found by the graph walk alone": missed}


def test_sequences_on_states_that_share_beginnings_are_those_in_fresh_sandboxes() -> None:
    verdicts: Counter[Verdict] = Counter()
    for seed in range(share(120)):
        random = Random(seed)
        given = distinguished(scenario(random, random.randint(2, 3)))
        engine = LabEngine(random.choice(("strict", "torch-2.13")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of overrides
            shared = explore(engine, given, OPERATORS, WalkOptions(walk="orders"))
            every = AllOrders(len(given))
            alone = explore_walk(every, on_sandboxes(engine, given, OPERATORS), watch=Watch(WalkOptions()))
        assert _counts(shared) == _counts(alone), f"seed {seed}"
        if shared.counterexample is not None:
            assert alone.counterexample is not None
            assert replace(shared.counterexample, why=()) == alone.counterexample, f"seed {seed}"
        else:
            assert (shared.verdict, alone.verdict) == (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)
        verdicts[shared.verdict] += 1
    assert min(verdicts[Verdict.ORDER_INDEPENDENT], verdicts[Verdict.ORDER_DEPENDENT]) > 2


def _counts(found: Exploration) -> tuple[object, ...]:
    return found.sets, found.edges, found.orders, found.conflicts, found.never_accepted, found.notes


def test_what_all_orders_find_is_explained_as_the_graph_explains_it() -> None:
    two = [Impl(FOO, DispatchKey.CPU, debug=debug) for debug in ("one", "two")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overrides
        orders, graph = (
            explore(LabEngine("strict"), two, [FOO], WalkOptions(walk=walk)) for walk in ("orders", "graph")
        )
    assert orders.counterexample == graph.counterexample
    assert orders.counterexample is not None
    both = "the registrations one and two both set the CPU kernel of test::foo"
    assert orders.counterexample.why == (f"{both}. A later registration replaces an earlier registration",)


def test_a_bound_that_ends_all_orders_is_no_proof() -> None:
    engine = ForkableToyEngine(toy(4))
    found = explore(engine, engine.registrations, [FOO], WalkOptions(walk="orders", max_states=7))
    assert found.verdict is Verdict.INCOMPLETE


def test_a_thousand_registrations_have_a_first_order() -> None:
    assert next(orders_keeping(1_000, ((999, 0),))) == (*range(1, 1_000), 0)
