"""The definition of "order does not matter", run on every sequence up to a length, without merging and graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from dispatchlab.errors import RegistrationError
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.result import Verdict
from tests.toy_engines import State, ToySpace, random_toy

Answer: TypeAlias = "tuple[str, tuple[tuple[str, str], ...]] | None"


@dataclass(frozen=True, slots=True)
class Failure:
    """The length of the shortest sequence that breaks a rule, and the rule."""

    length: int
    rule: str


def brute_force(space: ToySpace, count: int, *, longest: int) -> Failure | None:
    """Run all sequences, shorter ones first, and stop at the first that breaks a rule.

    The functions of the toy are pure, so each is asked once for each question; every sequence is run all the same.
    """
    register, release = cache(space.register), cache(space.release)
    violations, observe = cache(space.violations), cache(space.observe)
    seen: dict[frozenset[int], tuple[Snapshot, ...]] = {}
    answers: dict[tuple[frozenset[int], int], Answer] = {}
    last: dict[frozenset[int], str] = {}
    sequences: list[tuple[frozenset[int], State]] = [(frozenset(), space.empty())]
    if violations(space.empty()):
        return Failure(0, "invariant")
    seen[frozenset()] = observe(space.empty())
    for length in range(1, longest + 1):
        longer: list[tuple[frozenset[int], State]] = []
        for active, state in sequences:
            for index in range(count):
                if index in active:
                    try:
                        after = release(state, index)
                    except RegistrationError:
                        return Failure(length, "release")
                    now = active - {index}
                else:
                    after, refusal = register(state, index)
                    answer = None if refusal is None else (refusal.kind.value, refusal.facts)
                    if answers.setdefault((active, index), answer) != answer:
                        return Failure(length, "outcome")
                    kind = "accepted" if refusal is None else refusal.kind.value
                    if last.setdefault(active | {index}, kind) != kind:
                        return Failure(length, "symmetry")
                    now = active if refusal else active | {index}
                if violations(after):
                    return Failure(length, "invariant")
                look = observe(after)
                if seen.setdefault(now, look) != look:
                    return Failure(length, "state")
                longer.append((now, after))
        sequences = longer
    return None


def merging_is_sound(seeds: range) -> Counter[Verdict]:
    """Count the verdicts on random engines, each of which has to be the one of the definition."""
    longest = 8
    verdicts: Counter[Verdict] = Counter()
    for seed in seeds:
        space = random_toy(seed)
        found = explore_graph(space, space.count)
        truth = brute_force(space, space.count, longest=longest)
        verdicts[found.verdict] += 1
        if found.verdict is Verdict.ORDER_INDEPENDENT:
            assert truth is None, f"seed {seed}"
            continue
        assert found.counterexample is not None
        sequences = (found.counterexample.expected_sequence, found.counterexample.actual_sequence)
        assert truth is not None, f"seed {seed}"
        assert max(map(len, sequences)) == truth.length, f"seed {seed}"
    return verdicts
