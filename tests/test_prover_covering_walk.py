"""Covering walks try every edge, find what needs a history, and shorten it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.covering_walk import CoveringWalk
from dispatchlab.prover.driver import explore_walk
from dispatchlab.prover.explore import explore
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.limits import Interrupted, WalkOptions, Watch
from dispatchlab.prover.result import Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import on_sandboxes
from tests.effort import share
from tests.toy_engines import FOO, Exclusion, Planted, ToyEngine, ToySandbox, ToySpace, random_toy, toy


def walk(space: ToySpace, *, passes: int = 8, seed: int = 0, order: Chains = ()) -> Exploration:
    engine = ToyEngine(space)
    return explore(engine, engine.registrations, [FOO], WalkOptions(passes=passes, seed=seed), order=order)


def test_one_pass_tries_every_edge_in_few_more_steps() -> None:
    found = walk(toy(5), passes=1)
    assert found.verdict is Verdict.NO_VIOLATION_FOUND
    assert (found.walk, found.sets, found.passes, found.seed, found.orders) == ("covering", 32, 1, 0, 14_400)
    assert found.notes == (f"160 edges tried in {found.edges} steps of 1 pass, each in a fresh sandbox",)
    assert 160 <= found.edges <= 176


def test_eight_passes_try_every_edge_eight_times() -> None:
    found = walk(toy(6))
    assert found.notes == (f"3,072 edges tried in {found.edges:,} steps of 8 passes, each in a fresh sandbox",)
    assert 3_072 <= found.edges <= 3_072 * 1.06


def test_the_same_seed_takes_the_same_walk() -> None:
    assert walk(toy(4), seed=7).edges == walk(toy(4), seed=7).edges
    assert len({walk(toy(4), seed=seed).edges for seed in range(8)}) > 1


def test_a_covering_walk_keeps_the_order_of_the_scenario() -> None:
    broken_backwards = toy(3, Planted("depends on order", by=0, partner=2, effect="breaks"))
    assert walk(broken_backwards, order=[(0, 2)]).verdict is Verdict.NO_VIOLATION_FOUND
    assert walk(broken_backwards, order=[(2, 0)]).verdict is Verdict.ORDER_DEPENDENT


def test_refusals_are_edges_that_lead_nowhere() -> None:
    found = walk(toy(3, exclusions=(Exclusion(0b011), Exclusion(0b100))), passes=2)
    assert found.verdict is Verdict.NO_VIOLATION_FOUND
    assert [conflict.members for conflict in found.conflicts] == [(2,), (0, 1)]
    assert (found.never_accepted, found.sets) == ((2,), 3)
    assert found.notes[0].startswith("18 edges tried")


NEEDLES = [
    (Planted("depends on order", 1, 0, "shows"), Flaw.NON_COMMUTING, "+0 +1", "+1 +0"),
    (Planted("depends on order", 1, 0, "breaks"), Flaw.NON_COMMUTING, "+1 +0", "+0 +1"),
    (Planted("is haunted", 3, 0, "shows"), Flaw.UNDO, "(nothing)", "+3 -3"),
    (Planted("sticks", 2, 1, "refuses", target=4, when=0b1), Flaw.ASYMMETRY, "+0 +1 +2 +4", "+0 +1 +4 +2"),
    (Planted("sticks", 2, 1, "jams", target=4), Flaw.RELEASE, "+1 +2 +4 -4", "+1 +2 +4 -4"),
    (Planted("counts", 2, 0, "breaks", modulo=3), Flaw.INVARIANT, "+2", "+2"),
]


def test_covering_walks_agree_with_the_graph_walk_on_random_engines() -> None:
    compared: Counter[str] = Counter()
    tried = share(300)
    for seed in range(tried):
        space = random_toy(seed)
        truth = explore_graph(space, space.count)
        sessions = on_sandboxes(ToyEngine(space), ToyEngine(space).registrations, [FOO])
        found = explore_walk(CoveringWalk(space.count), sessions, watch=Watch())
        if truth.verdict is Verdict.ORDER_INDEPENDENT:
            assert found.verdict is Verdict.NO_VIOLATION_FOUND, f"seed {seed}"
            assert found.conflicts == truth.conflicts, f"seed {seed}"
            assert found.never_accepted == truth.never_accepted, f"seed {seed}"
        elif found.verdict is Verdict.NO_VIOLATION_FOUND:
            compared["violations missed"] += 1
        else:
            compared["violations found"] += 1
            assert truth.counterexample is not None
            assert found.counterexample is not None
            lengths = [len(each.actual_sequence) for each in (truth.counterexample, found.counterexample)]
            compared["counterexamples longer than the shortest"] += lengths[1] > lengths[0]
    violations, longer = {45: (15, 1), 75: (23, 1), 300: (94, 2)}[tried]
    assert compared == Counter({"violations found": violations, "counterexamples longer than the shortest": longer})


def test_an_engine_that_dies_leaves_the_shortest_sequence_that_kills_it() -> None:
    found = walk(toy(5, Planted("sticks", by=3, partner=1, effect="crashes", target=0)))
    assert found.verdict is Verdict.CRASHED
    assert found.counterexample is not None
    assert format_sequence(found.counterexample.actual_sequence) == "+1 +3 +0"
    assert found.counterexample.why == ("the toy is broken",)


def test_a_walk_that_stops_at_a_bound_is_incomplete() -> None:
    engine = ToyEngine(toy(8))
    found = explore(engine, engine.registrations, [FOO], WalkOptions(max_states=50))
    assert found.verdict is Verdict.INCOMPLETE
    assert found.notes[0] == "stopped at the bound of 50 states"
    assert found.sets == 50


def test_an_interruption_gives_what_was_covered() -> None:
    sessions = on_sandboxes(ToyEngine(toy(8)), ToyEngine(toy(8)).registrations, [FOO])

    def cancelled() -> bool:
        raise KeyboardInterrupt

    watch = Watch(cancelled=cancelled)
    watch._next_report = 0
    with pytest.raises(Interrupted) as caught:
        explore_walk(CoveringWalk(8), sessions, watch=watch)
    assert caught.value.exploration.verdict is Verdict.INCOMPLETE


@dataclass(frozen=True)
class Moody(ToyEngine):
    """Gives another result in every other sandbox."""

    @contextmanager
    def sandbox(self) -> Iterator[ToySandbox]:
        count = _SANDBOXES.setdefault(id(self), 0)
        _SANDBOXES[id(self)] += 1
        flaws = (Planted("counts", 1, 0, "shows", modulo=3),) if count % 2 else ()
        yield ToySandbox(toy(2, *flaws), self.registrations)


_SANDBOXES: dict[int, int] = {}


def test_an_engine_that_gives_two_results_for_one_sequence_is_found_out_first() -> None:
    engine = Moody(toy(2))
    found = explore(engine, engine.registrations, [FOO])
    assert found.verdict is Verdict.NONDETERMINISTIC
    assert found.counterexample is not None
    assert found.counterexample.flaw is Flaw.NONDETERMINISTIC
    assert found.counterexample.expected_sequence == found.counterexample.actual_sequence
    assert "+flaw 0: 1" in found.counterexample.diff
