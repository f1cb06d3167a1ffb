"""Random walks find needles in graphs that are too large to walk, and report the confidence of what they did."""

from __future__ import annotations

import pytest

from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.random_walk import sequences_needed
from dispatchlab.prover.result import Flaw, Verdict
from tests.toy_engines import FOO, ForkableToyEngine, Planted, ToyEngine, toy

ENGINES = [ForkableToyEngine, ToyEngine]


@pytest.mark.parametrize("kind", ENGINES)
def test_a_needle_of_two_active_and_two_inactive_ones_among_forty_is_found(kind: type[ToyEngine]) -> None:
    needle = Planted(
        "depends on order", by=31, partner=7, effect="shows", when=1 << 31 | 1 << 7, unless=1 << 3 | 1 << 20
    )
    engine = kind(toy(40, needle))
    found = explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample", seed=1))
    assert found.verdict is Verdict.ORDER_DEPENDENT
    counterexample = found.counterexample
    assert counterexample is not None
    assert (
        counterexample.flaw,
        format_sequence(counterexample.expected_sequence),
        format_sequence(counterexample.actual_sequence),
    ) == (
        Flaw.NON_COMMUTING,
        "+7 +31",
        "+31 +7",
    )


@pytest.mark.parametrize("kind", ENGINES)
def test_state_that_sticks_is_found_although_no_permutation_shows_it(kind: type[ToyEngine]) -> None:
    sticky = Planted("sticks", by=5, partner=6, effect="shows", when=1 << 9, unless=1 << 5 | 1 << 6)
    engine = kind(toy(12, sticky))
    found = explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample", seed=1))
    assert found.verdict is Verdict.ORDER_DEPENDENT
    counterexample = found.counterexample
    assert counterexample is not None
    assert counterexample.flaw is Flaw.UNDO
    assert sorted(counterexample.actual_sequence) == sorted([5, 6, 9, ~5, ~6])


def test_a_refusal_that_only_a_history_brings_about_is_found() -> None:
    hidden = Planted("is haunted", by=4, partner=0, effect="refuses", target=11)
    engine = ForkableToyEngine(toy(20, hidden))
    found = explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample"))
    counterexample = found.counterexample
    assert counterexample is not None
    assert (
        counterexample.flaw,
        format_sequence(counterexample.expected_sequence),
        format_sequence(counterexample.actual_sequence),
    ) == (
        Flaw.OUTCOME,
        "+11",
        "+4 -4 +11",
    )
    assert counterexample.why == ("flaw 0: 0 and 1",)


def test_the_same_seed_takes_the_same_walks() -> None:
    engine = ForkableToyEngine(toy(9))
    runs = [
        explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample", samples=50, seed=seed))
        for seed in (4, 4, 5)
    ]
    assert (runs[0].edges, runs[0].sets) == (runs[1].edges, runs[1].sets) != (runs[2].edges, runs[2].sets)


def test_random_walks_keep_the_order_of_the_scenario() -> None:
    backwards = toy(6, Planted("depends on order", by=1, partner=4, effect="breaks"))
    engine = ForkableToyEngine(backwards)
    kept = explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample", samples=200), order=[(1, 4)])
    broken = explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample", samples=200), order=[(4, 1)])
    assert (kept.verdict, broken.verdict) == (Verdict.NO_VIOLATION_FOUND, Verdict.ORDER_DEPENDENT)


@pytest.mark.parametrize(("depth", "ordered", "sequences"), [(4, 2, 96), (2, 0, 12), (5, 3, 576)])
def test_sequences_needed_follow_from_the_depth_and_the_ordered(depth: int, ordered: int, sequences: int) -> None:
    assert sequences_needed(depth, ordered) == sequences
