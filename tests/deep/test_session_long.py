"""The long tests of tests/test_session.py, which the quick tier leaves out."""

from __future__ import annotations

import random
import warnings

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.explore.session import InteractiveSession, changed_rows
from dispatchlab.questions.explore.session_subject import Subject, runner_for
from tests.effort import share
from tests.test_session import ACTIONS, SEEDS, fresh, random_action, random_subject, shown


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_session_of_random_actions_shows_at_every_step_what_a_fresh_engine_shows(seed: int) -> None:
    subject, _ = random_subject(seed)
    names, count = subject.operators, len(subject.registrations)
    session = InteractiveSession(runner_for(subject), count, names)
    chance = random.Random(seed)
    done: set[str] = set()
    for _ in range(ACTIONS):
        before = session.moment
        done.add(random_action(session, chance, count))
        assert shown(session.moment, names) == fresh(subject.semantics, subject.registrations, names, session.sequence)
        for name in names:
            seen, was = session.moment.seen(name), before.seen(name)
            assert seen.view.name == str(name)
            if session.moment is not before:
                assert session.changes(name) == changed_rows(was.snapshot, seen.snapshot)
    assert done >= {"t", "u", "r", "c"}


def _states(subject: Subject) -> int:
    """The most states that one set has."""
    runner = runner_for(subject)
    found = runner.states_of_sets(subject.scenario.order)
    assert found is not None
    return max(map(len, found.values()))


def test_a_set_has_several_states_only_where_the_explorer_finds_a_violation() -> None:
    verdicts = {1: set[Verdict](), 2: set[Verdict]()}
    for seed in range(share(80)):
        subject, semantics = random_subject(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = explore(
                LabEngine(semantics), subject.registrations, subject.operators, order=subject.scenario.order
            )
        verdicts[min(2, _states(subject))].add(found.verdict)
    assert verdicts[2] == {Verdict.ORDER_DEPENDENT}
    assert Verdict.ORDER_INDEPENDENT in verdicts[1]
