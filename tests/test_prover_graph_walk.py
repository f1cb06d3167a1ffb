"""The graph walk proves what holds, finds what does not, and reports it in the shortest sequences."""

from __future__ import annotations

import pytest

from dispatchlab.errors import ErrorKind
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.chains import count_edges, count_orders, normal
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.limits import Interrupted, Progress, WalkOptions, Watch
from dispatchlab.prover.result import Flaw, Verdict
from tests.brute_force import merging_is_sound
from tests.toy_engines import Exclusion, Planted, ToySpace, toy


def sequences(space: ToySpace) -> tuple[Flaw, str, str]:
    """The counterexample in short."""
    found = explore_graph(space, space.count)
    assert found.verdict is Verdict.ORDER_DEPENDENT
    counterexample = found.counterexample
    assert counterexample is not None
    return (
        counterexample.flaw,
        format_sequence(counterexample.expected_sequence),
        format_sequence(counterexample.actual_sequence),
    )


def test_five_registrations_that_commute_are_proved_with_32_sets_and_160_edges() -> None:
    found = explore_graph(toy(5), 5)
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert (found.sets, found.states, found.edges, found.orders) == (32, 32, 160, 14_400)
    assert (found.conflicts, found.never_accepted, found.counterexample, found.notes) == ((), (), None, ())


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_every_edge_is_tried_in_both_directions(count: int) -> None:
    found = explore_graph(toy(count), count)
    assert (found.sets, found.edges) == (2**count, count * 2**count)
    assert found.edges == count_edges(count)


@pytest.mark.parametrize(("count", "order"), [(3, (0, 2)), (4, (3, 1, 0)), (5, (1, 0)), (4, (0, 1, 2, 3)), (2, (1,))])
def test_an_order_is_kept_by_registrations_and_not_by_releases(count: int, order: tuple[int, ...]) -> None:
    found = explore_graph(toy(count), count, order=[order])
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert (found.sets, found.edges) == (2**count, count_edges(count, [order]))


def test_an_order_divides_the_registration_orders() -> None:
    assert count_orders(5) == 14_400
    assert count_orders(5, [(3, 1)]) == 7_200
    assert count_orders(3, [(0, 1, 2)]) == 6
    assert count_orders(4, [(0, 1), (2, 3)]) == 6 * 24
    assert count_orders(4, normal([(0, 1), (0, 2), (1, 3), (2, 3)])) == 2 * 24


def test_an_order_hides_the_flaw_of_the_other_order() -> None:
    space = toy(2, Planted("depends on order", by=1, partner=0, effect="breaks"))
    assert explore_graph(space, 2, order=[(1, 0)]).verdict is Verdict.ORDER_INDEPENDENT
    assert explore_graph(space, 2, order=[(0, 1)]).verdict is Verdict.ORDER_DEPENDENT


def test_two_orders_that_look_different_are_non_commuting() -> None:
    space = toy(3, Planted("depends on order", by=1, partner=0, effect="shows"))
    assert sequences(space) == (Flaw.NON_COMMUTING, "+0 +1", "+1 +0")


def test_of_two_orders_the_expected_one_satisfies_the_invariants() -> None:
    space = toy(2, Planted("depends on order", by=1, partner=0, effect="breaks"))
    assert sequences(space) == (Flaw.NON_COMMUTING, "+1 +0", "+0 +1")


def test_what_was_released_and_left_a_trace_is_an_undo() -> None:
    assert sequences(toy(2, Planted("is haunted", 1, 0, "shows"))) == (Flaw.UNDO, "(nothing)", "+1 -1")


def test_a_trace_that_shows_only_later_is_an_undo_too() -> None:
    space = toy(3, Planted("is haunted", 1, 0, "shows", when=0b101))
    flaw, expected, actual = sequences(space)
    assert (flaw, expected, len(actual.split())) == (Flaw.UNDO, "+0 +2", 4)


def test_what_was_refused_and_left_a_trace_is_a_residue() -> None:
    space = toy(2, Planted("is poisoned", 1, 0, "shows"), exclusions=(Exclusion(0b11),))
    assert sequences(space) == (Flaw.RESIDUE, "+0", "+0 +1")


def test_a_hidden_trace_that_changes_an_outcome_is_found_with_its_history() -> None:
    signature = Planted("is haunted", by=1, partner=0, effect="refuses", target=2, when=0b001)
    found = explore_graph(toy(3, signature, exclusions=(Exclusion(0b110),)), 3)
    counterexample = found.counterexample
    assert counterexample is not None
    assert (counterexample.flaw, format_sequence(counterexample.expected_sequence)) == (Flaw.OUTCOME, "+0 +2")
    assert format_sequence(counterexample.actual_sequence) == "+0 +1 -1 +2"
    assert counterexample.why == ("flaw 0: 0 and 1",)
    assert counterexample.diff.splitlines() == [
        "--- expected: outcome",
        "+++ actual: outcome",
        "@@ -1 +1,2 @@",
        "-+2 accepted",
        "++2 refused: signature_mismatch",
        "+the flaw says no",
    ]


def test_a_set_that_is_refused_only_when_one_member_comes_last_is_an_asymmetry() -> None:
    assert sequences(toy(2, exclusions=(Exclusion(0b11, only_last=0),))) == (Flaw.ASYMMETRY, "+0 +1", "+1 +0")
    assert sequences(toy(2, exclusions=(Exclusion(0b11, only_last=1),))) == (Flaw.ASYMMETRY, "+0 +1", "+1 +0")


def test_another_kind_of_error_when_another_comes_last_is_an_asymmetry() -> None:
    kinds = (ErrorKind.DUPLICATE_DEF, ErrorKind.SCHEMA_CONFLICT)
    assert sequences(toy(2, exclusions=(Exclusion(0b11, kinds=kinds),))) == (Flaw.ASYMMETRY, "+0 +1", "+1 +0")


def test_other_facts_of_an_error_for_the_same_step_are_an_outcome() -> None:
    space = toy(2, Planted("is haunted", 1, 0, "rewords", target=0), exclusions=(Exclusion(0b01),))
    assert sequences(space) == (Flaw.OUTCOME, "+0", "+1 -1 +0")


def test_only_those_who_may_come_last_are_compared() -> None:
    rules = (Exclusion(0b001, unless=0b100), Exclusion(0b011, only_last=1, unless=0b100))
    found = explore_graph(toy(3, exclusions=rules), 3, order=[(0, 1)])
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert found.sets == 8


def test_a_set_that_breaks_an_invariant_after_every_sequence_is_at_fault_itself() -> None:
    assert sequences(toy(2, Planted("counts", 1, 0, "breaks", modulo=3))) == (Flaw.INVARIANT, "+1", "+1")


def test_a_release_that_fails_is_found() -> None:
    space = toy(2, Planted("sticks", by=1, partner=0, effect="jams", target=0))
    assert sequences(space) == (Flaw.RELEASE, "+0 +1 -0", "+0 +1 -0")


def test_hidden_state_that_never_shows_is_proved_harmless_and_counted() -> None:
    found = explore_graph(toy(3, Planted("remembers", 1, 0, "nothing")), 3)
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert (found.sets, found.states, found.edges) == (8, 16, 48)
    assert found.notes == ("16 states for 8 sets: the engine keeps hidden state that is never observed",)


def test_conflicts_are_minimal_and_list_who_was_never_accepted() -> None:
    rules = (Exclusion(0b00011, names_last=True), Exclusion(0b01110), Exclusion(0b10000))
    found = explore_graph(toy(5, exclusions=rules), 5)
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    assert [(conflict.members, conflict.kind, conflict.asymmetric) for conflict in found.conflicts] == [
        ((4,), "duplicate_def", False),
        ((0, 1), "duplicate_def", True),
        ((1, 2, 3), "duplicate_def", False),
    ]
    assert found.never_accepted == (4,)
    assert (found.sets, found.edges) == (11, 55)


def test_an_engine_that_dies_leaves_the_sequence_that_killed_it() -> None:
    space = toy(3, Planted("sticks", by=1, partner=0, effect="crashes", target=2))
    found = explore_graph(space, 3)
    assert found.verdict is Verdict.CRASHED
    assert found.counterexample is not None
    assert format_sequence(found.counterexample.actual_sequence) == "+0 +1 +2"
    assert found.counterexample.why == ("the toy is broken",)


def test_a_bound_on_states_is_never_a_silent_pass() -> None:
    found = explore_graph(toy(8), 8, watch=Watch(WalkOptions(max_states=100)))
    assert found.verdict is Verdict.INCOMPLETE
    assert found.notes == ("stopped at the bound of 100 states",)
    assert found.states == 100


def test_a_bound_on_time_is_never_a_silent_pass() -> None:
    found = explore_graph(toy(8), 8, watch=Watch(WalkOptions(timeout_s=0)))
    assert (found.verdict, found.notes) == (Verdict.INCOMPLETE, ("stopped at the bound of 0 seconds",))


class Hungry(ToySpace):
    """Raises after a hundred steps."""

    error: type[BaseException] = MemoryError

    def release(self, state: tuple[int, tuple[int, ...]], index: int, /) -> tuple[int, tuple[int, ...]]:
        if state[0] == 0b11100000:
            raise self.error
        return super().release(state, index)


class Impatient(Hungry):
    """Presses Ctrl-C."""

    error = KeyboardInterrupt


def test_lack_of_memory_is_a_bound() -> None:
    found = explore_graph(Hungry(8), 8)
    assert (found.verdict, found.notes) == (Verdict.INCOMPLETE, ("stopped because memory ran out",))
    assert found.states > 100


def test_an_interruption_gives_what_was_covered() -> None:
    with pytest.raises(Interrupted) as caught:
        explore_graph(Impatient(8), 8)
    covered = caught.value.exploration
    assert covered.verdict is Verdict.INCOMPLETE
    assert covered.sets > 100
    assert covered.notes == ("interrupted",)


def test_progress_is_reported_until_it_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("dispatchlab.prover.limits.perf_counter", lambda: float(next(clock)))
    seen: list[Progress] = []
    watch = Watch(cancelled=lambda: len(seen) == 5, progress=seen.append, total_edges=count_edges(6))
    found = explore_graph(toy(6), 6, watch=watch)
    assert (found.verdict, found.notes) == (Verdict.INCOMPLETE, ("cancelled",))
    assert [(step.edges, step.total_edges) for step in seen] == [(0, 384), (6, 384), (12, 384), (18, 384), (24, 384)]


def test_every_state_of_one_set_is_counted() -> None:
    flaws = [Planted("counts", index, 0, "nothing", modulo=3) for index in range(3)]
    found = explore_graph(toy(3, *flaws), 3)
    assert (found.verdict, found.sets, found.states, found.edges) == (Verdict.ORDER_INDEPENDENT, 8, 8 * 27, 24 * 27)


def test_merging_is_sound_on_engines_with_planted_hidden_state() -> None:
    assert merging_is_sound(range(25)) == {Verdict.ORDER_INDEPENDENT: 16, Verdict.ORDER_DEPENDENT: 9}
