"""A proof is held against fresh sandboxes: a space that lies about them, or whose equality forgets, proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from unittest import mock

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.prover import explore as exploring
from dispatchlab.prover import partition
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import Watch
from dispatchlab.prover.program import Module, Program
from dispatchlab.prover.program_walk import explore_program
from dispatchlab.prover.replay_proof import replay_proof
from dispatchlab.prover.result import Flaw, Verdict
from dispatchlab.prover.run_sequence import on_sandboxes
from dispatchlab.prover.walk_options import WalkOptions
from tests.engine_shorthand import FOO, K, define, impl, overrides_allowed
from tests.planted_spaces import ForgetfulSpace, TwoFacedEngine
from tests.toy_engines import FOO as TOY
from tests.toy_engines import Exclusion, Planted, ToySpace, toy


def test_a_proof_says_how_many_sequences_were_replayed() -> None:
    registrations: list[Registration] = [define(), impl(K.CPU, "cpu"), impl(K.CUDA, "cuda")]
    found = [explore(LabEngine(), registrations, [FOO], WalkOptions(seed=seed)) for seed in (0, 0, 1)]
    assert {(one.verdict, one.replayed) for one in found} == {(Verdict.ORDER_INDEPENDENT, 8)}
    with overrides_allowed():
        assert explore(LabEngine(), [impl(K.CPU, "1"), impl(K.CPU, "2")], [FOO]).replayed == 0


def test_a_space_that_says_something_else_than_its_sandbox_is_nondeterministic() -> None:
    real = toy(3, Planted("counts", by=1, partner=0, effect="shows", when=0b100, modulo=3))
    found = explore(TwoFacedEngine(toy(3), real), TwoFacedEngine(toy(3), real).registrations, [TOY])
    assert (found.verdict, found.replayed) == (Verdict.NONDETERMINISTIC, 0)
    example = found.counterexample
    assert example is not None
    assert example.flaw is Flaw.NONDETERMINISTIC
    assert example.why == ("expected is what the states of the engine show, actual is a fresh sandbox",)
    assert "+flaw 0: " in example.diff


def test_what_some_of_the_registrations_show_has_the_numbers_of_the_scenario() -> None:
    real = toy(3, Planted("counts", by=1, partner=0, effect="shows", when=0b100, modulo=3))
    engine = TwoFacedEngine(toy(3), real)
    proved = explore(TwoFacedEngine(toy(3), toy(3)), engine.registrations, [TOY])
    fresh = on_sandboxes(engine, engine.registrations, [TOY])
    found = replay_proof(
        replace(proved, registrations=10),
        lambda: engine.space(engine.registrations, [TOY]),
        fresh,
        watch=Watch(),
        numbers=(4, 7, 9),
    )
    assert (found.verdict, found.registrations) == (Verdict.NONDETERMINISTIC, 10)
    assert found.counterexample is not None
    sequence = found.counterexample.actual_sequence
    assert {7, 9} <= {step if step >= 0 else ~step for step in sequence} <= {4, 7, 9}


def test_a_space_that_lies_is_missed_without_the_replay() -> None:
    real = toy(3, Planted("counts", by=1, partner=0, effect="shows", when=0b100, modulo=3))
    engine = TwoFacedEngine(toy(3), real)
    with mock.patch.object(exploring, "replay_proof", lambda found, *_, **__: found):
        assert explore(engine, engine.registrations, [TOY]).verdict is Verdict.ORDER_INDEPENDENT


def test_spaces_that_differ_are_missed_when_no_sequence_is_run_twice() -> None:
    """The engine behaves in another way when it is started for the third time, and in every fourth after it."""
    moods = cycle([toy(3), toy(3), toy(3, exclusions=(Exclusion(0b011),)), toy(3)])

    class Moody(TwoFacedEngine):
        def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> ToySpace:
            return next(moods)

    engine = Moody(toy(3), toy(3))
    with mock.patch.object(partition, "check_determinism", return_value=None):
        assert explore(engine, engine.registrations, [TOY]).verdict is Verdict.ORDER_INDEPENDENT
    assert explore(engine, engine.registrations, [TOY]).verdict is Verdict.NONDETERMINISTIC


def test_an_equality_that_forgets_hides_no_counterexample() -> None:
    real = toy(3, Planted("depends on order", by=1, partner=0, effect="shows", when=0b100))
    engine = TwoFacedEngine(ForgetfulSpace(real), real)
    found = explore(engine, engine.registrations, [TOY])
    example = found.counterexample
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert example is not None
    assert sorted(map(len, (example.expected_sequence, example.actual_sequence))) == [3, 3]


def test_a_timeout_ends_the_replay_after_its_first_sequence() -> None:
    found = explore(LabEngine(), [define()], [FOO], WalkOptions(timeout_s=1e-9))
    assert found.verdict in (Verdict.INCOMPLETE, Verdict.ORDER_INDEPENDENT)
    assert found.replayed <= 1


def test_the_orders_of_a_program_are_replayed_too() -> None:
    registrations: list[Registration] = [define(), impl(K.CPU, "cpu"), impl(K.CUDA, "cuda")]
    program = Program.of(3, [Module("a", (0, 1)), Module("b", (2,))])
    found = explore_program(LabEngine(), registrations, [FOO], program=program)
    assert (found.verdict, found.replayed) == (Verdict.ORDER_INDEPENDENT, 4)
    wrong = TwoFacedEngine(toy(3), toy(3, Planted("counts", by=1, partner=0, effect="shows")))
    found = explore_program(wrong, wrong.registrations, [TOY], program=program)
    assert found.verdict is Verdict.NONDETERMINISTIC
