"""Every reduction judges lab engines with a planted coupling as the definition does, on every sequence of 8 steps."""

from __future__ import annotations

from collections import Counter

from dispatchlab.prover.partition import explore_forkable
from dispatchlab.prover.result import Exploration, Verdict
from tests.brute_force import Failure
from tests.coupled_engines import KINDS, CoupledEngine, coupled_engine
from tests.declaring_engines import shortest_failure


def judged(seed: int) -> tuple[CoupledEngine, Exploration, Failure | None]:
    """An engine, what is found with every reduction, and the shortest sequence that breaks a rule."""
    engine = coupled_engine(seed)
    found = explore_forkable(engine, engine.registrations, engine.operators, order=engine.order, least=0)
    return engine, found, shortest_failure(engine.whole, engine.order, longest=8)


def test_couplings_are_found_and_what_has_none_that_matters_is_proved() -> None:
    verdicts: Counter[tuple[str, bool]] = Counter()
    for seed in range(15):
        engine, found, truth = judged(seed)
        assert (found.verdict is Verdict.ORDER_INDEPENDENT) is (truth is None), f"seed {seed}"
        verdicts[engine.coupling.kind, truth is None] += 1
        example = found.counterexample
        if truth is not None:
            assert example is not None
            assert max(len(example.expected_sequence), len(example.actual_sequence)) == truth.length, f"seed {seed}"
    assert all(verdicts[kind, is_proved] for kind in KINDS for is_proved in (False, True))
