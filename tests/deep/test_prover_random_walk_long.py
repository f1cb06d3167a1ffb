"""The long tests of tests/test_prover_random_walk.py, which the quick tier leaves out."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from dispatchlab.prover.explore import TakenShare, explore, take_share
from dispatchlab.prover.random_walk import Share
from dispatchlab.prover.result import Flaw, Verdict
from dispatchlab.prover.walk_options import WalkOptions
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


def _elsewhere(
    engine: ForkableToyEngine, order: Sequence[int], sizes: list[int]
) -> Callable[[Iterator[Share], Callable[[], None]], Iterator[TakenShare]]:
    """Takes shares as another process would: of what was pickled, and the last ones first."""

    def take(shares: Iterator[Share], tick: Callable[[], None]) -> Iterator[TakenShare]:
        given = pickle.loads(pickle.dumps(list(shares)))
        sizes.append(len(given))
        found = [take_share(engine, engine.registrations, [FOO], share, order=order) for share in reversed(given)]
        for each in reversed(found):
            tick()
            yield pickle.loads(pickle.dumps(each))

    return take


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("share", [1, 7, 50])
def test_shares_that_are_taken_elsewhere_find_what_one_walk_finds(
    seed: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatchlab.prover.explore._SHARE", share)
    planted = Planted("sticks", by=5, partner=6, effect="shows", when=1 << 9 | 1 << seed % 5, unless=1 << 5 | 1 << 6)
    space = toy(12, *([planted] if seed % 3 else []), exclusions=(Exclusion(1 << 2 | 1 << 8, names_last=True),))
    engine, order, sizes = ForkableToyEngine(space), (1, 4) if seed % 2 else (), list[int]()
    explored = partial(
        explore, engine, engine.registrations, [FOO], WalkOptions(walk="sample", samples=60, seed=seed), order=order
    )
    here, shared = explored(), explored(shares=_elsewhere(engine, order, sizes))
    assert replace(shared, elapsed_s=0.0) == replace(here, elapsed_s=0.0)
    assert sizes == [-(-60 // share)]
    assert here.edges > 0
