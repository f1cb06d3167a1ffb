"""Running, replaying and comparing sequences: sessions, differences, verdicts, random numbers."""

from __future__ import annotations

import pytest

from dispatchlab.errors import ErrorKind
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.checker import difference, outcome_difference, outcome_text
from dispatchlab.prover.explore import explore
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.result import Counterexample, Expectation, Flaw, Verdict, judge
from dispatchlab.prover.run_sequence import SequenceError, compare_sequences, full_sequence, on_sandboxes
from dispatchlab.prover.shrink import shrink
from tests.replays import replay
from tests.toy_engines import FOO, Exclusion, ForkableToyEngine, Planted, ToyEngine, ToySpace, toy


def test_replay_looks_before_the_sequence_and_after_every_step() -> None:
    engine = ToyEngine(toy(2, exclusions=(Exclusion(0b11),)))
    steps = replay(engine, engine.registrations, [FOO], (0, 1, ~0, 1))
    assert [step.step for step in steps] == [None, 0, 1, ~0, 1]
    seen = [step.snapshots[0].dump for step in steps]
    assert seen == [f"active: {bits}\n" for bits in ("00", "01", "01", "00", "10")]
    assert [step.refusal and step.refusal.kind for step in steps] == [None, None, ErrorKind.DUPLICATE_DEF, None, None]


def test_replay_ends_where_a_release_fails() -> None:
    engine = ToyEngine(toy(1, Planted("counts", 0, 0, "jams", modulo=3)))
    steps = replay(engine, engine.registrations, [FOO], (0, ~0, 0))
    assert len(steps) == 3
    assert steps[-1].refusal is not None
    assert steps[-1].refusal.message == "the handle is jammed"


def test_replay_shows_the_invariants_that_fail() -> None:
    engine = ToyEngine(toy(1, Planted("counts", 0, 0, "breaks", modulo=3)))
    steps = replay(engine, engine.registrations, [FOO], (0,))
    assert [str(broken) for broken in steps[1].violations] == ["test::foo: the toy is in order: flaw 0 has 1"]


@pytest.mark.parametrize(
    ("sequence", "text"),
    [
        ((0, 1, ~1), "step -1 cannot be run: after +0 +1, 1 is not registered"),
        ((0, 0), "step +0 cannot be run: after +0, 0 is already registered"),
        ((~1,), "step -1 cannot be run: at the start, 1 is not registered"),
    ],
)
def test_a_sequence_that_cannot_be_run_is_explained(sequence: tuple[int, ...], text: str) -> None:
    engine = ToyEngine(toy(2, exclusions=(Exclusion(0b11),)))
    with pytest.raises(SequenceError) as caught:
        replay(engine, engine.registrations, [FOO], sequence)
    assert str(caught.value) == text


def flaw_between(space: ToySpace, expected: tuple[int, ...], actual: tuple[int, ...]) -> Flaw | None:
    engine = ToyEngine(space)
    found = compare_sequences(on_sandboxes(engine, engine.registrations, [FOO]), expected, actual)
    return None if found is None else found.flaw


def test_two_sequences_that_agree_are_no_counterexample() -> None:
    assert flaw_between(toy(3), (0, 1), (1, 0)) is None
    assert flaw_between(toy(3), (0, 1), (0, 1)) is None
    assert flaw_between(toy(3), (0, 1), (2,)) is None


@pytest.mark.parametrize(
    ("planted", "expected", "actual", "flaw"),
    [
        (Planted("depends on order", 1, 0, "shows"), (0, 1), (1, 0), Flaw.NON_COMMUTING),
        (Planted("is haunted", 1, 0, "shows"), (0,), (0, 1, ~1), Flaw.UNDO),
        (Planted("is haunted", 1, 0, "refuses", target=2), (2,), (1, ~1, 2), Flaw.OUTCOME),
        (Planted("depends on order", 1, 0, "refuses", target=2), (1, 0, 2), (0, 2, 1), Flaw.ASYMMETRY),
        (Planted("depends on order", 1, 0, "breaks"), (0, 1), (0, 1), Flaw.INVARIANT),
        (Planted("depends on order", 1, 0, "jams"), (0, 1, ~0), (0, 1, ~0), Flaw.RELEASE),
        (Planted("depends on order", 1, 0, "crashes", target=2), (0, 1, 2), (0, 1, 2), Flaw.CRASH),
    ],
)
def test_two_sequences_that_disagree_are_reported_with_the_flaw(
    planted: Planted, expected: tuple[int, ...], actual: tuple[int, ...], flaw: Flaw
) -> None:
    if flaw is Flaw.ASYMMETRY:
        assert flaw_between(toy(3, planted, exclusions=(Exclusion(0b111, only_last=2),)), expected, actual) is flaw
    else:
        assert flaw_between(toy(3, planted), expected, actual) is flaw


def test_a_residue_is_reported() -> None:
    space = toy(2, Planted("is poisoned", 1, 0, "shows"), exclusions=(Exclusion(0b11),))
    assert flaw_between(space, (0,), (0, 1)) is Flaw.RESIDUE
    assert flaw_between(space, (), (0, 1, ~0)) is Flaw.UNDO


def test_the_sequence_that_satisfies_the_invariants_is_the_expected_one() -> None:
    engine = ToyEngine(toy(2, Planted("depends on order", 1, 0, "breaks")))
    found = compare_sequences(on_sandboxes(engine, engine.registrations, [FOO]), (0, 1), (1, 0))
    assert found is not None
    assert (found.expected_sequence, found.actual_sequence) == ((1, 0), (0, 1))
    assert found.diff.splitlines()[3:] == ["-all hold", "+test::foo: the toy is in order: flaw 0 has 1"]


def test_a_counterexample_is_kept_when_there_are_no_steps_left_to_shorten_it() -> None:
    engine = ToyEngine(toy(3, Planted("depends on order", 1, 0, "shows")))
    sessions = on_sandboxes(engine, engine.registrations, [FOO])
    long = Counterexample(Flaw.NON_COMMUTING, (2, 0, 1), (2, 1, 0), "")
    assert shrink(sessions, 3, long, steps=3) == long
    assert shrink(sessions, 3, long).actual_sequence == (1, 0)


def test_only_the_sections_that_differ_are_shown() -> None:
    one = Snapshot(FOO, "a\nb\n", "CPU: x\n", "CPU: x\n", "test::foo() -> ()")
    other = Snapshot(FOO, "a\nb\n", "CPU: x\n", "CPU: y\n", "test::foo() -> ()")
    assert difference([one, one], [one, other], actual_broken=[Violation(FOO, "fresh", "CPU is stale")]) == (
        "--- expected: test::foo, slots that calls use\n"
        "+++ actual: test::foo, slots that calls use\n"
        "@@ -1 +1 @@\n"
        "-CPU: x\n"
        "+CPU: y\n"
        "--- expected: invariants\n"
        "+++ actual: invariants\n"
        "@@ -1 +1 @@\n"
        "-all hold\n"
        "+test::foo: fresh: CPU is stale\n"
    )
    assert difference([one], [one]) == ""


def test_outcomes_are_compared_with_their_facts() -> None:
    refusal = Refusal(ErrorKind.DUPLICATE_DEF, (("first", "a"),), "there is a def already")
    assert outcome_text(2, refusal) == "+2 refused: duplicate_def\nthere is a def already\n  first: a\n"
    assert outcome_text(~2, refusal).startswith("-2 failed: duplicate_def\n")
    assert outcome_difference(outcome_text(2, None), outcome_text(2, None)) == ""
    assert outcome_difference(outcome_text(2, None), outcome_text(2, refusal)).count("\n") == 7


@pytest.mark.parametrize(
    ("verdict", "conflicts", "independent", "refused", "dependent"),
    [
        (Verdict.ORDER_INDEPENDENT, 0, (True, 0), (False, 1), (False, 1)),
        (Verdict.ORDER_INDEPENDENT, 2, (False, 1), (True, 0), (False, 1)),
        (Verdict.NO_VIOLATION_FOUND, 0, (True, 0), (False, 1), (False, 1)),
        (Verdict.NO_VIOLATION_FOUND, 1, (False, 1), (True, 0), (False, 1)),
        (Verdict.ORDER_DEPENDENT, 0, (False, 1), (False, 1), (True, 0)),
        (Verdict.ORDER_DEPENDENT, 1, (False, 1), (False, 1), (True, 0)),
        (Verdict.INCOMPLETE, 0, (False, 3), (False, 3), (False, 3)),
        (Verdict.NONDETERMINISTIC, 0, (False, 4), (False, 4), (False, 4)),
        (Verdict.CRASHED, 0, (False, 5), (False, 5), (False, 5)),
    ],
)
def test_a_verdict_is_judged_by_what_was_expected(
    verdict: Verdict,
    conflicts: int,
    independent: tuple[bool, int],
    refused: tuple[bool, int],
    dependent: tuple[bool, int],
) -> None:
    assert judge(verdict, Expectation.ORDER_INDEPENDENT, conflicts=conflicts) == independent
    assert judge(verdict, Expectation.REFUSED, conflicts=conflicts) == refused
    assert judge(verdict, Expectation.ORDER_DEPENDENT, conflicts=conflicts) == dependent


def test_a_required_proof_is_not_given_by_a_sample() -> None:
    assert judge(Verdict.NO_VIOLATION_FOUND, Expectation.ORDER_INDEPENDENT, conflicts=0, require_proof=True) == (
        True,
        3,
    )
    assert judge(Verdict.NO_VIOLATION_FOUND, Expectation.ORDER_INDEPENDENT, conflicts=1, require_proof=True) == (
        False,
        1,
    )
    assert judge(Verdict.ORDER_INDEPENDENT, Expectation.ORDER_INDEPENDENT, conflicts=0, require_proof=True) == (True, 0)
    assert judge(Verdict.ORDER_DEPENDENT, Expectation.ORDER_DEPENDENT, conflicts=0, require_proof=True) == (True, 0)


def test_random_numbers_are_those_of_splitmix64_for_ever() -> None:
    random = SplitMix64(1234567)
    assert [random.next() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_shuffles_and_choices_are_the_same_for_ever() -> None:
    random = SplitMix64(2026)
    items = list(range(10))
    random.shuffle(items)
    assert items == [1, 0, 6, 7, 3, 9, 2, 5, 4, 8]
    assert ([random.below(6) for _ in range(8)], random.chance(50)) == ([1, 2, 5, 1, 1, 3, 0, 1], True)
    assert random.split().next() == 11347441169925445227


def test_a_full_sequence_registers_and_releases_everything_and_keeps_an_order() -> None:
    sequence = full_sequence(6, SplitMix64(5), order=[(4, 0, 2)])
    assert sorted(sequence[:6]) == sorted(~step for step in sequence[6:]) == list(range(6))
    assert [step for step in sequence[:6] if step in (4, 0, 2)] == [4, 0, 2]


def test_a_counterexample_that_a_fresh_sandbox_does_not_show_is_said_to_be_so() -> None:
    class Pretender(ForkableToyEngine):
        """Its state space has a flaw that its sandboxes do not have."""

        def space(self, *_: object) -> ToySpace:
            return toy(2, Planted("depends on order", 1, 0, "shows"))

    engine = Pretender(toy(2))
    found = explore(engine, engine.registrations, [FOO])
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert found.notes == ("the counterexample does not show in a fresh sandbox of this engine",)
    honest = ForkableToyEngine(toy(2, Planted("depends on order", 1, 0, "shows")))
    assert explore(honest, honest.registrations, [FOO]).notes == ()
