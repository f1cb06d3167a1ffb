"""The graph walk against the definition of "order does not matter", and proofs against sandboxes: planted engines."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover import neighbourhoods
from dispatchlab.prover.partition import explore_forkable
from dispatchlab.prover.result import Verdict
from tests.brute_force import merging_is_sound
from tests.coupled_engines import KINDS
from tests.declaring_engines import OPERATORS, random_engine, shortest_failure
from tests.effort import share
from tests.random_scenarios import SEMANTICS, findings, random_scenario
from tests.test_prover_couplings import judged
from tests.test_prover_neighbourhoods import without


def test_merging_is_sound_on_many_engines_with_planted_hidden_state() -> None:
    found = merging_is_sound(range(share(1_000)))
    assert min(found[Verdict.ORDER_INDEPENDENT], found[Verdict.ORDER_DEPENDENT]) > share(250)


@pytest.mark.parametrize("refusals", [False, True])
@pytest.mark.parametrize("near", [0, neighbourhoods.NEAR_EDGES])
@pytest.mark.parametrize("secrets", [False, True])
def test_neighbourhoods_judge_many_engines_as_every_sequence_does(*, secrets: bool, near: int, refusals: bool) -> None:
    with mock.patch.object(neighbourhoods, "NEAR_EDGES", near):
        for seed in range(share(1_000)):
            engine, order = random_engine(seed, secrets=secrets, refusals=refusals)
            found = explore_forkable(engine, engine.registrations, OPERATORS, order=order, least=0)
            truth = shortest_failure(engine.whole, order, longest=8)
            assert (found.verdict is Verdict.ORDER_INDEPENDENT) is (truth is None), f"seed {seed}"
            example = found.counterexample
            if truth is not None and not (secrets and near == 0):
                assert example is not None
                longest = max(len(example.expected_sequence), len(example.actual_sequence))
                assert longest == truth.length, f"seed {seed}"


def test_what_many_engines_declare_is_enough_without_sequences_over_everything() -> None:
    with without("near", "far"):
        for seed in range(share(1_000)):
            engine, order = random_engine(seed, secrets=False, refusals=True)
            found = explore_forkable(engine, engine.registrations, OPERATORS, order=order, least=0)
            truth = shortest_failure(engine.whole, order, longest=8)
            assert (found.verdict is Verdict.ORDER_INDEPENDENT) is (truth is None), f"seed {seed}"


def test_every_reduction_judges_many_coupled_engines_as_every_sequence_does() -> None:
    """Couplings between keys, operators, from fallbacks, through hidden state and through the order of arrival."""
    planted: Counter[tuple[str, bool]] = Counter()
    semantics: Counter[str] = Counter()
    reductions: Counter[str] = Counter()
    for seed in range(share(2_000)):
        engine, found, truth = judged(seed)
        assert (found.verdict is Verdict.ORDER_INDEPENDENT) is (truth is None), f"seed {seed}"
        planted[engine.coupling.kind, truth is not None] += 1
        semantics[engine.semantics] += 1
        reductions.update(found.reductions)
    assert min(planted[kind, is_violated] for kind in KINDS for is_violated in (False, True)) > share(80)
    assert min(semantics[name] for name in SEMANTICS) > share(160)
    assert min(reductions[name] for name in ("partition", "neighbourhoods")) > share(40)


@pytest.mark.parametrize("far", [True, False])
@pytest.mark.parametrize("refused", [False, True])
def test_neighbourhoods_find_in_many_scenarios_what_the_walk_of_everything_finds(*, refused: bool, far: bool) -> None:
    with without(*(["near"] if far else ["near", "far"])):
        for seed in range(share(1_000)):
            semantics, registrations, operators, order = random_scenario(seed, refused=refused)
            engine = LabEngine(semantics)
            plain = explore_forkable(engine, registrations, operators, order=order, reduced=False)
            small = explore_forkable(engine, registrations, operators, order=order, least=0)
            assert findings(small) == findings(plain), f"seed {seed}"
