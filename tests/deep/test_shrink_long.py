"""Counterexamples among many registrations are cut down to those who matter."""

from __future__ import annotations

from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Flaw
from dispatchlab.prover.run_sequence import compare_sequences, on_sandboxes
from dispatchlab.prover.shrink import shrink
from tests.toy_engines import FOO, Planted, ToyEngine, toy


def test_a_long_counterexample_is_cut_down_to_those_who_matter() -> None:
    space = toy(8, Planted("sticks", by=1, partner=0, effect="shows", when=0b11100, unless=0b11))
    engine = ToyEngine(space)
    sessions = on_sandboxes(engine, engine.registrations, [FOO])
    bystanders = (5, 6, 7, ~6, ~5, 6, ~7, ~6)
    found = compare_sequences(sessions, (2, 3, 4), (*bystanders, 0, 2, 1, 3, ~0, 4, ~1))
    assert found is not None
    short = shrink(sessions, 8, found)
    assert short.flaw is Flaw.UNDO
    assert sorted(short.expected_sequence) == [2, 3, 4]
    assert sorted(short.actual_sequence) == sorted([0, 1, 2, 3, 4, ~0, ~1])


def test_a_disagreement_far_into_a_pass_is_shrunk_to_its_end() -> None:
    engine = ToyEngine(toy(9, Planted("sticks", by=1, partner=0, effect="shows", when=0b111100, unless=0b11)))
    found = explore(engine, engine.registrations, [FOO])
    assert found.edges > 1_000
    counterexample = found.counterexample
    assert counterexample is not None
    assert (counterexample.flaw, format_sequence(counterexample.expected_sequence)) == (Flaw.UNDO, "+2 +3 +4 +5")
    assert sorted(counterexample.actual_sequence) == sorted([0, 1, 2, 3, 4, 5, ~0, ~1])
