"""The long tests of tests/test_prover_random_walk.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.result import Flaw, Verdict
from tests.toy_engines import FOO, Exclusion, ForkableToyEngine, Planted, toy


def test_a_direct_way_that_is_refused_is_compared_with_a_return() -> None:
    sticky = Planted("depends on order", by=1, partner=0, effect="refuses", target=25)
    engine = ForkableToyEngine(toy(30, sticky))
    runs = [explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample", seed=seed)) for seed in range(6)]
    assert {run.verdict for run in runs} == {Verdict.ORDER_DEPENDENT}
    random_walks = [int(run.notes[0].split()[0]) for run in runs]
    assert random_walks == [7, 7, 13, 5, 9, 3]
    flaws = {run.counterexample.flaw for run in runs if run.counterexample}
    assert flaws == {Flaw.ASYMMETRY}


def test_the_notes_give_the_coverage_and_the_confidence() -> None:
    engine = ForkableToyEngine(toy(40, exclusions=(Exclusion(0b11),)))
    found = explore(engine, engine.registrations, [FOO], WalkOptions(walk="sample", samples=500, seed=3))
    assert found.verdict is Verdict.NO_VIOLATION_FOUND
    assert (found.walk, found.seed) == ("sample", 3)
    assert [conflict.members for conflict in found.conflicts] == [(0, 1)]
    assert found.notes == (
        "500 random walks came to 500 distinct sets; 778 of 780 pairs were registered next to one another both ways",
        "an estimate, not a proof: a flaw that needs 6 registrations active or absent, 2 of them in one order, would "
        "have shown with 95 % confidence (N >= 2^d * r! * ln(1/0.05) = 384)",
        "these are the smallest conflicts that the walks met; smaller ones may exist",
    )
